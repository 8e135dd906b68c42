"""What the commands of `replay` have in common: options of one name and one help, and stdout.

Must not know what any command does; nothing heavy is loaded here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated

import typer

PLACE_HELP = "A run folder, run.toml, nats://host:port/run, tape file, or archive: s3://bucket/run."
STORE_HELP = "Where the blobs are, when not where the tape says: file:///folder or s3://bucket."

PlaceArgument = Annotated[str, typer.Argument(metavar="TAPE", help=PLACE_HELP)]
StoreOption = Annotated[str | None, typer.Option("--store", metavar="URL", help=STORE_HELP)]
EndpointOption = Annotated[
    str | None,
    typer.Option("--store-endpoint", metavar="URL", help="S3 server that is not AWS."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON object as the last line of stdout.")
]


def note(text: str) -> None:
    """What a person should know, beside the answer; nothing for no text."""
    if text:
        print(f"replay: {text}", file=sys.stderr, flush=True)


def print_json(told: Mapping[str, object]) -> None:
    """The answer of `--json`: one object, the last line of stdout."""
    print(json.dumps(told), flush=True)


@contextmanager
def until_the_reader_leaves() -> Iterator[None]:
    """Lines for whoever reads them in a pipe; once they have seen enough, the rest is dropped."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
