"""`decodiloco demo` and `up`: a run in a folder, begun or continued, watched, and summed up."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decodiloco.config import Config, load_config, parse_config
from decodiloco.errors import Disagreement
from decodiloco.local import settings
from decodiloco.local.cluster import Cluster, Size
from decodiloco.local.folder import (
    answers,
    check_same_run,
    config_there,
    held,
    summary_there,
    write_summary,
)
from decodiloco.local.plan import Kill, kills_of, learner_ids, merger_ids, syncer_ids
from decodiloco.local.summary import in_words, next_commands, summarized
from decodiloco.local.view import Display
from decodiloco.places import check_places
from decodiloco.stopping import run_until_stopped
from streams.address import address_of
from streams.errors import ServerUnreachable

INTERRUPTED = 130
EMBEDDED = "nats://127.0.0.1:0"  # port 0: whichever an embedded server gets


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody asked a demo for; None where the settings' own value is meant."""

    folder: Path
    learners: int = settings.LEARNERS
    steps: int = settings.STEPS
    kills: Sequence[str] = ()
    data: str | None = None
    store: str | None = None
    store_endpoint: str | None = None
    nats: str | None = None


def demo(asked: Asked, as_json: bool) -> int:
    """Runs a demo to its end, or tells the summary of the one that ended here; an exit code."""
    config = demo_config(asked)
    check_places(config)
    if asked.nats is not None and not answers(asked.nats):
        raise ServerUnreachable(
            f"nats {address_of(asked.nats)}: nobody answers there; start a server, or leave --nats "
            "out to get one of the demo's own"
        )
    with held(asked.folder):
        check_same_run(asked.folder, config)
        ids = (*learner_ids(asked.learners), *syncer_ids(settings.SYNCERS))
        kills = kills_of(asked.kills, asked.steps, ids)
        summary = summary_there(asked.folder)
        if summary is None:
            size = Size(asked.learners, settings.SYNCERS)
            summary = accompany(asked.folder, config, size, kills, as_json)
        if summary is None:
            return INTERRUPTED
    return tell(summary, as_json)


def up(
    config_path: Path, overrides: Sequence[str], folder: Path | None, size: Size, as_json: bool
) -> int:
    """Runs a cluster for somebody's own config to its end; an exit code."""
    config = load_config(config_path, overrides)
    check_places(config)
    learner_ids(size.learners + (size.spot.most if size.spot else 0))
    syncer_ids(size.syncers)
    merger_ids(size.mergers)
    folder = folder or Path("runs") / config.run.name
    with held(folder):
        check_same_run(folder, config)
        summary = summary_there(folder) or accompany(folder, config, size, (), as_json)
        if summary is None:
            return INTERRUPTED
    return tell(summary, as_json)


def demo_config(asked: Asked) -> Config:
    """The config that a demo's options mean."""
    places = {
        "nats": asked.nats or EMBEDDED,
        "store": asked.store or (asked.folder.resolve() / "store").as_uri(),
    }
    if asked.store_endpoint is not None:
        places["store_endpoint"] = asked.store_endpoint
    tables = settings.demo_tables(
        run_name(asked.folder), asked.learners, asked.steps, asked.data, places
    )
    return parse_config(tables, "demo")


def run_name(folder: Path) -> str:
    """The name of the run in a folder: the one it has, else the folder's own made fit."""
    there = config_there(folder)
    if there is not None:
        return there.run.name
    kept = [letter if letter.isalnum() and letter.isascii() else "-" for letter in folder.name]
    return "".join(kept).lower().strip("-")[:48] or "demo"


def accompany(
    folder: Path, config: Config, size: Size, kills: Sequence[Kill], quietly: bool
) -> dict[str, Any] | None:
    """Runs a cluster to the end of its run and keeps the summary; None when interrupted."""
    stream = sys.stderr if quietly else sys.stdout
    display = Display(stream, time.monotonic, config.run.end.steps)
    cluster = Cluster(folder, config, size, display)

    def stopping() -> None:
        print("stopping everything in order ...", file=sys.stderr)

    if not run_until_stopped(cluster.run(kills), stopping):
        again = "the same command continues the run"
        with suppress(OSError):  # the terminal may be gone
            print(f"stopped at step {cluster.story.step}; {again}", file=sys.stderr)
        return None
    summary = summarized(cluster.story, str(folder))
    write_summary(folder, summary)
    return summary


def _replay() -> str:
    """How `replay` is called from here: by its name when it is on the path, else by its place."""
    if shutil.which("replay") is not None:
        return "replay"
    beside = Path(sys.executable).with_name("replay")
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


def tell(summary: dict[str, Any], as_json: bool) -> int:
    """Prints a summary; the exit code is 1 when the learners' models differ at the end."""
    if as_json:
        print(json.dumps(summary))
    else:
        print("\n" + "\n".join(in_words(summary)))
        print("\nThe run lies in " + summary["dir"] + ". Now look into it:")
        print("\n".join(f"  {command}" for command in next_commands(summary, _replay())))
    if summary["digests_equal"] is False:
        raise Disagreement(f"run {summary['run']}: the learners' models differ at the end")
    return 0
