"""Text as byte tokens: what is read, what is held out. Knows no model and no run.

The default text needs no download: the source of Python's own standard library, as it lies on
this machine. The token of a byte is the byte.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import fsspec
import numpy as np
from blake3 import blake3

from decodiloco.config import Training
from decodiloco.training.shards import Tokens
from streams.errors import AskedWrongly, Trouble

STDLIB = "stdlib"
TEXT_BYTES_MAX = 4 * 2**30  # the text is held in memory, one byte a token
FILES_MAX = 1_000_000
SKIPPED_FOLDERS = frozenset({"test", "tests", "site-packages", "dist-packages", "__pycache__"})
BETWEEN_FILES = b"\0"


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Training and held-out tokens (uint8), and the blake3 of the held-out ones."""

    training: Tokens
    held_out: Tokens
    digest: bytes


def read_corpus(training: Training, context: int) -> Corpus:
    """The text that `training.data` names, split, and checked to be enough.

    A file is held out when blake3 of its path below the glob's fixed part falls under
    `held_out_share`; a split that leaves one side too short for a window holds out the end of
    each file instead. Raises AskedWrongly when nothing matches or when there is too little
    text, and Trouble when it cannot be read.
    """
    texts = list(_stdlib() if training.data == STDLIB else _matching(training.data))
    if not texts:
        raise AskedWrongly(
            f"training.data {training.data!r} matches no file; "
            "name text files by a glob such as 'texts/**/*.txt', or take 'stdlib'"
        )
    kept, held = _split_by_file(texts, training.held_out_share)
    if min(len(kept), len(held)) <= context:
        kept, held = _split_by_tail(texts, training.held_out_share)
    _check_enough(training, context, len(kept), len(held))
    return Corpus(
        np.frombuffer(kept, dtype=np.uint8),
        np.frombuffer(held, dtype=np.uint8),
        blake3(held).digest(),
    )


def is_held_out(path: str, share: float) -> bool:
    """Whether the file at this relative path is held out: by its name alone, so for good."""
    draw = int.from_bytes(blake3(path.encode("utf-8", "surrogateescape")).digest()[:8], "big")
    return draw < share * 2**64


def _split_by_file(texts: Sequence[tuple[str, bytes]], share: float) -> tuple[bytes, bytes]:
    sides: tuple[list[bytes], list[bytes]] = ([], [])
    for path, text in texts:
        sides[is_held_out(path, share)].append(text)
    return BETWEEN_FILES.join(sides[0]), BETWEEN_FILES.join(sides[1])


def _split_by_tail(texts: Sequence[tuple[str, bytes]], share: float) -> tuple[bytes, bytes]:
    cuts = [len(text) - int(len(text) * share) for _, text in texts]
    kept = BETWEEN_FILES.join(text[:cut] for (_, text), cut in zip(texts, cuts, strict=True))
    held = BETWEEN_FILES.join(text[cut:] for (_, text), cut in zip(texts, cuts, strict=True))
    return kept, held


def _check_enough(training: Training, context: int, kept: int, held: int) -> None:
    size = context + 1
    needed = training.shards * training.batch_sequences * size
    if kept < needed:
        raise AskedWrongly(
            f"training.data {training.data!r} has {kept:,} bytes to train on, but one batch for "
            f"each of {training.shards} shards ({training.batch_sequences} sequences of {size}) "
            f"takes {needed:,}; name more text, or set training.shards lower"
        )
    if held < size:
        raise AskedWrongly(
            f"training.data {training.data!r} leaves {held:,} bytes for evaluation, of {size} "
            "needed; name more text, or set training.held_out_share higher"
        )


def _stdlib() -> Iterator[tuple[str, bytes]]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(_sources_below(root)):
        yield path, _read_local(root / path)


def _sources_below(root: Path) -> Iterator[str]:
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name not in SKIPPED_FOLDERS]
        here = Path(folder).relative_to(root)
        yield from ((here / name).as_posix() for name in names if name.endswith(".py"))


def _read_local(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Trouble(f"training text {path}: {error.strerror or error}") from None


def _matching(pattern: str) -> Iterator[tuple[str, bytes]]:
    """Relative path and bytes of each file that matches an fsspec glob, sorted by path."""
    try:
        files, place = fsspec.core.url_to_fs(pattern)
        found = files.glob(place, detail=True)
    except FileNotFoundError:
        return
    except (ValueError, ImportError) as error:
        raise AskedWrongly(f"training.data {pattern!r}: {error}") from None
    except Exception as error:  # each of fsspec's places has errors of its own
        raise Trouble(f"training.data {pattern!r}: {type(error).__name__}: {error}") from None
    sizes = {path: entry["size"] or 0 for path, entry in found.items() if entry["type"] == "file"}
    total = sum(sizes.values())
    if total > TEXT_BYTES_MAX or len(sizes) > FILES_MAX:
        raise AskedWrongly(
            f"training.data {pattern!r} matches {len(sizes):,} files of {total:,} bytes; at most "
            f"{FILES_MAX:,} and {TEXT_BYTES_MAX:,} are held in memory"
        )
    fixed = _fixed_part(place)
    for path in sorted(sizes):
        try:
            yield path.removeprefix(fixed).lstrip("/"), files.cat_file(path)
        except Exception as error:  # as above
            raise Trouble(f"training text {path}: {type(error).__name__}: {error}") from None


def _fixed_part(pattern: str) -> str:
    """The folders of a glob before its first wildcard: they differ from machine to machine."""
    parts = pattern.split("/")
    for index, part in enumerate(parts):
        if any(mark in part for mark in "*?["):
            return "/".join(parts[:index])
    return "/".join(parts[:-1])
