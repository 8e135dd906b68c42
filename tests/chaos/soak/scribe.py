"""One syncer process of a soak: `run_syncer` over a tape that keeps a journal of its appends."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from decodiloco.config import Config, load_config
from decodiloco.places import open_places
from decodiloco.stopping import run_until_stopped
from decodiloco.syncer.service import run_syncer
from decodiloco.telemetry import configure
from streams.errors import Failure
from tests.chaos.soak.journal import Journal, JournalledTape


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="One syncer of a soak.")
    parser.add_argument("--config", required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--seat", required=True, help="name of its journal")
    parser.add_argument("--set", action="append", default=[])
    asked = parser.parse_args(words)
    config = load_config(asked.config, asked.set)
    configure(run=config.run.name, role="syncer", id=asked.id)
    journal = Journal(Path(asked.config).parent / "journals" / f"tape-{asked.seat}.jsonl")
    try:
        run_until_stopped(_serve(config, asked.id, journal))
    except Failure as failure:
        print(f"syncer {asked.id}: {type(failure).__name__}: {failure}", file=sys.stderr)
        sys.exit(failure.exit_code)


async def _serve(config: Config, name: str, journal: Journal) -> None:
    places = await open_places(config, f"syncer-{name}")
    try:
        tape = JournalledTape(places.tape, journal)
        await run_syncer(config, name, replace(places, tape=tape))
    finally:
        await places.close()


if __name__ == "__main__":
    main()
