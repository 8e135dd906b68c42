"""Where a replay reads: a run folder, its run.toml, a live run's address, or a tape file.

A place that is not known is never taken for another one: the error names all that was tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Literal
from urllib.parse import unquote

from decodiloco.config import load_config
from decodiloco.store.blobs import BlobStore, hide_credentials
from decodiloco.store.open_store import open_store
from replay.errors import PlaceSilent, PlaceUnknown
from replay.tape_file import MAGIC, Scan, read_header, read_tape_file
from streams.address import address_of
from streams.envelope import Envelope
from streams.errors import Failure, ServerUnreachable, Trouble
from streams.events import RunOpened
from streams.subjects import checked

PLACES = "a run folder, a run.toml, nats://host:port/run, or a tape file"
TAPE_NAME = "run.tape"
CONFIG_NAME = "run.toml"
STORE_NAME = "store"

_ADDRESS = re.compile(r"(?P<server>(?:nats|tls|ws|wss)://[^/?]+)/(?P<run>[^/?]+)/?(?P<query>\?.*)?")


@dataclass(frozen=True, slots=True)
class Stores:
    """Where the blobs may be: as asked, beside the tape, as the config says."""

    asked: str | None = None
    beside: Path | None = None
    configured: str | None = None
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """One run, and where it is read: from `url` while it is live, else from the file `path`.

    `note` tells what was passed over to come here, for a person to see.
    """

    run: str
    url: str | None = None
    path: Path | None = None
    stores: Stores = field(default_factory=Stores)
    note: str = ""

    @property
    def told(self) -> str:
        """The place, for a message."""
        return f"{address_of(self.url)}/{self.run}" if self.url else str(self.path)

    def envelopes(self) -> Iterator[Envelope]:
        """The tape's records as they are now, chained; strict as the readers of each body are."""
        if self.url is not None:
            from replay.live import read_live  # the NATS client loads only where it is used

            return read_live(self.url, self.run)
        assert self.path is not None
        return read_tape_file(self.path)

    def open_store(self, opened: RunOpened) -> BlobStore:
        """The store that holds this run's blobs.

        In order: the one asked for; `store/` beside the tape, if it holds the run; the config's;
        the one that the tape names. Raises PlaceSilent, naming all of them, when there is none.
        """
        stores = self.stores
        if stores.asked is not None:
            return open_store(stores.asked, stores.endpoint)
        if stores.beside is not None and _kind(stores.beside / self.run) == "folder":
            return open_store(stores.beside.resolve().as_uri())
        tried = [] if stores.beside is None else [f"{stores.beside}/{self.run}"]
        for url in (stores.configured, opened.store):
            if url is None or url in tried:
                continue
            if _is_gone(url):
                tried.append(url)
                continue
            return open_store(url, stores.endpoint if url.startswith("s3://") else None)
        raise PlaceSilent(
            f"run {self.run}: its blobs are not found; tried {', '.join(tried)}; "
            "say where they are with --store URL"
        )


def open_tape(place: str | Path) -> Iterator[Envelope]:
    """Iterates the envelopes of a run folder, a run.toml, nats://host:port/run or a tape file.

    Each is checked against the chain before it is yielded. Raises PlaceUnknown or PlaceSilent
    when there is no such tape, and a Corrupt naming the position when it was changed.
    """
    return find_place(place).envelopes()


def find_place(place: str | Path, store: str | None = None, endpoint: str | None = None) -> Place:
    """The place that is meant; `store` and `endpoint` override where its blobs are."""
    text = str(place)
    if "://" in text:
        return _address(text, store, endpoint)
    path = Path(place)
    match _kind(path):
        case "folder":
            return _folder(path, store, endpoint)
        case "nothing":
            raise PlaceUnknown(f"{text}: there is no such file or folder; name {PLACES}")
        case "other":
            raise PlaceUnknown(f"{text} is neither a file nor a folder; name {PLACES}")
    if path.suffix == ".toml":
        return _configured(path, store, endpoint)
    return _tape_file(path, store, endpoint)


def find_live(place: str | Path) -> Place:
    """The live run that is meant; a tape file is not one. Raises where no server answers."""
    text = str(place)
    if "://" in text:
        return _address(text, None, None)
    path = Path(place)
    config_path = path / CONFIG_NAME if _kind(path) == "folder" else path
    if config_path.suffix != ".toml" or _kind(config_path) != "file":
        raise PlaceUnknown(
            f"{text}: a live run is a folder with a {CONFIG_NAME}, a run.toml, "
            "or nats://host:port/run"
        )
    config = load_config(config_path)
    return Place(config.run.name, url=config.here.nats_door)


