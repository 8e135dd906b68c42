"""What the commands of `decodiloco` have in common: options of one name and one help.

Must not know what any command does; only typer loads here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def examples(*lines: str) -> str:
    """The end of a command's help, its lines kept as they are."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


ConfigFile = Annotated[Path, typer.Option("--config", help="The run's TOML file.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a setting, such as outer.lr=0.4 or here.threads=2."),
]
Id = Annotated[str | None, typer.Option("--id", help="Id of this process; default here.id.")]
Run = Annotated[
    str, typer.Argument(metavar="RUN", help="A run folder, a run.toml or nats://host:port/run.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on the last line.")]
Endpoint = Annotated[
    str | None, typer.Option("--store-endpoint", help="Address of an S3 server that is not AWS.")
]
