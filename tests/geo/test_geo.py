"""Hub and two regions on one machine: a region is cut off and heals, the hub's server restarts.

Prints what it measured; docs/explanation/reliability.md keeps a run of it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import aclosing
from itertools import pairwise

import pytest

from decodiloco.config import Run
from decodiloco.training.gpt import build
from replay import open_tape
from streams.envelope import Envelope
from streams.events import DeltaOffered, FragmentMerged, HardshipInjected, RoundOpened
from streams.inbox import Inbox
from streams.jetstream import Connection, connect
from tests.bench.lines import by_utilisation, gradients_reduced, ours, streamed
from tests.geo import net, store_cache
from tests.geo.cluster import LEARNERS, REGIONS, GeoCluster
from tests.geo.net import Counted

PHASES = 6
PHASE_SECONDS = 20.0
SETTLE_SECONDS = 4.0
CUT_SECONDS = 60.0
CALM_SECONDS = 15.0
BEGIN_SECONDS_MAX = 240.0
RATIO_MAX = 1.05
SHARE_MAX = 0.65  # of two learners one may skip a version, and each question has an answer
MERGE_SECONDS_MAX = 2.0  # from a window's end to the next round, on a machine that is busy

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
WHY_NOT = net.missing() or store_cache.missing()


class Steps:
    """The newest step of each learner, as its own region's server hears of it."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}

    async def listen(self, connection: Connection) -> None:
        async with aclosing(connection.pulse("geo").listen()) as beats:
            async for beat in beats:
                if beat.role == "learner":
                    self.now[beat.speaker] = int(beat.values["learner_step"])


async def say_on(inbox: Inbox, acknowledged: list[int], over: asyncio.Event) -> None:
    """Words for the region's inbox, one after another; the numbers of those that it has kept."""
    said = 0
    while not over.is_set():
        said += 1
        word = HardshipInjected(
            speaker="witness", life=1, said=said, hardship="none", target="nobody", seed=0
        )
        await inbox.say(word)
        acknowledged.append(said)
        await asyncio.sleep(0.5)


async def until_merges(connection: Connection, count: int) -> None:
    """Until the tape has so many merges."""
    async with (
        asyncio.timeout(BEGIN_SECONDS_MAX),
        aclosing(connection.tape("geo").follow(0)) as records,
    ):
        async for record in records:
            count -= isinstance(record.event, FragmentMerged)
            if count <= 0:
                return


class Told:
    """What the story leaves behind for the assertions."""

    ratios: list[float]
    counted: dict[str, tuple[Counted, Counted]]
    counted_seconds: tuple[float, float]
    cut_steps: dict[str, int]
    cut: tuple[float, float]
    restarted_seconds: float
    acknowledged: list[int]


async def story(cluster: GeoCluster) -> Told:
    told, steps = Told(), Steps()
    hub = await connect(cluster.hub.url, "geo-test")
    east, west = [await connect(cluster.region_url(each), "geo-test") for each in REGIONS]
    over, told.acknowledged = asyncio.Event(), []
    try:
        await until_merges(hub, 6)
        listening = [asyncio.create_task(steps.listen(each)) for each in (east, west)]
        saying = asyncio.create_task(say_on(east.inbox("geo", "east"), told.acknowledged, over))
        await phases(cluster, told, steps)
        for name in REGIONS:
            cluster.shape(name, True)
        before = dict(steps.now)
        begun_seconds = time.time()
        cluster.networks["east"].cut()
        await asyncio.sleep(CUT_SECONDS)
        after = dict(steps.now)
        cluster.networks["east"].heal()
        told.cut = begun_seconds, time.time()
        told.cut_steps = {each: after[each] - before[each] for each in LEARNERS["east"]}
        await asyncio.sleep(CALM_SECONDS)
        await asyncio.to_thread(cluster.hub.stop)
        cluster.hub.start()
        told.restarted_seconds = time.time()
        await asyncio.sleep(CALM_SECONDS)
        over.set()
        await saying
        for each in listening:
            each.cancel()
    finally:
        for connection in (hub, east, west):
            await connection.close()
    return told


async def phases(cluster: GeoCluster, told: Told, steps: Steps) -> None:
    """Now one line is long and narrow, now the other, so that both regions meet the same load.

    A ratio is the mean step across the long line over that across the short one.
    """
    told.ratios = []
    first = {name: cluster.networks[name].counted() for name in REGIONS}
    begun_seconds = time.time()
    for number in range(PHASES):
        shaped, plain = REGIONS if number % 2 == 0 else REGIONS[::-1]
        for name in REGIONS:
            cluster.shape(name, name == shaped)
        await asyncio.sleep(SETTLE_SECONDS)
        before = dict(steps.now)
        await asyncio.sleep(PHASE_SECONDS)
        made = {
            name: sum(steps.now[each] - before[each] for each in LEARNERS[name]) for name in REGIONS
        }
        told.ratios.append(made[plain] / made[shaped])
    told.counted_seconds = begun_seconds, time.time()
    told.counted = {name: (first[name], cluster.networks[name].counted()) for name in REGIONS}


def offers_of(tape: list[Envelope]) -> dict[str, list[tuple[float, DeltaOffered]]]:
    found: dict[str, list[tuple[float, DeltaOffered]]] = defaultdict(list)
    for record in tape:
        if isinstance(record.event, DeltaOffered):
            found[record.event.learner].append((record.time_seconds, record.event))
    return found


