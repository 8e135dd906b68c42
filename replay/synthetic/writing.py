"""A synthetic run in a folder: `run.tape`, and `store/` with the one thing that is real, the
opening and the first fragments of the built-in model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from decodiloco.config import Run
from decodiloco.errors import ConfigInvalid
from decodiloco.fragments.of_model import trained
from decodiloco.open_run import store_opening
from decodiloco.store.open_store import open_store
from decodiloco.training.gpt import build
from replay.errors import Unwritable
from replay.place import STORE_NAME, TAPE_NAME
from replay.synthetic.cluster import Cluster, check_fits
from replay.synthetic.records import STORE_URL, synthetic_records
from replay.tape_file import Header
from replay.tape_writer import open_writer
from streams.envelope import Envelope
from streams.events import FragmentMerged, LearnerJoined, RunClosed


@dataclass(frozen=True, slots=True)
class Written:
    """What was written, and what the tape comes to.

    `lives`: joins of learners; `run_seconds`: simulated, until the run was closed; `goodput`:
    tokens against those that the base trains in this time when nothing fails (more with extra
    learners).
    """

    tape: Path
    events: int
    merges: int
    lives: int
    tokens: int
    run_seconds: float
    goodput: float
    digest: str


def write_synthetic(folder: Path, run: Run, cluster: Cluster, seed: int) -> Written:
    """Writes the tape of this run on this cluster, and what it takes to train under it.

    The first parameters are those that `run.model` draws from its seed. Raises ConfigInvalid when
    run and cluster do not fit or there is a tape already, Unwritable when the disk says no.
    """
    check_fits(run, cluster)
    tape = folder / TAPE_NAME
    if tape.exists():
        raise ConfigInvalid(f"{tape} is there already; name another folder")
    try:
        (folder / STORE_NAME).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unwritable(f"{folder}: {error.strerror or error}") from None
    store = open_store((folder / STORE_NAME).resolve().as_uri())
    try:
        opening = store_opening(run, trained(build(run.model)), store)
    finally:
        store.close()
    records = synthetic_records(opening, cluster, seed)
    writer = open_writer(tape, Header(run.name, STORE_URL))
    writer.append(records)
    writer.seal()
    return _written(tape, run, cluster, records)


def _written(tape: Path, run: Run, cluster: Cluster, records: list[Envelope]) -> Written:
    for envelope in reversed(records):
        if isinstance(envelope.event, RunClosed):
            break
    else:
        raise AssertionError("a synthetic run is closed")
    seconds = envelope.time_seconds - records[0].time_seconds
    each = run.training.batch_sequences * run.model.context
    most = sum(each * seconds / step for step in cluster.step_seconds)
    return Written(
        tape=tape,
        events=len(records),
        merges=sum(isinstance(e.event, FragmentMerged) for e in records),
        lives=sum(isinstance(e.event, LearnerJoined) for e in records),
        tokens=envelope.event.tokens,
        run_seconds=seconds,
        goodput=envelope.event.tokens / most,
        digest=records[-1].digest.hex(),
    )
