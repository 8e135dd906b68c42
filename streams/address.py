"""What a NATS address says: servers, and in its query a key file and a CA file.

Text only; nothing is opened here. `nats://host:port?key=keys/learner-a.nk&ca=keys/ca.pem` is an
address with a way in; of several servers with commas between, the last carries the query.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlsplit

from streams.errors import AskedWrongly
from streams.subjects import checked

FILES = ("key", "ca")


@dataclass(frozen=True, slots=True)
class NatsAddress:
    """Servers as the client takes them, credentials included, and the files that let us in."""

    servers: tuple[str, ...] = field(repr=False)
    shown: str = ""
    key: str | None = None
    ca: str | None = None


def parse_address(url: str) -> NatsAddress:
    """Takes an address apart. Raises AskedWrongly for what is no NATS address."""
    servers, _, query = url.partition("?")
    files: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in FILES or name in files or not value:
            raise AskedWrongly(
                f"{without_user(url)!r}: after ? write key=FILE, ca=FILE, or both with & between"
            )
        files[name] = value
    ones = tuple(servers.split(","))
    shown = ",".join(_shown(one, url) for one in ones)
    return NatsAddress(ones, shown, files.get("key"), files.get("ca"))


def address_of(url: str) -> str:
    """The address, or several with commas between, without credentials, for messages.

    Raises AskedWrongly for what is no NATS address.
    """
    return parse_address(url).shown


def parse_run_address(place: str) -> tuple[str, str]:
    """`nats://host:port/run` taken apart: the address as `connect` takes it, and the run.

    Raises AskedWrongly for what is no such address, BadName for a name that no run has.
    """
    servers, mark, query = place.partition("?")
    server, _, run = servers.rstrip("/").rpartition("/")
    try:
        if not server.strip("/").partition("://")[2] or not run:
            raise AskedWrongly("no run is named")
        parse_address(server)
    except AskedWrongly:
        raise AskedWrongly(
            f"{without_user(place)}: write a live run as nats://host:port/run, "
            "such as nats://127.0.0.1:4222/demo"
        ) from None
    url = server + mark + query
    parse_address(url)
    return url, checked(run, "run")


def with_files(url: str, key: str | None, ca: str | None) -> str:
    """The address with these files in its query; what it names itself goes before."""
    said = parse_address(url)
    files = {"key": said.key or key, "ca": said.ca or ca}
    query = "&".join(f"{name}={quote(path)}" for name, path in files.items() if path)
    return ",".join(said.servers) + (f"?{query}" if query else "")


def _shown(server: str, url: str) -> str:
    try:
        parts = urlsplit(server)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("nats", "tls") or not parts.hostname or parts.path.strip("/"):
        raise AskedWrongly(  # the whole of it: a comma in a password would show its first half
            f"{without_user(url)!r} is no NATS address: write nats://host:port"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port or 4222}"


def without_user(text: str) -> str:
    """What somebody wrote as an address, without name and password, also where it is none."""
    head, at, rest = text.rpartition("@")  # the last one: a password may hold others
    scheme, slashes, _ = head.partition("//")
    if slashes:
        return f"{scheme}//{rest}"
    return rest if at and ":" in head else text  # a slash is missing, or the scheme
