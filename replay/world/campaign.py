"""Many worlds, on all cores; a failing one shrunk to the hardships that it needs.

Told outcomes are plain values, so that they pass between processes. A seed's world is the same
in whatever process it is played.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from blake3 import blake3

from decodiloco.store.open_store import open_store
from replay.progress import Tell
from replay.tape_file import Header
from replay.tape_writer import open_writer
from replay.world.branches import missed
from replay.world.plan import Hardship
from replay.world.world import Told, World

MERGES = 200
SHRINK_TRIES_MAX = 80
SHRUNK_MAX = 3  # failing seeds of a campaign that are shrunk: the first ones
NONE = "none"


@dataclass(frozen=True, slots=True)
class Failed:
    """A seed whose run broke an invariant: how, and with how few hardships it still does.

    `hardships` None: all that the seed draws.
    """

    seed: int
    invariant: str
    what: str
    hardships: tuple[str, ...] | None
    folder: str

    @property
    def command(self) -> str:
        """What plays just this again."""
        alone = f"replay simulate --seed {self.seed}"
        if self.hardships is None:
            return alone
        return f"{alone} --hardships {','.join(self.hardships) or NONE}"


@dataclass(slots=True)
class Campaign:
    """What came of many seeds."""

    seeds: int = 0
    events: int = 0
    merges: int = 0
    merges_min: int | None = None
    failed: list[Failed] = field(default_factory=list)
    branches: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    missed: tuple[str, ...] = ()
    tape_digest: bytes = b""

    @property
    def ok(self) -> bool:
        """Nothing broke, and every rare branch was taken that had to be."""
        return not self.failed and not self.missed


def play(seed: int, wanted: Sequence[str] | None = None, merges: int = MERGES) -> World:
    """The world of a seed, played, with all of its hardships or only those that are named."""
    names = None if wanted is None else tuple(wanted)

    def is_wanted(hardship: Hardship) -> bool:
        return names is None or hardship.kind in names or hardship.name in names

    return World(seed, merges, is_wanted)


def told_of(seed: int, wanted: Sequence[str] | None = None, merges: int = MERGES) -> Told:
    """How a seed's world ends."""
    return play(seed, wanted, merges).play()


def run_campaign(
    seeds: range, wanted: Sequence[str] | None, folder: Path, processes: int, tell: Tell
) -> Campaign:
    """Plays all seeds, in so many processes, and shrinks the first that fail.

    The branches that must be taken are asked for only where all hardships may strike.
    """
    campaign = Campaign()
    hasher = blake3()
    for told in _played(seeds, wanted, processes):
        campaign.seeds += 1
        campaign.events += told.events
        campaign.merges += told.merges
        fewest = campaign.merges_min
        campaign.merges_min = told.merges if fewest is None else min(fewest, told.merges)
        campaign.branches.update(told.branches)
        campaign.checked.update(told.checked)
        hasher.update(told.tape_digest)
        if told.broken is not None:
            campaign.failed.append(_failed(told, wanted, folder, len(campaign.failed)))
        tell(campaign.seeds, len(seeds))
    campaign.tape_digest = hasher.digest()
    if wanted is None:
        campaign.missed = missed(campaign.branches, len(seeds))
    return campaign


def _played(seeds: range, wanted: Sequence[str] | None, processes: int) -> Iterable[Told]:
    """Outcomes in the order of the seeds."""
    if processes == 1 or len(seeds) == 1:
        yield from (told_of(seed, wanted) for seed in seeds)
        return
    pool = ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=collect_seldom
    )
    try:
        yield from pool.map(partial(told_of, wanted=wanted), seeds, chunksize=2)
    finally:
        pool.shutdown(cancel_futures=True)


def collect_seldom() -> None:
    """A world makes few circles and many objects: looking for them takes 6 to 9 % of its time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _failed(told: Told, wanted: Sequence[str] | None, folder: Path, before: int) -> Failed:
    assert told.broken is not None
    invariant = told.broken.invariant
    names = None if wanted is None else tuple(wanted)
    if before < SHRUNK_MAX:
        names = shrink(told, lambda kept: _breaks(told.seed, kept, invariant))
    world = play(told.seed, names)
    again = world.play()
    place = keep(world, folder / f"seed-{told.seed}")
    broken = again.broken or told.broken
    return Failed(told.seed, broken.invariant, str(broken), names, str(place))


def _breaks(seed: int, names: Sequence[str], invariant: str) -> bool:
    broken = told_of(seed, names).broken
    return broken is not None and broken.invariant == invariant


def shrink(told: Told, breaks: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """Fewer hardships with which the same invariant still breaks: halves first, then one by one."""
    kept = [hardship.name for hardship in told.hardships]
    tries = 0
    size = len(kept)
    while size >= 1 and tries < SHRINK_TRIES_MAX:
        size = max(1, size // 2) if size > 1 else 0
        start = 0
        while size and start < len(kept) and tries < SHRINK_TRIES_MAX:
            without = [*kept[:start], *kept[start + size :]]
            tries += 1
            if breaks(without):
                kept = without
            else:
                start += size
    return tuple(kept)


def keep(world: World, folder: Path) -> Path:
    """A world's record as a folder that `replay` reads: its tape, sealed, and its blobs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "store").mkdir(exist_ok=True)
    store = open_store((folder / "store").resolve().as_uri())
    try:
        for key, blob in world.store.blobs.items():
            store.put(key, [blob])
    finally:
        store.close()
    path = folder / "run.tape"
    path.unlink(missing_ok=True)
    writer = open_writer(path, Header(world.run, store.url))
    writer.append(world.tape.records)
    writer.seal()
    return folder
