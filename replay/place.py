"""Where a replay reads: a run folder, its run.toml, a live run's address, or a tape file.

A place that is not known is never taken for another one: the error names all that was tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from decodiloco.store.blobs import BlobStore
from decodiloco.store.open_store import open_store
from replay.archived_records import ArchivedRecords
from replay.errors import PlaceSilent, PlaceUnknown
from replay.records import Records
from replay.tape_file import MAGIC, Scan, read_header, read_tape_file
from streams.address import address_of, parse_run_address, without_user
from streams.envelope import Envelope
from streams.errors import AskedWrongly, BadName, Failure, ServerUnreachable, Trouble
from streams.events import RunOpened
from streams.subjects import checked

if TYPE_CHECKING:
    from decodiloco.config import Config

PLACES = (
    "a run folder, a run.toml, nats://host:port/run, a tape file, or an archive, s3://bucket/run"
)
TAPE_NAME = "run.tape"
CONFIG_NAME = "run.toml"
STORE_NAME = "store"


@dataclass(frozen=True, slots=True)
class Stores:
    """Where the blobs may be: as asked, beside the tape, as the config says."""

    asked: str | None = None
    beside: Path | None = None
    configured: str | None = None
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """One run, and where it is read: from `url` while it is live, else from the file `path`, or
    from its archive in the store at the URL `archive`.

    `note` tells what was passed over to come here, for a person to see.
    """

    run: str
    url: str | None = None
    path: Path | None = None
    stores: Stores = field(default_factory=Stores)
    archive: str | None = None
    note: str = ""

    @property
    def told(self) -> str:
        """The place, for a message."""
        if self.archive is not None:
            return f"the archive of run {self.run} in {without_user(self.archive)}"
        return f"{address_of(self.url)}/{self.run}" if self.url else str(self.path)

    def envelopes(self) -> Iterator[Envelope]:
        """The tape's records as they are now, chained; strict as the readers of each body are."""
        if self.url is not None:
            from replay.live import read_live  # the NATS client loads only where it is used

            return read_live(self.url, self.run)
        if self.archive is not None:
            from decodiloco.archive.segments import archived  # nor does the archive's

            return archived(self.open_archive(), self.run)
        assert self.path is not None
        return read_tape_file(self.path)

    def records(self) -> Records:
        """The same records from any position on; the chain is for the reader to check."""
        if self.url is not None:
            from replay.live import LiveRecords

            return LiveRecords(self.url, self.run)
        if self.archive is not None:
            return ArchivedRecords(self.open_archive(), self.run)
        from replay.tape_index import FileRecords  # with numpy

        assert self.path is not None
        return FileRecords(self.path)

    def open_archive(self) -> BlobStore:
        """The store whose archive is read."""
        assert self.archive is not None
        is_s3 = self.archive.startswith("s3://")
        return open_store(self.archive, self.stores.endpoint if is_s3 else None)

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
    if text.startswith(("file://", "s3://")):
        return _archive(text, store, endpoint)
    if "://" in text:
        return _address(text, store, endpoint)
    path = Path(place)
    match _kind(path):
        case "folder":
            return _folder(path, store, endpoint)
        case "nothing":
            raise PlaceUnknown(
                f"{without_user(text)}: there is no such file or folder; name {PLACES}"
            )
        case "other":
            raise PlaceUnknown(
                f"{without_user(text)} is neither a file nor a folder; name {PLACES}"
            )
    if path.suffix == ".toml":
        return _configured(path, store, endpoint)
    return _tape_file(path, store, endpoint)


def find_live(place: str | Path, store: str | None = None, endpoint: str | None = None) -> Place:
    """The live run that is meant; a tape file is not one. No server is asked yet.

    `store` and `endpoint` override where its blobs are.
    """
    text = str(place)
    if "://" in text:
        return _address(text, store, endpoint)
    path = Path(place)
    config_path = path / CONFIG_NAME if _kind(path) == "folder" else path
    if config_path.suffix != ".toml" or _kind(config_path) != "file":
        raise PlaceUnknown(
            f"{without_user(text)}: a live run is a folder with a {CONFIG_NAME}, a run.toml, "
            "or nats://host:port/run"
        )
    config = _config(config_path)
    stores = _stores_of(config, config_path, store, endpoint)
    return Place(config.run.name, url=config.here.nats_door, stores=stores)


def _address(text: str, store: str | None, endpoint: str | None) -> Place:
    try:
        url, run = parse_run_address(text)
    except BadName:
        raise
    except AskedWrongly as error:
        raise PlaceUnknown(str(error)) from None
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
    config = _config(path)
    run, url = config.run.name, config.here.nats_door
    tape = path.parent / TAPE_NAME
    stores = _stores_of(config, path, store, endpoint)
    why_not = _why_not_live(url, run, tape)
    if why_not is None:
        return Place(run, url=url, stores=stores)
    if _kind(tape) != "file":
        return _archived(Place(run, stores=stores, note=f"{why_not}; there is no {tape}"))
    held = read_header(tape).run
    if held != run:
        next(read_tape_file(tape), None)  # a changed header does not fit the first record
        raise PlaceUnknown(f"{tape} holds run {held}, but {path} describes run {run}")
    return Place(run, path=tape, stores=stores, note=f"{why_not}; reading {tape}")


def _archived(silent: Place) -> Place:
    """The archive in the store of a run that is read from nowhere else, if there is one."""
    run, stores = silent.run, silent.stores
    beside = stores.beside if stores.beside and _kind(stores.beside / run) == "folder" else None
    url = stores.asked or (beside.resolve().as_uri() if beside else stores.configured)
    assert url is not None
    place = replace(silent, archive=url, note=f"{silent.note}; reading its archive in {url}")
    try:
        is_there = not _is_gone(url) and _is_archived(place)
    except Trouble as error:
        raise PlaceSilent(f"run {run}: {silent.note}; {error}") from None
    if not is_there:
        raise PlaceSilent(
            f"run {run}: {silent.note} either, and no archive in {without_user(url)}. Start "
            "the servers again, or name the tape file"
        )
    return place


def _archive(text: str, store: str | None, endpoint: str | None) -> Place:
    """`s3://bucket/prefix/RUN`: a run's archive, in the store that is named before its name."""
    url, _, run = text.rstrip("/").rpartition("/")
    place = Place(
        checked(run, "run"), stores=Stores(store or url, None, None, endpoint), archive=url
    )
    if _is_gone(url) or not _is_archived(place):
        raise PlaceUnknown(f"{without_user(text)}: no archive of a run {run} is there")
    return place


def _is_archived(place: Place) -> bool:
    from decodiloco.archive.segments import listed

    return bool(listed(place.open_archive(), place.run))


def _config(path: Path) -> Config:
    from decodiloco.config import load_config  # a tape file is read without any config

    return load_config(path)


def _stores_of(config: Config, path: Path, store: str | None, endpoint: str | None) -> Stores:
    return Stores(
        asked=store,
        beside=path.parent / STORE_NAME,
        configured=config.here.store,
        endpoint=endpoint or config.here.store_endpoint,
    )


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
    except (OSError, ValueError) as error:  # ValueError: a null byte
        raise PlaceUnknown(
            f"{without_user(str(path))}: {getattr(error, 'strerror', None) or error}"
        ) from None
    if S_ISDIR(mode):
        return "folder"
    return "file" if S_ISREG(mode) else "other"
