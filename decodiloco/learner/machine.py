"""The learner's state from the tape's facts. Knows no clock, no tensor, no store, no network.

Facts may come filtered: those of the run and of this learner. A fact that was folded already
changes nothing. What happens beside the tape is told to `decodiloco.learner.telling`.
"""

from __future__ import annotations

from collections.abc import Iterable

from decodiloco.learner import residuals
from decodiloco.learner.state import (
    Anchor,
    Checkpoint,
    Copy,
    Fragment,
    Round,
    RunClock,
    State,
)
from decodiloco.opening import Opening
from streams.envelope import Envelope
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    DeltaRefused,
    Event,
    FragmentMerged,
    LearnerJoined,
    LearnerLeft,
    LearnerLost,
    MergeAbandoned,
    MessageRefused,
    RoundOpened,
    RunClosed,
    RunClosing,
    WindowClosed,
)
from streams.frozen import replace
from streams.parts import Adoption

NOT_FINITE = "not finite"
UNTOLD_MAX = 64  # adoptions that wait to be told; beyond, only those still worth it do
REFUSALS_MAX = 3  # answers of ours that may be refused in one round before we wait a while


def begin(opening: Opening, learner: str) -> State:
    """The state before the first fact: nothing is in the model yet."""
    return State(
        opening=opening,
        learner=learner,
        fragments=tuple(Fragment(0, manifest) for manifest in opening.fragments),
    )


def fold(state: State, envelope: Envelope) -> State:
    """The state one fact later."""
    if envelope.position <= state.position:
        return state
    return _apply(replace(state, position=envelope.position), envelope.event)


def _apply(state: State, event: Event) -> State:
    match event:
        case LearnerJoined() if event.learner == state.learner:
            return _joined(state, event)
        case LearnerLeft() if event.learner == state.learner:
            return _left(state, event)
        case LearnerLost() if event.learner == state.learner:
            return _lost(state, event)
        case DeltaOffered() if event.learner == state.learner:
            return _offered(state, event)
        case DeltaRefused() if event.learner == state.learner:
            return _refused(state, event)
        case CheckpointStored():
            return _checkpoint_stored(state, event)
        case MessageRefused():
            return _complained(state, event)
        case RoundOpened():
            return _round_opened(state, event)
        case WindowClosed():
            return _window_closed(state, event)
        case FragmentMerged():
            return _merged(state, event)
        case MergeAbandoned():
            return _abandoned(state, event)
        case RunClosing():
            return replace(state, closing=True)
        case RunClosed():
            state = replace(state, closing=True, closed=event, making=(), drafts=())
            return state if state.leaving else replace(state, refresh="close")
        case _:
            return state


def changed(state: State, index: int, fragment: Fragment) -> State:
    """The state with one fragment replaced."""
    fragments = list(state.fragments)
    fragments[index] = fragment
    return replace(state, fragments=tuple(fragments))


def healing(state: State) -> State:
    """From now on nothing of the live parameters is offered until all of them are overwritten."""
    if state.refresh or state.leaving:
        return state
    fragments = tuple(replace(fragment, copy=None, answered=0) for fragment in state.fragments)
    kept = tuple(draft for draft in state.drafts if draft.copy is None)
    return replace(state, refresh="heal", fragments=fragments, making=(), drafts=kept)


def untold(state: State) -> tuple[Adoption, ...]:
    """The adoptions that wait to be told, in the order in which they were made: all there are.

    Where more than `UNTOLD_MAX` wait, because no word of ours is admitted, only each fragment's
    newest and those that copies start from: for the syncer a newer one says all that an older
    one did, so they do not pile up.
    """
    if len(state.adoptions) <= UNTOLD_MAX:
        return state.adoptions
    copies = (
        *state.making,
        *(draft.copy for draft in state.drafts),
        *(fragment.copy for fragment in state.fragments),
    )
    bases = [(copy.fragment, copy.base.version) for copy in copies if copy is not None]
    newest = {adoption.fragment: adoption.version for adoption in state.adoptions}
    return tuple(
        adoption
        for adoption in state.adoptions
        if adoption.version == newest[adoption.fragment]
        or (adoption.fragment, adoption.version) in bases
    )


