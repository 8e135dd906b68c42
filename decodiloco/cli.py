"""The `decodiloco` command: options in, one call into the right room, an exit code out.

Only typer loads here; each command imports what it needs, so that --help answers at once, and
reads its config before torch loads, so that a mistake is told at once, too.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from decodiloco.archive.command import archive, restore
from decodiloco.local.command import demo, up
from decodiloco.metrics.command import exporter
from decodiloco.options import AsJson, ConfigFile, Endpoint, Id, Run, Settings, examples

if TYPE_CHECKING:
    from decodiloco.config import Config

app = typer.Typer(
    help="Train one model on machines that may fail, and prove what happened. "
    "--debug, anywhere, shows the traceback of a failure.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


app.command(
    epilog=examples(
        "decodiloco demo", "decodiloco demo --kill learner@20 --kill syncer@45 --dir runs/mine"
    )
)(demo)
app.command(
    epilog=examples(
        "decodiloco up --config run.toml --learners 2 --syncers 1 --set end.steps=50",
        "decodiloco up --config run.toml --learners 2 --mergers 1 --spot nights.csv",
    )
)(up)


@app.command(
    "open",
    epilog=examples(
        "decodiloco open --config run.toml", "decodiloco open --config run.toml --set name=second"
    ),
)
def open_(config: ConfigFile, settings: Settings = None) -> None:
    """Open a run with the built-in model: its first fact and its first bytes. Once, by anyone."""
    loaded, _ = _ready(config, settings, "open", "opener")
    from decodiloco.open_run import open_run
    from decodiloco.training.gpt import build

    open_run(loaded, build(loaded.run.model))
    typer.echo(f"run {loaded.run.name} is open; learners may join")


@app.command(
    epilog=examples(
        "decodiloco syncer --config run.toml --id syncer-1",
        "decodiloco syncer --config run.toml --id syncer-2 --set here.nats=nats://10.0.0.5:4222",
    )
)
def syncer(config: ConfigFile, id_: Id = None, settings: Settings = None) -> None:
    """Run a syncer: it leads, or stands by to take over, until the run is closed."""
    loaded, named = _ready(config, settings, "syncer", id_)
    from decodiloco.merge import loading
    from decodiloco.stopping import run_until_stopped
    from decodiloco.syncer.service import run_syncer

    loading.defer()  # who stands by needs none, and who leads must not wait for a compiler
    run_until_stopped(run_syncer(loaded, named))


@app.command(
    epilog=examples(
        "decodiloco merger --config run.toml --id m1",
        "decodiloco merger --config run.toml --id m2 --set here.threads=16",
    )
)
def merger(config: ConfigFile, id_: Id = None, settings: Settings = None) -> None:
    """Carry out merges for the leading syncer, here or on another host, until the run is closed."""
    loaded, named = _ready(config, settings, "merger", id_)
    from decodiloco.merger.service import run_merger
    from decodiloco.stopping import run_until_stopped

    run_until_stopped(run_merger(loaded, named))


@app.command(
    epilog=examples(
        "decodiloco learner --config run.toml --id a",
        "decodiloco learner --config run.toml --id b --set here.threads=2",
    )
)
def learner(config: ConfigFile, id_: Id = None, settings: Settings = None) -> None:
    """Train with the built-in trainer until the run is closed. SIGTERM leaves in good order."""
    loaded, named = _ready(config, settings, "learner", id_)
    from decodiloco.training.trainer import run_learner

    run_learner(loaded, named)


@app.command(
    epilog=examples(
        "decodiloco evaluator --config run.toml",
        "decodiloco evaluator --config runs/demo/run.toml --set here.region=home",
    )
)
def evaluator(
    config: ConfigFile,
    id_: Annotated[str, typer.Option("--id", help="Under which id it speaks.")] = "evaluator",
    settings: Settings = None,
) -> None:
    """Report the merged model's loss on held-out text until the run is closed."""
    loaded, named = _ready(config, settings, "evaluator", id_)
    from decodiloco.training.evaluator import run_evaluator

    run_evaluator(loaded, named)


