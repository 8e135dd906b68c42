"""How a learner comes into a run: what it checks, what it loads, where its moments come from."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from decodiloco import stored_opening
from decodiloco.config import Config, Run, load_config
from decodiloco.config_faults import first_difference
from decodiloco.errors import (
    BlobCorrupt,
    BlobMissing,
    ConfigDiffers,
    LayoutDiffers,
    StoreDenied,
)
from decodiloco.fragments.of_model import Trained, same_layout, trained
from decodiloco.learner import checkpoint
from decodiloco.learner.checkpoint import Raw
from decodiloco.learner.state import Checkpoint, State
from decodiloco.opening import Opening
from decodiloco.places import Places
from decodiloco.store.blobs import BlobStore
from streams.errors import AskedWrongly, Corrupt
from streams.events import RunOpened
from streams.parts import Moments, PassedOver

FINGERPRINT_LENGTH_MAX = 400
PASSED_OVER_MAX = 8  # checkpoints that may fail a joiner before it begins without moments
LEARNER_RULES = 1
"""Version of what moves a learner beside the tape: its clock, its adoptions and their order, the
built-in trainer. Under the same rules the same tape is trained again to the same bits."""


def as_config(config: Path | str | Config) -> Config:
    """The config itself, read from its file if a path was given."""
    return config if isinstance(config, Config) else load_config(config)


async def first_fact(places: Places) -> RunOpened | None:
    """The fact that opened this run; None on an empty tape."""
    records = await places.tape.read(0, 1)
    if not records:
        return None
    event = records[0].event
    if not isinstance(event, RunOpened):
        raise Corrupt(f"run {places.tape.run}: its tape begins with {event.kind}")
    return event


def read_opening(store: BlobStore, run: Run, opened: RunOpened | None) -> Opening:
    """The run's opening, if this config says what the run was opened with.

    Raises AskedWrongly for a run that is not open, ConfigDiffers naming the first setting that
    differs, BlobCorrupt for an opening of other settings than `opened` names.
    """
    if opened is None:
        raise AskedWrongly(
            f"run {run.name} is not open; open it with decodiloco.open_run or `decodiloco open`"
        )
    opening = stored_opening.read_opening(store, opened)
    difference = first_difference(run, opening.run)
    if difference is not None:
        raise ConfigDiffers(f"run {run.name}: {difference}")
    return opening


def read_model(model: nn.Module, opening: Opening) -> Trained:
    """The model's trained tensors. Raises LayoutDiffers when they are not those of the run."""
    ours = trained(model)
    difference = same_layout(ours.layout(opening.run), opening.layout)
    if difference is not None:
        raise LayoutDiffers(f"run {opening.run.name} was opened with another model: {difference}")
    return ours


def candidates(state: State) -> list[tuple[Checkpoint, Moments]]:
    """Checkpoints to take moments from, best first: our own, else others' of at most H run steps.

    Of others the newest comes first; of equally new ones the one with the first id.
    """
    own = state.checkpoints.get(state.learner)
    found: list[tuple[Checkpoint, Moments]] = []
    if own is not None:
        age_steps = max(0, state.step - own.step)
        found.append((own, Moments(source="own", age_steps=age_steps)))
    others = [state.checkpoints[name] for name in sorted(state.checkpoints)]
    for stored in sorted(others, key=lambda stored: -stored.step):
        age_steps = max(0, state.step - stored.step)
        if stored.learner != state.learner and age_steps <= state.opening.run.inner_steps:
            found.append((stored, Moments(source="borrowed", age_steps=age_steps)))
    return found


def take_moments(
    state: State,
    optimizer: torch.optim.Optimizer,
    model: Trained,
    read: Callable[[Checkpoint], Raw],
) -> Moments:
    """Puts the best moments there are into the optimizer; what its `LearnerJoined` says of them.

    A checkpoint that is missing, broken, withheld or of something else is passed over for the
    next best. After `PASSED_OVER_MAX` of them the moments are zero.
    """
    passed: list[PassedOver] = []
    for stored, found in candidates(state)[:PASSED_OVER_MAX]:
        why = _why_not(stored, read, optimizer, model, own=found.source == "own")
        if not why:
            return found.model_copy(update={"passed_over": tuple(passed)})
        one = PassedOver(learner=stored.learner, learner_step=stored.learner_step, reason=why[:200])
        passed.append(one)
    return Moments(source="zero", age_steps=0, passed_over=tuple(passed))


def _why_not(
    stored: Checkpoint,
    read: Callable[[Checkpoint], Raw],
    optimizer: torch.optim.Optimizer,
    model: Trained,
    own: bool,
) -> str:
    """Why these moments could not be put into the optimizer, which then is as it was; "" if not."""
    try:
        if checkpoint.restore(optimizer, model.tensors, read(stored), own):
            return ""
        return "moments of another kind of optimizer"
    except (BlobMissing, BlobCorrupt, StoreDenied) as error:
        return str(error)


def fingerprint(device: torch.device) -> str:
    """What a learner's own training is bit-reproducible within, as fields with commas between.

    Machine, system and versions; the processor, since libraries choose kernels and their blocking
    by its kind; the device trained on; the threads; and the rules by which a learner trains.
    """
    parts = (
        platform.machine(),
        platform.system(),
        f"python {platform.python_version()}",
        f"torch {torch.__version__}",
        f"cpu {torch.backends.cpu.get_cpu_capability()}",
        f"threads {torch.get_num_threads()}",
        f"processor {_processor()}",
        f"device {_device(device)}",
        f"rules {LEARNER_RULES}",
    )
    return ", ".join(part.replace(",", "")[:80] for part in parts)[:FINGERPRINT_LENGTH_MAX]


def _processor() -> str:
    """The processor's name as its maker gives it, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (named[0] if named else platform.processor()) or "unknown"


def _device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
