"""Faults in what is said, admitted, counted and adopted. See `planted_bugs`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from decodiloco.learner import owed as learner_owed
from decodiloco.learner import telling
from decodiloco.learner.state import Copy
from decodiloco.syncer import (
    admission,
    drafting,
    machine,
    offer_gates,
)
from decodiloco.syncer.state import State
from replay.world import reign, syncer
from tests.simulation.planting import Bug, Change

# The gates that look at what a learner counts.
COUNTING = ("_counters", "_adopted", "_held", "_disjoint")


def _without_gate(name: str) -> Callable[[], list[Change]]:
    def changes() -> list[Change]:
        left = tuple(gate for gate in offer_gates.GATES if gate.__name__ != name)
        assert len(left) == len(offer_gates.GATES) - 1
        return [(offer_gates, "GATES", left)]

    return changes


def _cursor_before_append() -> list[Change]:
    right = machine._heard

    def wrong(state: State, source: Any) -> State:
        return right(state, replace(source, sequence=source.sequence + 1))

    return [(machine, "_heard", wrong)]


def _cursor_back_at_takeover() -> list[Change]:
    right = syncer.decode_state

    def wrong(opening: Any, payload: bytes) -> State:
        state = right(opening, payload)
        return replace(state, inboxes={}, learners=_unsaid(state))

    return [(syncer, "decode_state", wrong)]


def _unsaid(state: State) -> dict[str, Any]:
    return {name: replace(one, said=0) for name, one in state.learners.items()}


def _words_again() -> list[Change]:
    right = admission._judge

    def wrong(state: State, word: Any, letter: Any, subject: str) -> Any:
        name = getattr(word, "learner", None)
        if name in state.learners and word.kind == "delta_offered":
            return admission._offer(state, state.learners[name], word)
        return right(state, word, letter, subject)

    return [(admission, "_judge", wrong)]


def _any_life_speaks() -> list[Change]:
    right = admission._judge

    def wrong(state: State, word: Any, letter: Any, subject: str) -> Any:
        known = state.learners.get(getattr(word, "learner", ""))
        if word.kind == "checkpoint_stored" and known is not None:
            return admission.Admitted(word)
        return right(state, word, letter, subject)

    return [(admission, "_judge", wrong)]


def _adoptions_untold() -> list[Change]:
    from decodiloco.learner import outbox

    return [(outbox, "_tellable", lambda state, draft, fragment: ())]


def _slot_of_another() -> list[Change]:
    right = admission._join

    def wrong(state: State, word: Any, letter: Any, subject: str) -> Any:
        made = right(state, word, letter, subject)
        if isinstance(made, admission.Admitted):
            return admission.Admitted(made.event.model_copy(update={"slot": 0}))
        return made

    return [(admission, "_join", wrong)]


def _life_begins_at_zero() -> list[Change]:
    right = admission._join

    def wrong(state: State, word: Any, letter: Any, subject: str) -> Any:
        made = right(state, word, letter, subject)
        if isinstance(made, admission.Admitted):
            zero = {"learner_step": 0, "tokens_trained": 0}
            return admission.Admitted(made.event.model_copy(update=zero))
        return made

    return [(admission, "_join", wrong)]


def _strange_letter_stops() -> list[Change]:
    right = admission.decode_word

    def wrong(payload: bytes) -> Any:
        if not payload:
            raise ValueError("an empty letter")
        return right(payload)

    return [(admission, "decode_word", wrong)]


def _takes_letters_from_the_end() -> list[Change]:
    right = reign.Delivery

    def wrong(network: Any, process: Any, shelf: Any, after: int, take: Any) -> Any:
        return right(network, process, shelf, len(shelf.items) + 10**6, take)

    return [(reign, "Delivery", wrong)]


def _a_token_too_many() -> list[Change]:
    tokens = property(lambda self: self.tokens_trained - self.base.tokens_trained + 1)
    left = tuple(gate for gate in offer_gates.GATES if gate.__name__ not in COUNTING)
    return [(Copy, "tokens", tokens), (offer_gates, "GATES", left)]


def _cursor_stays() -> list[Change]:
    right = admission.admit

    def wrong(state: State, letter: Any) -> Any:
        return right(replace(state, inboxes={}, learners=_unsaid(state)), letter)

    return [(machine, "_heard", lambda state, source: state.inboxes), (drafting, "admit", wrong)]


def _merged_work_again() -> list[Change]:
    gate = _without_gate("_disjoint")()
    return [*gate, (learner_owed, "_is_free", lambda *_: True), *_never_taken()]


def _never_taken() -> list[Change]:
    from decodiloco.learner import machine as learner_machine

    return [(learner_machine, "_is_taken", lambda *_: False)]


def _adopts_backwards() -> list[Change]:
    right = telling._adopted

    def wrong(state: Any, happening: Any) -> Any:
        made = right(state, happening)
        stale = tuple(
            each.model_copy(update={"version": 0 if each.version == 2 else each.version})
            for each in made.adoptions
        )
        return replace(made, adoptions=stale)

    gates_left = [
        (offer_gates, "adoption_fault", lambda *_: None),
        *_without_gate("_base")(),
    ]
    return [(telling, "_adopted", wrong), *gates_left]


def _data_from_the_start() -> list[Change]:
    right = admission._join

    def wrong(*arguments: Any) -> Any:
        verdict = right(*arguments)
        if not isinstance(verdict, admission.Admitted):
            return verdict
        return admission.Admitted(verdict.event.model_copy(update={"cursor": b""}))

    return [(admission, "_join", wrong)]


BUGS: dict[str, Bug] = {
    "no overlap gate": Bug(
        "Learners offer merged work again, and it is admitted.", "steps once", _merged_work_again
    ),
    "cursor before append": Bug(
        "The inbox cursor goes to the next letter before that one's fact is on the tape.",
        "digest of the state", _cursor_before_append,
    ),
    "cursor back at takeover": Bug(
        "A syncer that begins from a snapshot reads its inboxes from the start.",
        "digest of the state", _cursor_back_at_takeover, 12,
    ),
    "words again": Bug(
        "An offer that stands on the tape already is judged again.", "words once", _words_again, 6
    ),
    "any life speaks": Bug(
        "A checkpoint said by an older life is admitted.", "own words", _any_life_speaks, 30
    ),
    "staleness unchecked": Bug(
        "An offer may be any number of versions behind.", "base is real",
        _without_gate("_fresh"), 6,
    ),
    "adoptions untold": Bug(
        "Learners never tell what they adopted.", "goes on", _adoptions_untold, 6
    ),
    "slot of another": Bug(
        "Every learner gets the first data shard.", "lives in order", _slot_of_another
    ),
    "life begins at zero": Bug(
        "A learner that comes back counts from zero.", "lives in order", _life_begins_at_zero, 30
    ),
    "a token too many": Bug(
        "Learners offer one token more than they trained, and nobody counts.", "counters grow",
        _a_token_too_many,
    ),
    "cursor stays": Bug(
        "The state forgets which letters and words it has read.", "letters once", _cursor_stays,
        12, 1, False,
    ),
    "strange letter stops": Bug(
        "An empty letter stops the syncer that reads it.", "no machine stumbles",
        _strange_letter_stops, 30,
    ),
    "letters from the end": Bug(
        "A new leader skips the letters that lie in the inboxes.", "goes on",
        _takes_letters_from_the_end, 3,
    ),
    "data from the start": Bug(
        "A learner that comes back reads its data from the start.", "data go on",
        _data_from_the_start, 30,
    ),
    "adopts backwards": Bug(
        "Of version 2 a learner tells that it is version 0, and nobody minds.", "no version back",
        _adopts_backwards,
    ),
}  # fmt: skip