@app.command(
    epilog=examples("decodiloco close runs/demo", "decodiloco close nats://127.0.0.1:4222/demo")
)
def close(run: Run, store_endpoint: Endpoint = None) -> None:
    """End a run in good order: one last round of each fragment, then it is closed."""
    import asyncio

    from decodiloco.close import close_run
    from decodiloco.visit import address_of

    typer.echo(asyncio.run(close_run(address_of(run, store_endpoint))))


@app.command(
    epilog=examples(
        "decodiloco retain runs/demo --keep-merges 500",
        "decodiloco retain nats://127.0.0.1:4222/demo --keep-merges 500 --apply",
        "decodiloco retain runs/demo --keep-merges 0 --apply",
    )
)
def retain(
    run: Run,
    keep_merges: Annotated[
        int, typer.Option(min=0, help="Keep the bytes of at least so many newest merges; 0: all.")
    ],
    apply: Annotated[
        bool, typer.Option("--apply", help="Ask the syncer for it, from now on.")
    ] = False,
    as_json: AsJson = False,
    store_endpoint: Endpoint = None,
) -> None:
    """Tell what bytes a run would let go of, and what stays exact; with --apply, ask for it."""
    import asyncio
    import json

    from decodiloco import retain as room
    from decodiloco.visit import address_of

    told = asyncio.run(room.retain(address_of(run, store_endpoint), keep_merges, apply))
    typer.echo(json.dumps(told.as_plain()) if as_json else "\n".join(told.lines()))


@app.command(
    epilog=examples("decodiloco status runs/demo --watch", "decodiloco status runs/demo --json")
)
def status(
    run: Run,
    watch: Annotated[bool, typer.Option("--watch", help="Again each second.")] = False,
    as_json: AsJson = False,
    store_endpoint: Endpoint = None,
) -> None:
    """Show learners, fragments, rounds, tokens, loss, who is missed, share merged, goodput."""
    import asyncio
    import json

    from decodiloco import status as room
    from decodiloco.status_view import lines_of
    from decodiloco.stopping import run_until_stopped
    from decodiloco.visit import address_of

    address = address_of(run, store_endpoint)
    if watch:
        run_until_stopped(room.watch(address, as_json))
        return
    report = asyncio.run(room.status(address))
    typer.echo(json.dumps(report) if as_json else "\n".join(lines_of(report)))


app.command(
    epilog=examples(
        "decodiloco exporter runs/demo",
        "decodiloco exporter nats://127.0.0.1:4222/demo --listen 0.0.0.0:9464",
    )
)(exporter)
app.command(epilog=examples("decodiloco archive runs/demo", "decodiloco archive runs/demo --once"))(
    archive
)
app.command(
    epilog=examples(
        "decodiloco restore --config run.toml",
        "decodiloco restore --config run.toml --keys keys",
        "decodiloco restore --config runs/demo/run.toml --local",
    )
)(restore)


@app.command(
    epilog=examples(
        "decodiloco doctor --config run.toml",
        "decodiloco doctor --config run.toml --set here.nats=nats://10.0.0.5:4222 --json",
    )
)
def doctor(config: ConfigFile, settings: Settings = None, as_json: AsJson = False) -> None:
    """Check what a run needs from here: server, store, rights, times, and this installation."""
    from decodiloco.config import load_config

    loaded = load_config(config, settings or ())
    from decodiloco.doctor import examine, tell

    raise typer.Exit(tell(examine(loaded), as_json))


def _wanted_option(role: str) -> Any:
    return typer.Option(f"--{role}", metavar="ID", help=f"Make a key for this {role}; repeatable.")


