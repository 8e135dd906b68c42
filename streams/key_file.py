"""Key files: a seed, and in comments above it whose it is. Read by us and by NATS' own tools.

A seed is never printed, logged or compared in the open; this file alone touches one.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import nkeys

from streams.errors import AskedWrongly
from streams.permissions import Identity, Role

KEY_BYTES_MAX = 4096
MODE = 0o600
OTHERS = 0o077

_WHOSE = re.compile(r"^# (run|role|id|regions): (.*)$", re.MULTILINE)
_SEED = re.compile(r"^(SU[A-Z2-7]{56})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Key:
    """A key and whose it is. The seed shows in no message: keep it out of them."""

    identity: Identity
    path: str
    public: str
    seed: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.path} (that of {self.identity})"


def key_path(folder: Path, identity: Identity) -> Path:
    """`learner-a.nk`, or `operator.nk` for one that is called as its role."""
    role, id_ = identity.role, identity.id
    return folder / (f"{role}.nk" if role == id_ else f"{role}-{id_}.nk")


def make_key(folder: Path, identity: Identity) -> Key:
    """Writes a new key file. Never overwrites: AskedWrongly if it is there."""
    path = key_path(folder, identity)
    seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER).decode()
    text = (
        f"# Key of {identity}. Whoever has it speaks as {identity.id}: keep it secret.\n"
        f"# run: {identity.run}\n"
        f"# role: {identity.role}\n"
        f"# id: {identity.id}\n"
        f"# regions: {' '.join(identity.regions)}\n"
        f"{seed}\n"
    )
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, MODE)
    except FileExistsError:
        raise AskedWrongly(f"{path} is there already: a key is never overwritten") from None
    except OSError as error:
        raise AskedWrongly(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    return Key(identity, str(path), _public(seed), seed)


def read_key(path: str) -> Key:
    """The key in a file. Raises AskedWrongly for what is none, or is open to other users."""
    try:
        if Path(path).stat().st_mode & OTHERS:
            raise AskedWrongly(f"key {path} may be read by other users: chmod 600 {path}")
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(KEY_BYTES_MAX)
    except OSError as error:
        raise AskedWrongly(f"key {path}: {error.strerror}; look at here.nats_key") from None
    except UnicodeDecodeError:
        text = ""
    seed = _SEED.search(text)
    whose = dict(_WHOSE.findall(text))
    if seed is None or not {"run", "role", "id"} <= whose.keys():
        raise AskedWrongly(f"{path} is no key: `decodiloco keys` writes them")
    role: Role = whose["role"]  # Identity checks it
    regions = tuple(whose.get("regions", "").split())
    try:
        identity = Identity(whose["run"], role, whose["id"], regions)
    except AskedWrongly:  # what it says may be the seed, on a line of the wrong name
        raise AskedWrongly(f"{path} is no key: its run, role, id or regions cannot be") from None
    try:
        return Key(identity, path, _public(seed[1]), seed[1])
    except nkeys.NkeysError:
        raise AskedWrongly(f"{path} holds a broken key: make a new one") from None


def _public(seed: str) -> str:
    raw = base64.b32decode(f"{seed}======")
    if nkeys.crc16_checksum(bytearray(raw[:-2])) != raw[-2:]:  # the library does not look
        raise nkeys.ErrInvalidSeed
    pair = nkeys.from_seed(bytearray(seed.encode()))
    try:
        return str(pair.public_key.decode())
    finally:
        pair.wipe()