def _joined(state: State, event: LearnerJoined) -> State:
    """A life of this learner begins: ours, an older one, or one that ends ours."""
    if event.nonce != state.nonce:
        return replace(state, ended_by=state.position) if state.incarnation else state
    state = residuals.joined(state)
    fragments = tuple(
        replace(
            fragment,
            anchor=Anchor(fragment.anchor.version, event.learner_step, event.tokens_trained),
        )
        for fragment in state.fragments
    )
    return replace(
        state,
        incarnation=state.position,
        joined=event,
        fragments=fragments,
        learner_step=event.learner_step,
        tokens_trained=event.tokens_trained,
        cursor=event.cursor,
        checkpointed_step=event.learner_step,
    )


def _left(state: State, event: LearnerLeft) -> State:
    if not state.incarnation:
        return _heard_of(state, event, event.adopted)
    if event.incarnation != state.incarnation:
        return state
    return replace(_settled(state, event.said), left=True)


def _offered(state: State, event: DeltaOffered) -> State:
    if not state.incarnation:
        return residuals.heard_of(_heard_of(state, event, event.adopted), event)
    if event.incarnation != state.incarnation:
        return state
    sent = residuals.sent(state.position, event)
    return replace(_settled(state, event.said), sent=(*state.sent, sent))


def _heard_of(state: State, word: DeltaOffered | LearnerLeft, adopted: Iterable[Adoption]) -> State:
    """Counters and cursor that an earlier life left on the tape: the next one goes on there."""
    if word.learner_step >= state.learner_step:
        state = replace(state, cursor=word.cursor)
    return replace(
        state,
        learner_step=max(
            [state.learner_step, word.learner_step, *(a.learner_step for a in adopted)]
        ),
        tokens_trained=max(
            [state.tokens_trained, word.tokens_trained, *(a.tokens_trained for a in adopted)]
        ),
    )


def _refused(state: State, event: DeltaRefused) -> State:
    """A refusal is no answer. Adoptions that the refused word carried are to be told again."""
    if not state.incarnation or event.incarnation != state.incarnation:
        return state
    word = state.in_flight
    if isinstance(word, DeltaOffered) and word.said == event.said:
        lost = () if event.reason.startswith("adopted") else word.adopted
        adoptions = sorted((*lost, *state.adoptions), key=lambda each: each.learner_step)
        state = replace(state, adoptions=tuple(adoptions))
        state = replace(state, adoptions=untold(state))
    state = _settled(state, event.said)
    if event.fragment < len(state.fragments):
        fragment = state.fragments[event.fragment]
        if fragment.answered == event.round:
            fragment = replace(fragment, answered=0, refusals=fragment.refusals + 1)
            if fragment.refusals >= REFUSALS_MAX:
                fragment = replace(fragment, copy=None, wait_steps=state.opening.run.inner_steps)
            state = changed(state, event.fragment, fragment)
    if event.reason.startswith(NOT_FINITE) and event.learner_step > state.healed_step:
        return healing(state)
    return state


def _lost(state: State, event: LearnerLost) -> State:
    """Nobody waits for us any more, until a word of ours is heard; or ours are heard no more."""
    if not state.incarnation or event.incarnation != state.incarnation:
        return state
    if event.reason == "quarantined":
        why = event.why or "unfit deltas"
        return replace(state, ended_by=state.position, quarantined_for=why)
    return replace(state, lost=True)


def _settled(state: State, said: int) -> State:
    """A word of ours stands on the tape: we live, and the next one may be said."""
    word = state.in_flight
    if word is not None and getattr(word, "said", 0) == said:
        state = replace(state, in_flight=None)
    return replace(state, lost=False)


def _checkpoint_stored(state: State, event: CheckpointStored) -> State:
    stored = Checkpoint(
        event.learner, event.learner_step, event.step, event.manifest, event.residuals
    )
    state = replace(state, checkpoints={**state.checkpoints, event.learner: stored})
    if event.learner == state.learner and event.incarnation == state.incarnation:
        return _settled(state, event.said)
    return state


def _complained(state: State, event: MessageRefused) -> State:
    if event.source.split(".")[3:4] == [state.learner]:
        return replace(state, complaint=event.reason)
    return state