@app.command(
    epilog=examples(
        "decodiloco keys run.toml --out keys --learner a --learner b@east",
        "decodiloco keys run.toml --out keys --apply",
        "decodiloco keys run.toml --out keys --s3-policies",
    )
)
def keys(
    config: Annotated[Path, typer.Argument(metavar="RUN.toml", help="The run's TOML file.")],
    out: Annotated[Path, typer.Option("--out", help="The folder of keys.")],
    learners: Annotated[list[str] | None, _wanted_option("learner")] = None,
    syncers: Annotated[list[str] | None, _wanted_option("syncer")] = None,
    evaluators: Annotated[list[str] | None, _wanted_option("evaluator")] = None,
    viewers: Annotated[list[str] | None, _wanted_option("viewer")] = None,
    mergers: Annotated[list[str] | None, _wanted_option("merger")] = None,
    leaves: Annotated[
        list[str] | None,
        typer.Option(
            "--leaf", metavar="REGION", help="A region whose leaf server gets a key; repeatable."
        ),
    ] = None,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Make the learners' readers on the server of an open run."),
    ] = False,
    s3_policies: Annotated[
        bool, typer.Option("--s3-policies", help="Print an S3 policy for each, as JSON.")
    ] = False,
    settings: Settings = None,
) -> None:
    """Make keys for a run, and the accounts file by which its NATS servers know them.

    The first time also the operator, two syncers s1 and s2, an evaluator and a viewer get one.
    A learner speaks to one region: here.region, or that after its @. With a leaf's key the inbox
    and a copy of the tape are on that region's own NATS server (docs/how-to/regions.md).
    """
    import asyncio
    import json

    from decodiloco import keys as room
    from decodiloco.config import load_config
    from streams.errors import AskedWrongly

    loaded = load_config(config, settings or ())
    wanted = [room.Wanted("learner", text) for text in learners or ()]
    wanted += [room.Wanted("syncer", text) for text in syncers or ()]
    wanted += [room.Wanted("evaluator", text) for text in evaluators or ()]
    wanted += [room.Wanted("viewer", text) for text in viewers or ()]
    wanted += [room.Wanted("merger", text) for text in mergers or ()]
    wanted += [room.Wanted("leaf", text) for text in leaves or ()]
    if s3_policies:
        if wanted or apply:
            raise AskedWrongly("--s3-policies only prints: make keys and readers first, without it")
        typer.echo(json.dumps(room.store_policies(loaded, out), indent=1))
        return
    if wanted or not apply:
        for path in room.make_keys(loaded, out, wanted):
            typer.echo(f"{path}  (secret: give it to nobody else)")
        typer.echo(f"{out / room.ACCOUNTS}  (for the NATS servers: include it, then reload them)")
    if apply:
        ids = asyncio.run(room.apply_keys(loaded, out))
        typer.echo(f"run {loaded.run.name} has readers for {', '.join(ids) or 'no learner'}")


def main() -> None:
    """The entry of the console script: a Failure is one clear line and its exit code."""
    from streams.errors import Failure
    from streams.printing import printable_lines

    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        app(arguments, prog_name="decodiloco")
    except Failure as failure:
        if debug:
            raise
        typer.echo(f"decodiloco: {printable_lines(str(failure))}", err=True)
        sys.exit(failure.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever reads our lines has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _ready(
    path: Path, settings: list[str] | None, role: str, id_: str | None
) -> tuple[Config, str]:
    """The config and the id of a process, checked as far as that takes no time, and its logs."""
    from decodiloco.config import load_config
    from decodiloco.errors import ConfigInvalid
    from decodiloco.places import check_key, check_places
    from decodiloco.telemetry import configure
    from streams.subjects import checked

    config = load_config(path, settings or ())
    named = id_ or config.here.id
    if named is None:
        raise ConfigInvalid("this process has no id: give --id, or set here.id in the config")
    checked(named, "id")
    check_places(config)
    check_key(config, role, named)
    configure(run=config.run.name, role=role, id=named)
    return config, named


if __name__ == "__main__":
    main()
