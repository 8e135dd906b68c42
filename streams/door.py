"""The way to a NATS server: its address, our key, whom we trust; and what to say where it is shut.

Reads the key and the certificates once; opens no connection.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import Any

from streams.address import NatsAddress, parse_address
from streams.errors import AskedWrongly
from streams.key_file import Key, read_key
from streams.permissions import API


@dataclass(frozen=True, slots=True)
class Door:
    """Which server to go to, and with which key and trust. Raises AskedWrongly when made."""

    address: NatsAddress
    key: Key | None
    tls: ssl.SSLContext | None

    @classmethod
    def at(cls, url: str) -> Door:
        address = parse_address(url)
        key = read_key(address.key) if address.key else None
        try:
            tls = ssl.create_default_context(cafile=address.ca) if address.ca else None
        except (OSError, ssl.SSLError) as error:
            raise AskedWrongly(
                f"CA file {address.ca}: {plain(error)}; look at here.nats_ca"
            ) from None
        return cls(address, key, tls)

    @property
    def api(self) -> str:
        """What JetStream requests begin with here."""
        return self.key.identity.api if self.key else API

    def options(self) -> dict[str, Any]:
        """What the client is told of key and trust."""
        options: dict[str, Any] = {}
        if self.key is not None:
            options["nkeys_seed_str"] = self.key.seed
            options["inbox_prefix"] = self.key.identity.inbox_prefix
        if self.tls is not None:
            options["tls"] = self.tls
        return options

    def unknown(self) -> str:
        """What to say where the server does not know who we are."""
        if self.key is None:
            return (
                f"the NATS server at {self.address.shown} does not accept these credentials: "
                "name the file of a key that it knows with here.nats_key"
            )
        return (
            f"the NATS server at {self.address.shown} does not accept these credentials: it does "
            f"not know the key {self.key}; give it the accounts file that `decodiloco keys` "
            "wrote, and reload it"
        )

    def forbidden(self, name: str, what: str) -> str:
        """What to say of a right that we have not."""
        if self.key is None:
            return f"{name} may not {what}: grant it in the NATS server's accounts"
        return (
            f"{name} may not {what}: its key is {self.key}, which has no right to; take the key "
            "made for this, or look at what `decodiloco keys` wrote for it in accounts.conf"
        )


def plain(error: Exception) -> str:
    """What an error says to people; asyncio tells numbers and tuples beside it."""
    if isinstance(error, ssl.SSLError):
        return f"TLS: {getattr(error, 'verify_message', '') or error.reason or error}"
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)
    return str(error) or type(error).__name__