def longest_gap_seconds(tape: list[Envelope], begin: float, end: float) -> float:
    moments = [r.time_seconds for r in tape if isinstance(r.event, FragmentMerged)]
    inside = [begin, *(t for t in moments if begin <= t <= end), end]
    return max(later - earlier for earlier, later in pairwise(inside))


def window_seconds(tape: list[Envelope]) -> float:
    """The longest that rounds may lie apart: pace, grace, and the merge itself."""
    rounds = [r.event for r in tape if isinstance(r.event, RoundOpened)]
    pace = max(each.pace_seconds for each in rounds)
    return pace + max(each.grace_seconds_max for each in rounds) + MERGE_SECONDS_MAX


def print_links(tape: list[Envelope], told: Told, run: Run, parameters: int) -> None:
    """Bytes a learner-step across each link, against an all-reduce between the regions; then the
    Gbit/s that this model wants of a link, at the steps' pace in this test.
    """
    methods = [gradients_reduced(parameters)]
    methods += [streamed(parameters, bits, run.fragments, run.inner_steps) for bits in (16, 4)]
    begin, end = told.counted_seconds
    reduced = 2 * (len(REGIONS) - 1) / len(REGIONS) * 2 * parameters
    print(f"\n{parameters:,} parameters; all-reduce in bfloat16 between {len(REGIONS)} regions")
    print("region  direction  bytes/learner-step  all-reduce/learner-step  ratio  Mbit/s")
    for name in REGIONS:
        steps = 0
        for learner in LEARNERS[name]:
            seen = [o.learner_step for t, o in offers_of(tape)[learner] if begin <= t <= end]
            steps += seen[-1] - seen[0]
        first, last = told.counted[name]
        for direction in ("into", "out"):
            crossed = getattr(last, direction) - getattr(first, direction)
            each, other = crossed / steps, reduced / len(LEARNERS[name])
            rate = 8e-6 * crossed / (end - begin)
            print(
                f"{name}    {direction:9}  {each:18,.0f}  {other:23,.0f}  {other / each:5.1f}"
                f"  {rate:.1f}"
            )
            methods.append(ours(f"ours, {name}, {direction}", each * len(LEARNERS[name])))
    step_seconds = (end - begin) * len(LEARNERS[REGIONS[-1]]) / steps
    print(f"steps of {step_seconds:.3f} s")
    print("\n".join(by_utilisation(methods, step_seconds)))


def cached(cache: store_cache.StoreCache) -> tuple[int, int]:
    """Bytes of merged fragments that a region's learners were given, and that came for them."""
    asked = [each for each in cache.asked() if each.method == "GET" and "/global/" in each.path]
    return sum(each.body_bytes for each in asked), sum(each.store_bytes for each in asked)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeoCluster]:
    with GeoCluster(tmp_path_factory.mktemp("geo")) as made:
        yield made


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_a_region_that_is_cut_off_goes_on_and_loses_no_word(cluster: GeoCluster) -> None:
    told = asyncio.run(story(cluster))
    cluster.run("close", cluster.toml("hub"))
    for learner in (each for region in LEARNERS.values() for each in region):
        assert cluster.processes[learner].wait(120) == 0, cluster.log(learner)[-2000:]
    proof = cluster.verified()
    tape = list(open_tape(str(cluster.folder / "geo.tape")))
    run = cluster.config.run
    print_links(tape, told, run, sum(p.numel() for p in build(run.model).parameters()))
    shares = {}
    for name, cache in cluster.caches.items():
        given, came = cached(cache)
        shares[name] = came / given
        print(f"{name}: {given:,} bytes of fragments for its learners, {came:,} of them across "
              f"the link ({shares[name]:.3f})")  # fmt: skip

    ratio = statistics.geometric_mean(told.ratios)
    print(f"step time, shaped over plain: {ratio:.3f} of {[round(r, 3) for r in told.ratios]}")
    gap, window = longest_gap_seconds(tape, *told.cut), window_seconds(tape)
    print(f"cut {told.cut[1] - told.cut[0]:.0f} s: steps {told.cut_steps}; longest gap between "
          f"merges {gap:.2f} s, window {window:.2f} s")  # fmt: skip
    for learner in LEARNERS["east"]:
        for what, moment in (("heal", told.cut[1]), ("restart", told.restarted_seconds)):
            first = min(t for t, _ in offers_of(tape)[learner] if t > moment)
            print(f"{learner}: first word on the tape {first - moment:.1f} s after the {what}")
    print(f"verify: {proof['merges']} merges, {len(told.acknowledged)} words of the witness")

    assert proof["ok"]
    assert min(told.cut_steps.values()) > 10, "a region that is cut off must go on training"
    kept = [r.event.said for r in tape if isinstance(r.event, HardshipInjected)]
    assert kept == told.acknowledged, "every word that an inbox has kept is on the tape, once"
    newest: dict[int, int] = defaultdict(int)
    for record in tape:
        if isinstance(record.event, FragmentMerged):
            assert record.event.version == newest[record.event.fragment] + 1
            newest[record.event.fragment] += 1
    for offers in offers_of(tape).values():
        seen: dict[int, int] = defaultdict(int)
        for _, offer in offers:
            for each in offer.adopted:
                assert each.version > seen[each.fragment], "a version went back"
                seen[each.fragment] = each.version
    assert gap <= window, "the other region's merges must not wait for one that is cut off"
    assert max(shares.values()) <= SHARE_MAX, "of two learners' fragments one copy should cross"
    assert ratio <= RATIO_MAX
