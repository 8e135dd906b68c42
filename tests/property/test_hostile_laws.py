"""Laws under attack: whatever a joined learner says, the syncer's machine goes on and adds up.

A liar speaks between the turns of an honest learner, with sound words that it bends at will.
Every fact that comes of it is checked as `replay verify` would check it, but for the bytes.
"""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from decodiloco.fragments.schedule import fragment_of
from decodiloco.syncer.drafting import Waited, from_timed
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.owed import CloseWindow, MergeFragment, OpenRound, owed
from decodiloco.syncer.snapshot import decode_state, encode_state, state_digest
from replay.facts_check import FactsCheck
from streams.codec import decode_envelope, decode_word, encode_envelope, encode_event
from streams.errors import Unreadable
from streams.events import Word
from tests.builders import adopted, closing, digest, evaluated, joined, left, left_out
from tests.desk import Desk

FRAGMENTS = 3
STEPS_MAX = 2**40  # of the sound words that are bent
ODD_INTEGERS = (-(2**63), -1, 0, 1, 2, 3, 4, 5, 8, 100, 399, 400, 401, 2**31, 2**53, 2**63 - 1)
ODD_FLOATS = (0.0, 5e-324, 1e-300, 0.5, 1e9, 1e300, 1.7e308, math.inf, math.nan)
INTEGERS = (
    "incarnation",
    "said",
    "seen",
    "round",
    "fragment",
    "base_version",
    "learner_step",
    "inner_steps",
    "tokens",
    "tokens_trained",
)
FLOATS = ("step_seconds", "upload_seconds", "loss")

odd_integers = st.sampled_from(ODD_INTEGERS)
odd_adoptions = st.builds(
    dict,
    fragment=st.sampled_from((0, 1, 2, 3, 2**40)),
    version=st.sampled_from((0, 1, 2, 3, 2**53)),
    learner_step=st.sampled_from((0, 1, 4, 8, 12, 2**53)),
    tokens_trained=st.sampled_from((0, 1, 400, 800, 1200, 2**53)),
    fetch_seconds=st.sampled_from(ODD_FLOATS),
)
odd_fields: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(INTEGERS, odd_integers),
        **{name: st.sampled_from(ODD_FLOATS) for name in FLOATS},
        "adopted": st.lists(odd_adoptions, max_size=3).map(tuple),
        "held": st.lists(odd_adoptions, max_size=3).map(tuple),
    },
)
few_odd_fields = st.one_of(
    st.just({}),
    *(st.fixed_dictionaries({name: odd_integers}) for name in INTEGERS),
    *(st.fixed_dictionaries({name: st.sampled_from(ODD_FLOATS)}) for name in FLOATS),
    st.fixed_dictionaries({"adopted": st.lists(odd_adoptions, max_size=3).map(tuple)}),
    st.fixed_dictionaries({"held": st.lists(odd_adoptions, max_size=3).map(tuple)}),
    st.fixed_dictionaries({"learner_step": odd_integers, "tokens_trained": odd_integers}),
    odd_fields,
)
turns = st.lists(
    st.tuples(
        st.sampled_from(("offer", "offer", "offer", "left", "joined", "evaluated", "honest")),
        few_odd_fields,
        st.booleans(),
    ),
    max_size=14,
)


