"""The command `replay`. Reads arguments and prints; what is printed is worked out elsewhere.

Imports of weight stand inside the commands, so that `replay --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replay.diff.command import diff
from replay.follow.command import follow
from replay.goodput.command import goodput
from replay.options import (
    EndpointOption,
    JsonOption,
    PlaceArgument,
    StoreOption,
    note,
    print_json,
    until_the_reader_leaves,
)
from replay.progress import progress
from replay.retrain.command import retrain
from replay.world.command import simulate
from streams.errors import Corrupt, Failure
from streams.printing import printable_lines

if TYPE_CHECKING:
    from replay.place import Place

RUN_HELP = "A live run: a run folder, its run.toml, or nats://host:port/run."
THREADS_MAX = 256


def _examples(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


app = typer.Typer(
    name="replay",
    help="Read a run's record again: show it, rebuild any state of it, prove its merges.\n\n"
    "Exit codes: 0 agreed, 1 differed, 2 asked wrongly, 3 trouble outside.",
    epilog=_examples("replay show runs/demo --learner a", "replay verify runs/demo"),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command(
    epilog=_examples(
        "replay record runs/demo -o demo.tape",
        "replay record nats://127.0.0.1:4222/demo -o demo.tape --follow",
    )
)
def record(
    run: Annotated[str, typer.Argument(metavar="RUN", help=RUN_HELP)],
    output: Annotated[Path, typer.Option("-o", "--output", help="The tape file.")],
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until the run is closed, or SIGTERM.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a live run's tape to a file, or add what is new to a file of the same run.

    The file ends in a seal. A recorder that was killed leaves a file without one; the same
    command goes on where it ends.
    """
    from replay.record import Voice
    from replay.recorder import record_place

    with progress("recording") as tell:
        recorded = record_place(run, output, follow, Voice(note, tell))
    told = {"tape": str(output), "run": recorded.run, "events": recorded.events}
    if as_json:
        print_json({**told, "added": recorded.added, "digest": recorded.digest.hex()})
        return
    print(f"{output}: run {recorded.run}, {recorded.events} facts ({recorded.added} new), sealed")


@app.command(
    epilog=_examples(
        "replay show runs/demo --from 100 --to 160",
        "replay show demo.tape --learner b --fragment 3 --clocks | less",
    )
)
def show(
    place: PlaceArgument,
    learner: Annotated[str | None, typer.Option(help="Only what concerns this learner.")] = None,
    fragment: Annotated[int | None, typer.Option(min=0, help="Only this fragment.")] = None,
    first: Annotated[int, typer.Option("--from", min=1, help="First position.")] = 1,
    last: Annotated[int | None, typer.Option("--to", min=1, help="Last position.")] = None,
    clocks: Annotated[
        bool, typer.Option("--clocks", help="Vector clocks: what each speaker knew of.")
    ] = False,
) -> None:
    """Print the tape, one line a fact and one column a learner."""
    from replay.place import find_place
    from replay.show import Wanted
    from replay.show_print import print_tape

    found = find_place(place)
    note(found.note)
    with until_the_reader_leaves():
        print_tape(found, Wanted(learner, fragment, first, last, clocks))


