"""The production machine of the syncer without its clock: what is due is what is drawn.

Batches are composed, refused and composed again; merges end as the draw says; a takeover goes on
from a snapshot. Every fact is told to the plain count of the run, which must agree.
"""

from __future__ import annotations

from random import Random

from decodiloco.merge.fragment import Abandoned
from decodiloco.merge.order import StoredMerge
from decodiloco.opening import Opening
from decodiloco.syncer import drafting
from decodiloco.syncer.admission import Unreadable
from decodiloco.syncer.compose import Draft, Pen, compose
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.owed import (
    Ask,
    BeginClosing,
    CloseRun,
    CloseWindow,
    DeclareLost,
    MergeFragment,
    OpenRound,
    StoreSnapshot,
    owed,
)
from decodiloco.syncer.snapshot import decode_state, encode_state, state_digest
from decodiloco.syncer.state import State
from streams.codec import encode_event
from streams.envelope import Envelope, Source
from streams.events import FragmentMerged, Word, speaker_of
from streams.inbox import Letter
from streams.parts import LeftOut
from tests.builders import digest, manifest, opened, took_over
from tests.plain_run import PlainRun

TIMED = (OpenRound, CloseWindow, DeclareLost, BeginClosing)
REASONS = ("not finite: t000", "direction: cosine", "missing", "corrupt")