class Attack:
    """A desk with an honest learner `a` and a liar `h`, which speaks as its fields say."""

    def __init__(self, carry: bool) -> None:
        self.desk = Desk(FRAGMENTS, learners_min=2, adoption={"carry": carry})
        self.desk.join("a"), self.desk.join("h")

    def speak(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "honest":
            return self.honest()
        word = self.word(kind, fields)
        if word is not None:
            self.desk.say(word)
        return None

    def honest(self) -> None:
        """Learner a answers what is open."""
        for number in sorted(self.desk.state.rounds):
            if self.desk.state.rounds[number].is_open:
                self.desk.say(self.offer("a", number))

    def offer(self, name: str, number: int) -> Any:
        """A sound offer: the newest version of its fragment is adopted, then four steps made."""
        desk, learner = self.desk, self.desk.state.learners[name]
        fragment, step = fragment_of(number, FRAGMENTS), desk.steps[name]
        newest = desk.state.versions[fragment]
        desk.train(name)
        if newest == learner.adopted[fragment]:
            return desk.offer(name, number)
        seen = adopted(fragment, newest, learner_step=step, tokens_trained=100 * step)
        return desk.offer(
            name, number, adopted=(seen,), base_version=newest, inner_steps=4, tokens=400
        )

    def word(self, kind: str, fields: dict[str, Any]) -> Word | None:
        """A sound word with odd fields; None where no model takes them."""
        desk, learner = self.desk, self.desk.state.learners["h"]
        if kind == "offer":
            rounds = sorted(desk.state.rounds) or [max(1, desk.state.next_round - 1)]
            desk.steps["h"] = min(desk.steps["h"], STEPS_MAX)
            sound: Any = self.offer("h", rounds[-1])
        elif kind == "left":
            desk.said["h"] += 1
            sound = left("h", incarnation=learner.incarnation, said=desk.said["h"],
                         learner_step=desk.steps["h"], tokens_trained=100 * desk.steps["h"],
                         reason="asked")  # fmt: skip
        elif kind == "joined":
            sound = joined("h", layout_digest=desk.opening.layout.digest,
                           nonce=encode_event(closing(said=desk.sequence))[-16:],
                           seen=desk.state.position,
                           versions=desk.state.versions, learner_step=learner.learner_step,
                           tokens_trained=learner.tokens_trained)  # fmt: skip
            desk.said["h"], desk.steps["h"] = 0, min(learner.learner_step, STEPS_MAX)
        else:
            sound = evaluated(said=desk.sequence + 1, versions=desk.state.versions,
                              step=desk.state.step, tokens=desk.state.tokens)  # fmt: skip
        return bent(sound, fields)

    def carry_out(self, is_sound: bool) -> None:
        """Everything that is owed now, but for the end: rounds, windows, merges."""
        desk = self.desk
        for ask in owed(desk.state):
            if isinstance(ask, (OpenRound, CloseWindow)):
                self.write_timed(ask)
            elif isinstance(ask, MergeFragment):
                offers = desk.state.rounds[ask.round].offers
                liars = [p for p in offers if desk.state.offers[p].learner == "h"]
                out = () if is_sound else tuple(left_out(p, "not finite: t000") for p in liars)
                if len(out) < len(offers):
                    desk.merge(ask.round, out)
                else:
                    desk.abandon(ask.round, out)

    def write_timed(self, ask: OpenRound | CloseWindow) -> None:
        draft = from_timed(ask, Waited(0.25, 0.5), "syncer-1")
        if draft.decide(self.desk.state) is not None:
            self.desk.put(draft)


def bent(word: Any, fields: dict[str, Any]) -> Any:
    """The word with these fields, as its bytes would be read; None if they are no word."""
    known = {name: value for name, value in fields.items() if name in type(word).model_fields}
    for name in known.keys() & {"adopted", "held"}:
        plain = [value for value in known[name] if math.isfinite(value["fetch_seconds"])]
        known[name] = tuple(adopted(**value) for value in plain)
    try:
        return decode_word(encode_event(word.model_copy(update=known)))
    except Unreadable:
        return None


@given(turns, st.booleans())
@settings(max_examples=400, deadline=None)
def test_no_word_stops_the_machine_or_breaks_the_proof(
    story: list[tuple[str, dict[str, Any], bool]], carry: bool
) -> None:
    attack = Attack(carry)
    for kind, fields, is_sound in story:
        attack.carry_out(is_sound)
        attack.speak(kind, fields)
        attack.honest()
        attack.carry_out(is_sound)
    desk = attack.desk
    for envelope in desk.tape:
        assert decode_envelope(encode_envelope(envelope)) == envelope
    again = decode_state(desk.opening, encode_state(desk.state))
    assert state_digest(again) == state_digest(desk.state)
    facts, state = FactsCheck(digest("merge v1")), begin(desk.opening)
    for envelope in desk.tape:
        facts.tell(state, envelope)
        state = fold(state, envelope)
    assert state == desk.state
    facts.fates(state)
