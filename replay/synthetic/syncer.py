"""The syncer of a synthetic run: the production machine with a clock, one fact after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decodiloco.merge.order import StoredMerge
from decodiloco.merge.self_test import self_test
from decodiloco.syncer.admission import Unreadable
from decodiloco.syncer.compose import Draft, Pen, compose
from decodiloco.syncer.drafting import (
    Waited,
    from_close,
    from_letter,
    from_merge,
    from_refusals,
    from_timed,
)
from decodiloco.syncer.machine import fold
from decodiloco.syncer.owed import (
    BeginClosing,
    CloseRun,
    CloseWindow,
    DeclareLost,
    MergeFragment,
    OpenRound,
    owed,
)
from decodiloco.syncer.state import RULES, State
from replay.synthetic.mark import FINGERPRINT, NAME
from streams.codec import encode_event, seal
from streams.envelope import Source, genesis
from streams.events import RunOpened, SyncerTookOver, Word, speaker_of
from streams.inbox import Letter

if TYPE_CHECKING:
    from replay.synthetic.world import World

BEGIN_SECONDS = 1_700_000_000.0  # Unix time of the first fact, for people
SOON = 1e-9


class Syncer:
    """Admits what it hears, and carries out what its state owes when that is due.

    Snapshots are not stored: nobody takes over, and their bytes would have to be made.
    """

    def __init__(self, world: World, beginning: State, opened: RunOpened) -> None:
        self.world, self.state = world, beginning
        self._folded_at: dict[int, float] = {}
        self._merging: set[str] = set()
        self._wakes: set[float] = set()
        self._sequences: dict[str, int] = {}
        first = seal(1, genesis(opened.run), 0, "opener", None, BEGIN_SECONDS, opened)
        self.state = fold(self.state, first)
        world.tape.append(first)
        took_over = SyncerTookOver(
            syncer=NAME, fence=1, rules=RULES, self_test=self_test(), fingerprint=FINGERPRINT
        )
        self.write(Draft(lambda _: took_over))

    def receive(self, word: Word, region: str) -> None:
        """A word lies in an inbox."""
        self._sequences[region] = self._sequences.get(region, 0) + 1
        source = Source(region, NAME, self._sequences[region])
        letter = Letter(source, speaker_of(word), word.kind, encode_event(word))
        self.write(from_letter(letter, self._not_understood))

    def lost(self, learner: str) -> None:
        """Nobody heard this learner's heart for long enough, unless it beats again."""
        for ask in owed(self.state):
            if isinstance(ask, DeclareLost) and ask.learner == learner:
                if not self.world.is_alive(learner, ask.incarnation):
                    silent = Waited(waited_seconds=self.world.run.times.lost_seconds)
                    self.write(from_timed(ask, silent, NAME))
                return

    def write(self, draft: Draft) -> None:
        """Puts what a draft becomes on the tape, and looks what is owed then."""
        now = self.world.heap.now
        batch = compose(self.state, [draft], Pen(NAME, 1), BEGIN_SECONDS + now)
        for envelope in batch:
            self.state = fold(self.state, envelope)
            self._folded_at[envelope.position] = now
            self.world.written(envelope)
        if batch:
            self._look()

    def _look(self) -> None:
        """Carries out the first that is due, which looks again; the rest waits for its moment."""
        for ask in owed(self.state):
            match ask:
                case MergeFragment():
                    self._merge(ask)
                case OpenRound() | CloseWindow() | BeginClosing():
                    if self._is_due(ask.since, ask.after_seconds):
                        self.write(from_timed(ask, self._waited(ask), NAME))
                        return
                case CloseRun():
                    if self._is_due(ask.since, ask.after_seconds):
                        digest = self.world.naming.digest("model")
                        self.write(from_close(self.state.versions, digest))
                        return
                case _:
                    pass  # the lost are declared by those who miss them; snapshots are not stored

    def _is_due(self, since: int, after_seconds: float) -> bool:
        now = self.world.heap.now
        moment = self._folded_at.get(since, 0.0) + after_seconds
        if moment - now <= SOON:
            return True
        if moment not in self._wakes:
            self._wakes.add(moment)
            self.world.heap.later(moment - now, lambda: self._wake(moment))
        return False

    def _wake(self, moment: float) -> None:
        self._wakes.discard(moment)
        self._look()

    def _waited(self, ask: OpenRound | CloseWindow | BeginClosing) -> Waited:
        if not isinstance(ask, CloseWindow):
            return Waited()
        since = self._folded_at[ask.since]
        return Waited(self._folded_at[ask.quorum_at] - since, self.world.heap.now - since)

    def _merge(self, ask: MergeFragment) -> None:
        if ask.key in self._merging:
            return
        self._merging.add(ask.key)
        seconds = self.world.cluster.merge_seconds
        self.world.heap.later(seconds, lambda: self._merged(ask))

    def _merged(self, ask: MergeFragment) -> None:
        round_ = self.state.rounds[ask.round]
        made = [
            self.world.naming.merged(round_.number, round_.fragment, round_.version, kind).manifest
            for kind in ("parameters", "momentum", "report")
        ]
        merged = StoredMerge(round_.offers, (), made[0], made[1], made[2], 0.0, ())
        self.write(from_merge(ask, merged, self.world.cluster.merge_seconds))

    def _not_understood(self, letter: Letter, verdict: Unreadable) -> None:
        """A newcomer's word that comes just after the end is counted; nothing else can happen."""
        assert self.state.closed is not None, f"a sound learner says {verdict.reason}"
        refusal = from_refusals(letter, verdict.reason, 1, verdict.subject)
        self.world.heap.later(0.0, lambda: self.write(refusal))