class WildSyncer:
    """One tape, and whoever leads."""

    def __init__(self, opening: Opening, random: Random) -> None:
        self.random = random
        self.state: State = begin(opening)
        self.tape: list[Envelope] = []
        self.plain = PlainRun(
            opening.layout.fragments,
            opening.run.merge.staleness_versions_max,
            opening.run.adoption.carry,
        )
        self.letters: dict[str, list[Letter]] = {region: [] for region in opening.run.regions}
        self.read = dict.fromkeys(opening.run.regions, 0)
        self.inbox_lives = dict.fromkeys(opening.run.regions, 1)
        self.jobs: dict[str, tuple[State, Ask]] = {}
        self.unreadable: list[str] = []
        self.loses_share = random.choice((0.001, 0.01, 0.1))  # of batches: somebody is lost
        first = opened(layout_digest=opening.layout.digest, config_digest=opening.run.digest)
        self.write([Draft(lambda _: first)], fence=0)
        self.take_over()

    def receive(self, region: str, word: Word) -> None:
        """A word reaches an inbox, and lies there."""
        source = Source(region, self._life_of(region), len(self.letters[region]) + 1)
        letter = Letter(source, speaker_of(word), word.kind, encode_event(word))
        self.letters[region].append(letter)

    def make_inbox_anew(self, region: str) -> None:
        """An inbox is lost with all letters; whoever follows it begins at its start."""
        self.letters[region].clear()
        self.inbox_lives[region] += 1
        self.read[region] = 0

    def happen(self) -> None:
        """One thing, drawn: letters and asks as a batch, or a job begins or ends."""
        draw = self.random.random()
        if draw < 0.6:
            drafts = self._drawn_letters() + self._drawn_asks(
                self.random.random() < self.loses_share
            )
            if self.random.random() < 0.1:
                compose(self.state, drafts, Pen("x", self.state.fence), 0.0)  # refused, made again
            self.write(drafts)
        elif draw < 0.8:
            self.begin_jobs()
        elif self.jobs:
            self.finish_job(self.random.choice(sorted(self.jobs)), self.random.random() < 0.2)

    def take_over(self) -> None:
        """Another syncer leads: from a snapshot, with no job and no letter in hand."""
        fence = self.state.fence + 1
        if self.state.fence:
            again = decode_state(self.state.opening, encode_state(self.state))
            assert again == self.state and state_digest(again) == state_digest(self.state)
            self.state = again
        self.jobs.clear()
        self.write([Draft(lambda _: took_over(f"syncer-{fence}", fence))], fence=fence)
        for region in self.read:
            life, sequence = self.state.inboxes.get(region, ("", 0))
            self.read[region] = sequence if life == self._life_of(region) else 0

    def write(self, drafts: list[Draft], fence: int | None = None) -> None:
        """One batch, folded as it is read back, and counted by the plain model."""
        fence = self.state.fence if fence is None else fence
        for envelope in compose(self.state, drafts, Pen(f"syncer-{fence}", fence), 0.0):
            if isinstance(envelope.event, FragmentMerged):
                assert envelope.event.state_digest == state_digest(self.state)
            self.state = fold(self.state, envelope)
            self.tape.append(envelope)
            self.plain.tell(envelope)
            assert self.state.versions == tuple(self.plain.versions)
        self.check()

    def check(self) -> None:
        """The state against the plain count."""
        for name, learner in self.state.learners.items():
            for fragment in range(len(self.state.fragments)):
                fates = learner.fates(fragment)
                assert sum(fates.values()) == learner.tokens_trained
                if self.random.random() < 0.1:
                    assert fates == self.plain.fates(name, fragment), (name, fragment)
        for position in self.state.offers:
            assert self.plain.ends[position] == ""

    def begin_jobs(self) -> None:
        """What takes long is begun, from the state as it stands now."""
        owes = {a.key: a for a in owed(self.state) if not isinstance(a, TIMED)}
        self.jobs = {key: job for key, job in self.jobs.items() if key in owes}
        for key, ask in owes.items():
            self.jobs.setdefault(key, (self.state, ask))

    def finish_job(self, key: str, harms: bool = False) -> None:
        """A merge, a snapshot or a closing digest is done."""
        state, ask = self.jobs.pop(key)
        if isinstance(ask, MergeFragment):
            self.write([self._merged(state, ask, harms)])
        elif isinstance(ask, StoreSnapshot):
            stored = manifest(f"snapshot {state.position}", codec="msgpack")
            self.write([drafting.from_snapshot(state.position, stored)])
        else:
            assert isinstance(ask, CloseRun)
            last = drafting.from_close(state.versions, digest("model"))
            self.write([drafting.while_owed(ask, last)])

    def settle(self, alive: set[str]) -> None:
        """Everything that lies there is heard, everything owed is done."""
        for region, letters in self.letters.items():
            while self.read[region] < len(letters):
                self.write(self._letters(region, 50))
        for _ in range(4 * len(self.state.fragments)):
            self.write(self._drawn_asks(False, alive))
            self.begin_jobs()
            for key in sorted(self.jobs):
                self.finish_job(key)

    def _life_of(self, region: str) -> str:
        return f"life {self.inbox_lives[region]} of {region}"

    def _letters(self, region: str, count: int) -> list[Draft]:
        first = self.read[region]
        taken = self.letters[region][first : first + count]
        self.read[region] += len(taken)
        return [drafting.from_letter(letter, self._complain) for letter in taken]

    def _drawn_letters(self) -> list[Draft]:
        drafts: list[Draft] = []
        for region in self.letters:
            drafts += self._letters(region, self.random.randint(0, 4))
        return drafts

    def _drawn_asks(self, loses: bool, alive: set[str] | None = None) -> list[Draft]:
        """What is due. Of the silent, none or anybody is declared lost."""
        due: list[Draft] = []
        for ask in owed(self.state):
            if isinstance(ask, DeclareLost) and ask.reason == "silent":
                due_now = loses and self.random.random() < 0.5
                if alive is not None:
                    due_now = ask.learner not in alive
            else:
                due_now = alive is not None or self.random.random() < 0.5
            if isinstance(ask, TIMED) and due_now:
                due.append(drafting.from_timed(ask, drafting.Waited(1.0, 2.0), "syncer-x"))
        return due

    def _merged(self, state: State, ask: MergeFragment, harms: bool) -> Draft:
        offers = state.rounds[ask.round].offers
        bad = [p for p in offers if harms and self.random.random() < 0.6]
        out = tuple(LeftOut(position=p, reason=self.random.choice(REASONS)) for p in bad)
        kept = tuple(p for p in offers if p not in bad)
        if len(kept) < state.config.quorum:
            return drafting.from_merge(ask, Abandoned(out), 0.1)
        blob = manifest(f"round {ask.round} {kept}")
        doubted = tuple(p for p in kept if harms and self.random.random() < 0.3)
        made = StoredMerge(kept, out, blob, blob, blob, 0.0, doubted)
        return drafting.from_merge(ask, made, 0.1)

    def _complain(self, letter: Letter, verdict: Unreadable) -> None:
        self.unreadable.append(verdict.reason)