def _address(text: str, store: str | None, endpoint: str | None) -> Place:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise PlaceUnknown(
            f"{hide_credentials(text)}: write a live run as nats://host:port/run, "
            "such as nats://127.0.0.1:4222/demo"
        )
    run = checked(match["run"], "run")
    url = match["server"] + (match["query"] or "")
    return Place(run, url=url, stores=Stores(asked=store, endpoint=endpoint))


def _folder(folder: Path, store: str | None, endpoint: str | None) -> Place:
    if _kind(folder / CONFIG_NAME) == "file":
        return _configured(folder / CONFIG_NAME, store, endpoint)
    if _kind(folder / TAPE_NAME) == "file":
        return _tape_file(folder / TAPE_NAME, store, endpoint)
    raise PlaceUnknown(
        f"{folder}: neither {CONFIG_NAME} nor {TAPE_NAME} is in this folder; name {PLACES}"
    )


def _configured(path: Path, store: str | None, endpoint: str | None) -> Place:
    """The live server if it answers and holds this very run, else the tape file beside."""
    config = load_config(path)
    run, url = config.run.name, config.here.nats_door
    tape = path.parent / TAPE_NAME
    stores = Stores(
        asked=store,
        beside=path.parent / STORE_NAME,
        configured=config.here.store,
        endpoint=endpoint or config.here.store_endpoint,
    )
    why_not = _why_not_live(url, run, tape)
    if why_not is None:
        return Place(run, url=url, stores=stores)
    if _kind(tape) != "file":
        raise PlaceSilent(
            f"run {run}: {why_not}; and there is no {tape} either. Start the servers again, or "
            "name the tape file"
        )
    held = read_header(tape).run
    if held != run:
        next(read_tape_file(tape), None)  # a changed header does not fit the first record
        raise PlaceUnknown(f"{tape} holds run {held}, but {path} describes run {run}")
    return Place(run, path=tape, stores=stores, note=f"{why_not}; reading {tape}")


def _why_not_live(url: str, run: str, tape: Path) -> str | None:
    """Why the run is not read from its server, or None when it is."""
    from replay.live import first_live

    try:
        live = first_live(url, run)
    except ServerUnreachable:
        return f"no server answers at {address_of(url)}"
    except Trouble as error:
        return str(error)
    recorded = _first_recorded(tape)
    if recorded is not None and recorded.digest != live.digest:
        return f"the server at {address_of(url)} holds another run named {run}"
    return None


def _first_recorded(tape: Path) -> Envelope | None:
    """The first record of a tape file, when there is a file and it can be read so far."""
    try:
        with tape.open("rb") as file:
            return next(Scan(file, tape).records(), None)
    except (OSError, Failure):
        return None


def _tape_file(path: Path, store: str | None, endpoint: str | None) -> Place:
    if not _looks_like_tape(path):
        raise PlaceUnknown(f"{path} is no tape file; name {PLACES}")
    header = read_header(path)
    stores = Stores(
        asked=store, beside=path.parent / STORE_NAME, configured=None, endpoint=endpoint
    )
    return Place(header.run, path=path, stores=stores)


def _looks_like_tape(path: Path) -> bool:
    """Whether a tape file is meant: by its name, or by most of its first bytes.

    A tape whose first bytes were changed is a corrupt tape, not an unknown place.
    """
    if path.suffix == ".tape":
        return True
    try:
        with path.open("rb") as file:
            begin = file.read(len(MAGIC))
    except OSError as error:
        raise PlaceUnknown(f"{path}: {error.strerror or error}") from None
    same = sum(mine == theirs for mine, theirs in zip(begin, MAGIC, strict=False))
    return same > len(MAGIC) // 2


def _is_gone(url: str) -> bool:
    """Whether a store in a folder of this machine is surely not there."""
    scheme, _, rest = url.partition("://")
    return scheme == "file" and _kind(Path(unquote(rest))) != "folder"


def _kind(path: Path) -> Literal["folder", "file", "other", "nothing"]:
    """What stands at a path; a pipe or a device is "other", and reading it might never end."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    except OSError as error:
        raise PlaceUnknown(f"{path}: {error.strerror or error}") from None
    if S_ISDIR(mode):
        return "folder"
    return "file" if S_ISREG(mode) else "other"
