"""A run folder: its lock, its run.toml, its summary, and the embedded server that lives in it.

Knows files and the server's process. It must not know rounds, learners or what is shown.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from decodiloco.config import Config, load_config
from decodiloco.errors import ConfigDiffers
from decodiloco.local.settings import as_toml, differences
from decodiloco.times import PORT_SECONDS
from streams.errors import AskedWrongly, Trouble

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Holds a run folder for one start at a time; makes it if it is not there.

    Raises Trouble for a folder that cannot be written, AskedWrongly when another start holds it.
    """
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise Trouble(f"folder {folder}: {error.strerror}; choose another one with --dir") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AskedWrongly(
                f"folder {folder}: another demo or up runs in it; stop that one, or choose "
                "another folder with --dir"
            ) from None
        yield
    finally:
        os.close(lock)


@contextmanager
def own_server(folder: Path, nats_url: str, wanted: bool) -> Iterator[None]:
    """The server of a run folder, at the address that its run.toml has, if it is `wanted`.

    Raises AskedWrongly when a demo or up runs in the folder, or another answers there already.
    """
    if not wanted:
        yield
        return
    if not wants_server(nats_url):
        raise AskedWrongly(
            f"{nats_url} answers, or is no address of this machine: leave out --local"
        )
    from streams.nats_server import NatsServer  # a process of its own, where it is needed

    with held(folder):
        server = NatsServer.start(folder / "nats", urlsplit(nats_url).port)
        try:
            yield
        finally:
            server.stop()


def config_there(folder: Path) -> Config | None:
    """The config of the run that is in this folder already."""
    path = folder / "run.toml"
    return load_config(path) if path.exists() else None


def check_same_run(folder: Path, asked: Config) -> None:
    """Raises ConfigDiffers, with every field that differs, when another run is in the folder."""
    there = config_there(folder)
    if there is None:
        return
    parted = differences(there, asked)
    if parted:
        raise ConfigDiffers(
            f"folder {folder} holds run {there.run.name} with other settings:\n"
            + "\n".join(f"  {line}" for line in parted)
            + "\nask for the same settings to continue it, or choose another folder with --dir"
        )


def write_config(folder: Path, tables: Mapping[str, Any]) -> Config:
    """Writes run.toml whole or not at all, and reads it back."""
    write_whole(folder / "run.toml", as_toml(tables))
    return load_config(folder / "run.toml")


def forget_config(folder: Path) -> None:
    """Takes back the config of a run that could not be opened: the next may be another."""
    (folder / "run.toml").unlink(missing_ok=True)


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """Keeps a finished run's summary: some of it was heard and stands on no tape."""
    write_whole(folder / "summary.json", json.dumps(summary, indent=2) + "\n")


def summary_there(folder: Path) -> dict[str, Any] | None:
    """The summary of the finished run in this folder, or None."""
    path = folder / "summary.json"
    if not path.exists():
        return None
    summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return summary


def answers(nats_url: str) -> bool:
    """Whether anything listens at a server's address, or at one of several."""
    return any(_listens(one) for one in nats_url.split(","))


def wants_server(nats_url: str) -> bool:
    """Whether an address is this machine's own and nobody answers there."""
    return urlsplit(nats_url).hostname in LOOPBACK and not answers(nats_url)


def _listens(nats_url: str) -> bool:
    parts = urlsplit(nats_url)
    address = (parts.hostname or "", 4222 if parts.port is None else parts.port)
    try:
        with socket.create_connection(address, PORT_SECONDS):
            return True
    except OSError:
        return False


def write_whole(path: Path, text: str) -> None:
    """Writes a file whole or not at all: somebody may read it at any moment."""
    draft = path.with_name(path.name + ".new")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise Trouble(f"cannot write {path}: {error.strerror or error}; see to its disk") from None
