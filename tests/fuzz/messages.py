"""Words through decode and admission, and onto the tape where they are admitted; heartbeats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from decodiloco.fragments.schedule import fragment_of
from decodiloco.local.story import Lane, Story
from decodiloco.status_view import followed, lines_of, report_of
from decodiloco.syncer.admission import Admitted, Ignored, Unreadable, admit
from decodiloco.syncer.compose import Pen, compose
from decodiloco.syncer.drafting import from_letter
from decodiloco.syncer.leadership import Heartbeats
from decodiloco.syncer.machine import fold
from decodiloco.syncer.owed import owed
from decodiloco.syncer.state import State
from streams.codec import decode_envelope, encode_envelope, encode_event, unpack
from streams.envelope import Source
from streams.errors import Failure
from streams.events import WORDS, DeltaRefused, MessageRefused, Word, speaker_of
from streams.inbox import Letter
from streams.pulse import ROLES, Beat, decode_beat, encode_beat
from tests.builders import (
    adopted,
    checkpointed,
    closing,
    digest,
    evaluated,
    joined,
    left,
    one_of_each,
)
from tests.desk import Desk
from tests.fuzz.bending import TEXTS, Bender, as_msgpack

ENOUGH_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Sound:
    """A state, and a word that it would admit."""

    state: State
    word: Word
    payload: bytes


class Words:
    """Anything at all in an inbox. Whatever it is, the state that comes of it can go on."""

    name = "words"
    allowed: tuple[type[Failure], ...] = ()

    def __init__(self) -> None:
        self._sound = sound_words()

    def read(self, bender: Bender) -> str:
        sound = bender.chance.choice(self._sound)
        speaker, kind = speaker_of(sound.word), sound.word.kind
        letter = Letter(
            Source("home", "life", 10_000 + bender.chance.randrange(9)),
            speaker if bender.chance.random() < 0.97 else bender.chance.choice(TEXTS),
            kind if bender.chance.random() < 0.97 else bender.chance.choice(TEXTS),
            bent(bender, sound.payload),
        )
        return judged(sound.state, letter)


def judged(state: State, letter: Letter) -> str:
    """What became of a letter; fails where it leaves something that cannot go on."""
    verdict = admit(state, letter)
    match verdict:
        case Ignored():
            return f"ignored: {verdict.reason}"
        case Unreadable():
            MessageRefused(source=verdict.subject, reason=verdict.reason, count=1)
            assert verdict.reason.isprintable(), verdict.reason
            return f"unreadable: {_kind_of(verdict.reason)}"
        case Admitted(event=event):
            (envelope,) = compose(state, [from_letter(letter, _never)], Pen("syncer-1", 1), 1.0)
            assert repr(decode_envelope(encode_envelope(envelope))) == repr(envelope)
            after = fold(state, envelope)
            owed(after)
            assert isinstance(admit(after, letter), Ignored)
            if isinstance(event, DeltaRefused):  # a life that is over may be told so again
                return f"refused: {re.split('[: ]', event.reason)[0]}"
            assert not isinstance(admit(after, _again(letter)), Admitted), "admitted twice"
            return f"admitted: {event.kind}"


def _again(letter: Letter) -> Letter:
    """The same word, said once more."""
    source = replace(letter.source, sequence=letter.source.sequence + 1)
    return replace(letter, source=source)


def _never(letter: Letter, verdict: Unreadable) -> None:
    raise AssertionError(f"{letter} was admitted, and then {verdict}")


def _kind_of(reason: str) -> str:
    """The reason without what the message itself put into it."""
    for known in ("nothing that can be said", "this build reads", "joins region", "not msgpack"):
        if known in reason:
            return known
    return re.split("[:;]", re.sub("[0-9]+ ", "", reason))[0]


def bent(bender: Bender, payload: bytes) -> bytes:
    """Bent as values, as bytes, or as both."""
    way = bender.chance.random()
    if way < 0.9:
        payload = as_msgpack(bender.tree(unpack(payload, ENOUGH_BYTES)))
    if way > 0.85:
        payload = bender.bytes(payload)
    return payload


class Beats:
    """Anything at all as a heartbeat, shown to all who listen to heartbeats."""

    name = "beats"
    allowed: tuple[type[Failure], ...] = ()

    def __init__(self) -> None:
        self._desk = desks()[-1]

    def read(self, bender: Bender) -> str:
        desk = self._desk
        values = {"learner_step": 4, "tokens_trained": 400, "step_seconds": 0.5, "loss": 3.25,
                  "waiting": "", "fence": 1, "leading": 1, "position": 9}  # fmt: skip
        role = bender.chance.choice((*ROLES, "learner", "syncer", "stranger"))
        speaker = "a" if bender.chance.random() < 0.9 else bender.chance.choice(TEXTS)
        payload = bent(bender, encode_beat(Beat("learner", "a", values)))
        beat = decode_beat(role, speaker, payload)
        if beat is None:
            return "no beat"
        hearts = Heartbeats("syncer-1", desk.opening.run.times, lambda: 1.0)
        hearts.take(beat)
        hearts.leader_silent_seconds(desk.state)
        story = Story(lanes={"a": Lane("a", 3), "b": Lane("b", 4)})
        story.feel(beat, 1.0)
        assert all(lane.tokens_per_second >= 0 for lane in story.lanes.values())
        view = followed(desk.opening)
        for envelope in desk.tape:
            view.hear(envelope)
        told = "\n".join(lines_of(report_of(view, {f"{beat.role}/{beat.speaker}": beat}, 1.0)))
        assert told.replace("\n", "").isprintable(), told
        return f"a beat of a {beat.role}"


@cache
def desks() -> tuple[Desk, ...]:
    """Runs at several moments of their lives; the last one has learners that are well."""
    return tuple(_desk(stage, carry) for stage in range(7) for carry in (False, True))


def _desk(stage: int, carry: bool) -> Desk:
    """One more thing has happened at each stage: joined, open, merging, merged, closing, over."""
    desk = Desk(fragments=3, learners_min=2, adoption={"carry": carry},
                merge={"staleness_versions_max": 4}, regions=("home", "far"))  # fmt: skip
    if stage >= 1:
        desk.join("a"), desk.join("b"), desk.join("c")
        desk.open_round()
    if stage >= 2:
        desk.answer("a", 1), desk.answer("b", 1)
        desk.close_window(1)
    if stage >= 3:
        desk.merge(1)
        for number in (2, 3):
            desk.open_round()
            desk.answer("a", number)
            desk.close_window(number), desk.merge(number)
        desk.open_round()
        desk.say(checkpointed("b", incarnation=desk.state.learners["b"].incarnation, said=9,
                              learner_step=4, step=1))  # fmt: skip
    if stage >= 4:
        desk.say(left("c", incarnation=desk.state.learners["c"].incarnation, said=1,
                      reason="asked", learner_step=0, tokens_trained=0))  # fmt: skip
        desk.join("a", seen=desk.state.position)
        desk.train("a")
    if stage >= 5:
        desk.say(closing())
    if stage >= 6:
        desk.say(evaluated(said=1, versions=desk.state.versions, step=desk.state.step,
                           tokens=desk.state.tokens))  # fmt: skip
    return desk


@cache
def sound_words() -> tuple[Sound, ...]:
    """Words of every kind, for each of the runs."""
    return tuple(
        Sound(desk.state, word, encode_event(word)) for desk in desks() for word in _words(desk)
    )


def _words(desk: Desk) -> Iterator[Word]:
    state = desk.state
    known = {"layout_digest": desk.opening.layout.digest, "seen": state.position,
             "versions": state.versions}  # fmt: skip
    for name in ("a", "d"):
        yield joined(name, nonce=digest(f"new {name}")[:16], **known)
    at = {"step": state.step, "versions": state.versions, "tokens": state.tokens}
    yield evaluated(said=2, **at)
    yield from (word for word in one_of_each() if isinstance(word, WORDS))
    yield closing(said=4)
    for name in sorted(state.learners):
        learner = state.learners[name]
        step = max(desk.steps[name], learner.learner_step)
        life = {"incarnation": learner.incarnation, "said": learner.said + 1}
        yield checkpointed(name, **life, learner_step=step, step=state.step)
        yield left(name, **life, reason="asked", learner_step=step, tokens_trained=100 * step)
        for number in sorted(state.rounds):
            fragment, newest = fragment_of(number, 3), state.versions[fragment_of(number, 3)]
            desk.train(name)
            yield desk.offer(name, number)
            seen = adopted(fragment, newest, learner_step=step, tokens_trained=100 * step)
            yield desk.offer(name, number, base_version=newest, adopted=(seen,), held=(seen,),
                             inner_steps=4, tokens=400)  # fmt: skip
