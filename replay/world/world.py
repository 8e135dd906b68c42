"""A whole run in one process: learners, syncers, tape, inboxes and store on one heap of moments.

Two phases. While it is hard, anything may go wrong, and only the invariants must hold. Then all
is healed, and the run must go on, close and come to rest within a bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from decodiloco.errors import Disagreement, LifeEnded, Orphaned, Quarantined
from decodiloco.merge.fragment import Abandoned, Merged, MergeOrder
from decodiloco.merger.orders import Result
from decodiloco.opening import Opening
from decodiloco.syncer.machine import fold
from decodiloco.syncer.snapshot import state_digest
from decodiloco.syncer.state import State
from replay.errors import InvariantBroken
from replay.invariants import Invariants
from replay.invariants.of_state import SecondFold
from replay.invariants.of_the_end import FinishedWithTheModel
from replay.world.calls import WorldCalls
from replay.world.case import RUN, Case, LearnerCase, draw_case
from replay.world.hardships import Hardship, Hardships, draw_plan
from replay.world.heap import Heap
from replay.world.learner import LearnerProcess
from replay.world.merger import MergerProcess
from replay.world.network import Network, WorldPulse
from replay.world.places import QuietStore, WorldInbox, WorldStore, WorldTape
from replay.world.process import Process
from replay.world.residuals import ResidualsOnce
from replay.world.syncer import SyncerProcess
from replay.world.voices import Voices
from streams.codec import seal
from streams.envelope import Envelope, genesis
from streams.errors import ChainBroken, Failure
from streams.events import FragmentMerged

RESTART_SECONDS = 2.0
RECOVERY_SECONDS = 40.0  # a takeover that backs off, a restart, a word that is said again
CLOSING_SECONDS = 70.0  # and an orphan that comes back, to find the run closed
PASSES = 4  # healed, two passes over all fragments may take so many times a quiet pass
DAY_SECONDS = 1_700_000_000.0
FOLDS_KEPT = 512


@dataclass(slots=True)
class Told:
    """How a world ended. `broken` is None when every invariant held."""

    seed: int
    broken: InvariantBroken | None = None
    events: int = 0
    merges: int = 0
    seconds: float = 0.0
    tape_digest: bytes = b""
    branches: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    hardships: tuple[Hardship, ...] = ()


class World:
    """One seed's world. `run` plays it to its end; `tape` is then its record."""

    def __init__(
        self,
        seed: int,
        merges: int = 120,
        wanted: Callable[[Hardship], bool] = lambda _: True,
        second: Callable[[Opening], SecondFold] | None = None,
    ) -> None:
        self.run = RUN
        self.random = Random(f"world {seed}")
        self.branches: Counter[str] = Counter()
        self.heap = Heap()
        self.store = WorldStore(Random(f"store {seed}"), self.hit)
        self.case: Case = draw_case(seed, self.store, merges)
        self.invariants = Invariants(
            self.case.opening,
            QuietStore(self.store),
            self.store.spoiled.__contains__,
            None if second is None else second(self.case.opening),
        )
        self._residuals = ResidualsOnce()
        self.store.deleting = self._deleting
        self.beginning: State = self.invariants.state
        self.tape = WorldTape(self._observe)
        self.network = Network(self.heap, Random(f"network {seed}"), self.hit)
        self.pulse = WorldPulse(self.network, self.heap)
        self.calls = WorldCalls(self.network, self.heap, self.hit)
        self.inboxes = {
            region: WorldInbox(region, f"life-{region}") for region in self.case.opening.run.regions
        }
        self.voices = Voices(self)
        self.learners: dict[str, list[LearnerProcess]] = {}
        self.syncers: dict[str, SyncerProcess] = {}
        self.mergers: dict[str, MergerProcess] = {}
        self.finished: set[str] = set()
        case = self.case
        learners = (learner.id for learner in case.learners)
        self._everybody = (*case.syncers, *case.mergers, *learners)
        self.hardships = Hardships(self, draw_plan(self.case, wanted))
        self._folds: dict[bytes, tuple[State, State]] = {}
        self._lives = 0
        self._made: dict[tuple[int, int, tuple[int, ...]], bytes] = {}
        self._mergers_of: dict[MergeOrder, set[str]] = {}

    # The whole of it.

    def play(self) -> Told:
        """From the opening to the last farewell, or to the first invariant that breaks."""
        told = Told(self.case.seed, hardships=self.hardships.plan)
        try:
            self._play()
        except InvariantBroken as broken:
            told.broken = broken
        except Disagreement as error:
            name = FinishedWithTheModel.name
            told.broken = InvariantBroken(name, str(error), len(self.tape.records))
        except (Failure, AssertionError, LookupError, ValueError, TypeError) as error:
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            told.broken = InvariantBroken(
                self.invariants.stumbles.name, what, len(self.tape.records)
            )
            told.broken.__cause__ = error
        records = self.tape.records
        told.events = len(records)
        told.merges = sum(isinstance(e.event, FragmentMerged) for e in records)
        told.seconds = self.heap.now
        told.tape_digest = records[-1].digest if records else b""
        told.branches = self.branches
        told.checked = self.invariants.counts()
        told.checked[self._residuals.name] = self._residuals.checked
        return told

    def _play(self) -> None:
        opened = seal(1, genesis(RUN), 0, "opener", None, DAY_SECONDS, self.case.opened)
        self.tape.append([opened])
        for name in self.case.syncers:
            self.heap.later(self.random.random(), partial(self.start_syncer, name))
        for name in self.case.mergers:
            self.heap.later(self.random.random(), partial(self.start_merger, name))
        for learner in self.case.learners:
            self.heap.later(3 * self.random.random(), partial(self.start_learner, learner))
        self.hardships.begin()
        self.voices.begin()
        self.heap.run(self._is_at_rest, self.case.hard_seconds)
        self.hardships.heal()
        self._must_go_on()
        self._must_close()
        self.invariants.end(self.tape.attempted, self.tape.acknowledged)
        self.invariants.deletions.end(
            self.tape.records, self.case.opening, self.store.size, self.store.spoiled.__contains__
        )

    def _must_go_on(self) -> None:
        """Healed: every fragment gets two more versions, and the run all its merges, in a bound."""
        before, merges = self._versions(), self.case.merges

        def went_on() -> bool:
            state = self.invariants.state
            if state.closing is not None:
                return True
            if state.step < merges:
                return False
            return all(new >= old + 2 for old, new in zip(before, state.versions, strict=True))

        left = max(0, merges - self.invariants.state.step)
        quiet_seconds = self.case.pass_seconds + left * self.case.merge_every_seconds
        bound_seconds = RECOVERY_SECONDS + PASSES * quiet_seconds
        went = self.heap.run(went_on, bound_seconds)
        self.invariants.liveness.hold(
            went,
            f"healed for {bound_seconds:.0f} s, versions went from {before} to {self._versions()}",
            len(self.tape.records),
        )

    def _must_close(self) -> None:
        """Asked to close: the run is closed, and everybody has gone, within a bound."""
        self.voices.ask_to_close()
        bound_seconds = CLOSING_SECONDS + PASSES * self.case.pass_seconds
        closed = self.heap.run(self._is_at_rest, bound_seconds)
        there = [name for name in self._everybody if name not in self.finished]
        state = self.invariants.state
        self.invariants.liveness.hold(
            closed,
            f"{bound_seconds:.0f} s after it was asked, the run is "
            f"{'closed' if state.closed else 'not closed'}, still there: {' '.join(there)}",
            len(self.tape.records),
        )

    def _is_at_rest(self) -> bool:
        """The run is closed and nobody is there any more."""
        return len(self.finished) == len(self._everybody)

    def _versions(self) -> tuple[int, ...]:
        return self.invariants.state.versions

    # Processes begin and end.

    def start_syncer(self, name: str) -> None:
        """A syncer's process begins, unless one of this name runs or the run is over for it."""
        running = self.syncers.get(name)
        if name in self.finished or (running is not None and not running.is_dead):
            return
        process = SyncerProcess(self, name)
        self.syncers[name] = process
        process.run(process.start)

    def start_merger(self, name: str) -> None:
        """A merger's process begins, unless one of this name runs or the run is over for it."""
        running = self.mergers.get(name)
        if name in self.finished or (running is not None and not running.is_dead):
            return
        process = MergerProcess(self, name)
        self.mergers[name] = process
        process.run(process.start)

    def start_learner(self, case: LearnerCase, doubled: bool = False) -> None:
        """A life of a learner begins; `doubled` also while another one runs."""
        lives = [life for life in self.learners.get(case.id, []) if not life.is_dead]
        if case.id in self.finished or (lives and not doubled):
            return
        self._lives += 1
        process = LearnerProcess(self, case, self._lives)
        self.learners[case.id] = [*lives, process]
        process.run(process.start)

    def process_ended(self, process: Process, failure: Failure) -> None:
        """A process has ended by itself of a failure; whoever looks after it starts it again."""
        self.hit(f"a process ends of {type(failure).__name__}")
        if isinstance(failure, Disagreement | ChainBroken):
            raise failure
        if isinstance(process, MergerProcess) and self.finished.issuperset(self.case.syncers):
            assert isinstance(failure, Orphaned)
            self.merger_finished(process)  # nobody is left who could tell it
        elif isinstance(failure, Quarantined) or not isinstance(failure, LifeEnded):
            self.restart(process, RESTART_SECONDS)

    def restart(self, process: Process, seconds: float) -> None:
        """Starts a dead process's successor after a while."""
        if isinstance(process, SyncerProcess):
            name = process.name
            self.heap.later(seconds, lambda: self.start_syncer(name))
        elif isinstance(process, MergerProcess):
            merger = process.name
            self.heap.later(seconds, lambda: self.start_merger(merger))
        elif isinstance(process, LearnerProcess):
            case = process.case
            self.heap.later(seconds, lambda: self.start_learner(case))

    def learner_finished(self, process: LearnerProcess) -> None:
        """It has left; a learner that left early may be started again by whoever wants to."""
        leaving = process.state.leaving
        if leaving is None or leaving.reason == "finished":
            self.finished.add(process.case.id)
            self.heap.stir()
        else:
            self.hit("a learner leaves early")
            self.restart(process, 10.0 * RESTART_SECONDS)

    def syncer_finished(self, process: SyncerProcess) -> None:
        """For it the run is over."""
        process.kill()
        self.finished.add(process.name)
        self.heap.stir()

    def merger_finished(self, process: MergerProcess) -> None:
        """For it the run is over."""
        process.kill()
        self.finished.add(process.name)
        self.heap.stir()

    # What processes ask of the world.

    def hit(self, branch: str) -> None:
        """A branch that is rare was taken."""
        self.branches[branch] += 1

    def point(self, process: Process, name: str) -> None:
        """A process is at a point where it might be killed."""
        self.hardships.passes(process, name)

    def wall_seconds(self, machine: str) -> float:
        """The time of day on a machine, right or wrong."""
        return DAY_SECONDS + self.heap.now + self.hardships.clock_seconds.get(machine, 0.0)

    def sees_store(self, process: Process) -> bool:
        """Whether a read by this process would come back now."""
        return self.network.is_open(process.machine, "store", "to") and self.network.is_open(
            process.machine, "store", "from"
        )

    def fold(self, state: State, envelope: Envelope) -> State:
        """The production fold, as syncers do it: a merge's digest is that of their own state.

        Whoever asks about the very state that the invariants folded gets their answer. At a
        merge all others must have come to that state, too, and go on with it.
        """
        held = self._folds.get(envelope.digest)
        if held is not None and held[0] is state:
            return held[1]
        event = envelope.event
        if isinstance(event, FragmentMerged):
            same = event.state_digest == state_digest(state)
            told = "a syncer folds another state than the writer's"
            self.invariants.digest_of_the_state.hold(same, told, envelope.position)
            if held is not None:
                told = "a syncer's state is not the one that the facts give"
                self.invariants.digest_of_the_state.hold(held[0] == state, told, envelope.position)
                return held[1]
        return fold(state, envelope)

    def merged(self, order: MergeOrder, result: Merged | Abandoned) -> None:
        """A merge was carried out somewhere: the same order must have given the same bytes."""
        if isinstance(result, Abandoned):
            self.hit("a merge is abandoned")
            return
        key = (order.round, order.version, result.contributions)
        digest = result.parameters.manifest.digest + result.momentum.manifest.digest
        if key in self._made:
            self.hit("a merge is made twice")
            self.invariants.same_bytes.hold(
                self._made[key] == digest,
                f"round {order.round} merged twice gives other bytes",
                len(self.tape.records),
            )
        self._made[key] = digest

    def merger_merged(self, process: MergerProcess, order: MergeOrder, result: Result) -> None:
        """A merger has carried a merge out: what it made is stored."""
        self.hit("a merger merges")
        if self.invariants.state.versions[order.fragment] >= order.version:
            self.hit("a merger merges what is merged already")
        names = self._mergers_of.setdefault(order, set())
        if not isinstance(result, Abandoned) and names - {process.name}:
            self.hit("two mergers store the same")
        names.add(process.name)

    def _deleting(self, key: str) -> None:
        """A blob is about to go from the store."""
        self.invariants.deletions.look(self.tape.records, self.run, key)

    def _observe(self, envelope: Envelope) -> None:
        before = self.invariants.state
        self.heap.stir()
        self._residuals.tell(self.invariants.ledger, envelope)
        self.invariants.tell(envelope)
        self._folds[envelope.digest] = before, self.invariants.state
        while len(self._folds) > FOLDS_KEPT:
            del self._folds[next(iter(self._folds))]