def _round_opened(state: State, event: RoundOpened) -> State:
    fragment = replace(
        state.fragments[event.fragment],
        round=Round(event.round, event.version, True, event.tokens),
        refusals=0,
        wait_steps=1,
    )
    return replace(
        changed(state, event.fragment, fragment),
        round=event.round,
        pace_seconds=event.pace_seconds,
    )


def _window_closed(state: State, event: WindowClosed) -> State:
    fragment = state.fragments[event.fragment]
    assert fragment.round is not None and fragment.round.number == event.round
    fragment = replace(fragment, round=replace(fragment.round, collecting=False))
    sent = tuple(offer for offer in state.sent if offer.position not in event.superseded)
    state = replace(changed(state, event.fragment, fragment), sent=sent)
    state = residuals.never_merged(state, event.superseded)
    merging = [offer.learner_step for offer in sent if offer.position in event.offers]
    return _without(state, event.fragment, max(merging, default=0))


def _without(state: State, index: int, merging_step: int) -> State:
    """What overlaps an offer of ours that is being merged would be refused: it is not said.

    That is so for work kept under *carry*. Should the merge be abandoned, the round is answered
    anew, from a newer copy.
    """
    fragment = replace(state.fragments[index], merged_step=merging_step)
    taken = [copy for copy in state.making if _is_taken(copy, index, fragment)]
    drafts = [
        draft for draft in state.drafts if draft.copy and _is_taken(draft.copy, index, fragment)
    ]
    if not taken and not drafts:
        return state
    return replace(
        changed(state, index, replace(state.fragments[index], answered=0)),
        making=tuple(copy for copy in state.making if copy not in taken),
        drafts=tuple(draft for draft in state.drafts if draft not in drafts),
    )


def _merged(state: State, event: FragmentMerged) -> State:
    """A fragment has a new version. Work of ours that is in it must not be offered again."""
    fragment = state.fragments[event.fragment]
    assert fragment.round is not None and fragment.round.number == event.round
    fragment = replace(
        fragment,
        newest=event.version,
        manifest=event.parameters,
        clock=RunClock(event.step, fragment.round.tokens),
        round=None,
    )
    for offer in state.sent:
        if offer.position in event.contributions:
            fragment = replace(fragment, merged_version=event.version)
            if offer.learner_step > fragment.merged_step:
                fragment = replace(
                    fragment,
                    merged_step=offer.learner_step,
                    merged_tokens=offer.tokens_trained,
                )
    state = replace(
        changed(state, event.fragment, fragment),
        step=event.step,
        making=tuple(c for c in state.making if not _is_taken(c, event.fragment, fragment)),
        drafts=tuple(
            draft
            for draft in state.drafts
            if draft.copy is None or not _is_taken(draft.copy, event.fragment, fragment)
        ),
    )
    left_out = {item.position: item.reason for item in event.left_out}
    state = _left_out(state, left_out, 0)
    state = residuals.merged(state, event.contributions)
    sent = tuple(offer for offer in state.sent if offer.position not in event.contributions)
    return replace(state, sent=sent)


def _is_taken(copy: Copy, index: int, fragment: Fragment) -> bool:
    """Whether a copy holds steps that are merged by now: an offer of it would be refused."""
    return copy.fragment == index and copy.base.learner_step < fragment.merged_step


def _abandoned(state: State, event: MergeAbandoned) -> State:
    """The round is open again; who was left out may answer it again."""
    for index, fragment in enumerate(state.fragments):
        if fragment.round is not None and fragment.round.number == event.round:
            state = changed(
                state, index, replace(fragment, round=replace(fragment.round, collecting=True))
            )
    return _left_out(state, {item.position: item.reason for item in event.left_out}, event.round)


def _left_out(state: State, reasons: dict[int, str], open_round: int) -> State:
    """Offers of ours whose bytes did not pass. In a round that is open again they are no answer."""
    ours = [offer for offer in state.sent if offer.position in reasons]
    state = residuals.never_merged(state, reasons)
    state = replace(
        state, sent=tuple(offer for offer in state.sent if offer.position not in reasons)
    )
    for offer in ours:
        fragment = state.fragments[offer.fragment]
        if open_round and fragment.answered == offer.round == open_round:
            state = changed(state, offer.fragment, replace(fragment, answered=0))
        not_finite = reasons[offer.position].startswith(NOT_FINITE)
        if not_finite and offer.learner_step > state.healed_step:
            state = healing(state)
    return state