@app.command(
    epilog=_examples(
        "replay state runs/demo --step 40 -o model.safetensors",
        "replay state demo.tape --fragment 3 --version 7 --from-start --json",
    )
)
def state(
    place: PlaceArgument,
    position: Annotated[
        int | None, typer.Option("--at", min=1, metavar="POSITION", help="After this position.")
    ] = None,
    step: Annotated[int | None, typer.Option(min=0, help="After this merge; 0: opening.")] = None,
    fragment: Annotated[int | None, typer.Option(min=0, help="With --version.")] = None,
    version: Annotated[int | None, typer.Option(min=0, help="After this one was merged.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the model (safetensors).")
    ] = None,
    from_start: Annotated[
        bool,
        typer.Option(
            "--from-start",
            help="Fold from the first fact and check the whole tape: use no snapshot.",
        ),
    ] = False,
    store: StoreOption = None,
    store_endpoint: EndpointOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rebuild the merged model and its bookkeeping as they were at any moment.

    Folds from the newest snapshot that a syncer stored before it, and on to the next merge, whose
    state digest must agree.
    """
    from replay.moments import moment
    from replay.place import find_place
    from replay.state import state_of, told_as_json

    found = find_place(place, store, store_endpoint)
    note(found.note)
    asked = moment(position, step, fragment, version)
    with progress("folding") as tell:
        rebuilt = state_of(found, asked, tell, note, from_start)
    try:
        if output is not None:
            rebuilt.save(output)
        told = told_as_json(rebuilt)
    finally:
        rebuilt.close()
    if as_json:
        print_json(told)
        return
    print(
        f"run {rebuilt.run} at position {rebuilt.position}: step {rebuilt.step}, "
        f"{rebuilt.tokens:,} tokens trained"
    )
    print(f"versions {' '.join(map(str, rebuilt.versions))}")
    print(f"state digest {rebuilt.digest}")
    print(rebuilt.begun.told)
    if output is not None:
        print(f"model written to {output}")


@app.command(
    epilog=_examples(
        "replay verify runs/demo",
        "replay verify demo.tape --store file:///backup/store --threads 2 --json",
    )
)
def verify(
    place: PlaceArgument,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=THREADS_MAX,
            help="Merges made at once, each in its own memory; the result is the same. "
            "Default: one for each core that may be used.",
            show_default=False,
        ),
    ] = None,
    fragments: Annotated[
        bool, typer.Option("--fragments", help="The table of tokens, a line for each fragment.")
    ] = False,
    invariants: Annotated[
        bool,
        typer.Option("--invariants", help="Also check every invariant, and tell how often each."),
    ] = False,
    store: StoreOption = None,
    store_endpoint: EndpointOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prove the run: chain, fold, every merge made again from stored bytes, every digest.

    Reads each blob that the tape names, whole. Exits 1 at the first difference and names it.
    """
    from replay.place import find_place
    from replay.verify import Proof, difference, verify_place
    from replay.verify_report import report_lines, told_as_json

    try:
        found = find_place(place, store, store_endpoint)
    except Corrupt as error:  # a tape whose very header is broken
        if as_json:
            print_json(told_as_json(Proof("", place, first_difference=difference(error))))
        raise
    note(found.note)
    with progress("verifying") as tell:
        proof = verify_place(found, threads or usable_cores(), tell)
    for line in report_lines(proof, by_fragment=fragments):
        print(line)
    told = dict(told_as_json(proof))
    if invariants and proof.ok:
        told["ok"], told["invariants"] = _check_invariants(found, not proof.synthetic)
    if as_json:
        print_json(told)
    if not told["ok"]:
        raise typer.Exit(1)


def usable_cores() -> int:
    """The cores that this process may run on, as far as the system tells."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # no Linux
        cores = os.cpu_count() or 1
    return min(cores, THREADS_MAX)


def _check_invariants(found: Place, with_bytes: bool) -> tuple[bool, dict[str, int]]:
    """Checks and prints every invariant; whether all held, and how often each was checked."""
    from replay.invariants.of_place import check_place

    with progress("invariants") as tell:
        invariants, broken = check_place(found, tell, with_bytes)
    for one in invariants.every:
        if one.checked:
            print(f"{one.checked:>12,}  {one.name}: {one.says()}")
    if broken is not None:
        print(f"BROKEN: {broken}")
    return broken is None, {one.name: one.checked for one in invariants.every if one.checked}


app.command(
    epilog=_examples(
        "replay follow runs/demo --from now",
        "replay follow runs/demo --verify --alarm /run/decodiloco/alarm.json",
        "replay follow nats://host:4222/demo?key=viewer.key --verify --from 120000 --json",
    )
)(follow)


app.command(
    epilog=_examples(
        "replay diff runs/demo runs/demo/run.tape",
        "replay diff monday.tape tuesday.tape --merges 8",
        "replay diff runs/demo backup/run.tape --store-b file:///backup/store --bytes",
    )
)(diff)


app.command(
    epilog=_examples(
        "replay retrain runs/demo",
        "replay retrain demo.tape --learner b --until 400 --data 'texts/**/*.txt' --json",
    )
)(retrain)


app.command(
    epilog=_examples(
        "replay goodput --table --json",
        "replay goodput --chips 2400000 --learners 16 --days 28 --seeds 1",
        "replay goodput --chips 2400000 --tape runs/many --run run.toml",
    )
)(goodput)


app.command(
    epilog=_examples(
        "replay simulate --seed 7",
        "replay simulate --seeds 0..200 --json",
        "replay simulate --seed 93 --hardships double-letters,doubled-learner.0",
    )
)(simulate)


def main() -> None:
    """Runs the command; a failure is one line on stderr and an exit code, never a traceback."""
    try:
        app(prog_name="replay")
    except Failure as failure:
        print(f"replay: {printable_lines(str(failure))}", file=sys.stderr)
        sys.exit(failure.exit_code)


if __name__ == "__main__":
    main()
