"""The learner's state from what happens beside the tape: steps, copies, uploads, adoptions.

Durations are given; no clock is read. A happening that nobody waits for any more, such as the
end of an upload that was given up, changes nothing.
"""

from __future__ import annotations

from typing import assert_never

from decodiloco.learner import residuals
from decodiloco.learner.happenings import (
    Adopted,
    CheckpointFailed,
    CheckpointSaved,
    CheckpointTaken,
    Copied,
    FetchBegun,
    Fetched,
    FetchFailed,
    Happening,
    LeaveWanted,
    LetGo,
    Loaded,
    OfferBegun,
    OfferFailed,
    OfferStored,
    Restored,
    Spoken,
    Stepped,
)
from decodiloco.learner.machine import changed, untold
from decodiloco.learner.state import Anchor, Copy, Draft, Fragment, Refresh, State
from streams.events import LearnerLeft
from streams.frozen import replace
from streams.parts import Adoption


def told(state: State, happening: Happening) -> State:
    """The state one happening later."""
    match happening:
        case Loaded():
            return _loaded(state, happening)
        case Restored():
            assert not state.incarnation, "before a life begins"
            return residuals.restored(state, happening.residuals)
        case Stepped():
            return _stepped(state, happening)
        case Copied():
            return _copied(state, happening)
        case Adopted():
            return _adopted(state, happening)
        case OfferBegun() | OfferStored() | OfferFailed():
            return _told_of_offer(state, happening)
        case FetchBegun() | Fetched() | FetchFailed():
            return _told_of_fetch(state, happening)
        case CheckpointTaken():
            return replace(state, checkpointing=True, checkpointed_step=happening.learner_step)
        case CheckpointSaved():
            return _checkpoint_saved(state, happening)
        case CheckpointFailed():
            return replace(state, checkpointing=False)
        case Spoken():
            return _spoken(state, happening)
        case LetGo():
            assert state.leaving is not None and not isinstance(state.in_flight, LearnerLeft)
            return replace(state, in_flight=None)
        case LeaveWanted():
            if state.leaving is not None:
                return state
            return replace(state, leaving=happening.leaving, making=(), refresh="")
        case _:
            assert_never(happening)


def average(old: float | None, new: float) -> float:
    """Moving average with factor one half; the first value stands for itself."""
    return new if old is None else (old + new) / 2


def _loaded(state: State, happening: Loaded) -> State:
    assert not state.incarnation and len(happening.versions) == len(state.fragments)
    assert len(happening.nonce) == 16
    fragments = tuple(
        replace(fragment, anchor=Anchor(version, state.learner_step, state.tokens_trained))
        for fragment, version in zip(state.fragments, happening.versions, strict=True)
    )
    return replace(state, fragments=fragments, nonce=happening.nonce, clock=happening.clock)


def _stepped(state: State, happening: Stepped) -> State:
    assert state.incarnation and happening.tokens >= 0 and happening.step_seconds >= 0
    return replace(
        state,
        learner_step=state.learner_step + 1,
        tokens_trained=state.tokens_trained + happening.tokens,
        cursor=happening.cursor,
        loss=happening.loss,
        step_seconds=average(state.step_seconds, happening.step_seconds),
    )


def _copied(state: State, happening: Copied) -> State:
    fragments: list[Fragment] = []
    for index, fragment in enumerate(state.fragments):
        copy = None
        if index in happening.fragments:
            copy = Copy(
                fragment=index,
                base=fragment.anchor,
                learner_step=state.learner_step,
                tokens_trained=state.tokens_trained,
                loss=state.loss,
                cursor=state.cursor,
            )
        fragments.append(replace(fragment, copy=copy))
    return replace(state, fragments=tuple(fragments))


def _adopted(state: State, happening: Adopted) -> State:
    """New anchors. Every write is an adoption to tell, so that it can be done again from the tape.

    Only at the end a version that was in the model before, and is written again, is none: the
    run's last versions say it.
    """
    for index, version in happening.versions:
        fragment = state.fragments[index]
        assert version >= fragment.anchor.version >= 0, "versions never go back"
        if version > fragment.anchor.version or happening.refresh == "heal":
            adoption = Adoption(
                fragment=index,
                version=version,
                learner_step=state.learner_step,
                tokens_trained=state.tokens_trained,
                fetch_seconds=fragment.fetch_seconds,
            )
            state = replace(state, adoptions=(*state.adoptions, adoption))
        fragment = replace(
            fragment,
            anchor=_anchor(state, fragment, version, happening.refresh),
            fetched=-1 if fragment.fetched <= version else fragment.fetched,
            copy=None if happening.refresh else fragment.copy,
        )
        state = changed(state, index, fragment)
    state = replace(state, clock=state.clock.later(happening.clock))
    state = replace(state, adoptions=untold(state))
    if happening.refresh == "heal":
        state = replace(state, healed_step=state.learner_step)
    if happening.refresh == "close":
        state = replace(state, final=True)
    if happening.refresh and happening.refresh == state.refresh:
        state = replace(state, refresh="")
    return state


def _anchor(state: State, fragment: Fragment, version: int, refresh: Refresh) -> Anchor:
    """Where work from this version begins: here, as all before is overwritten.

    Under *carry* nothing is: what was not in a merge yet goes on to be offered.
    """
    if refresh or not state.opening.run.adoption.carry:
        return Anchor(version, state.learner_step, state.tokens_trained)
    if fragment.merged_since(version) is not None:
        return Anchor(version, fragment.merged_step, fragment.merged_tokens)
    return replace(fragment.anchor, version=version)


def _told_of_offer(state: State, happening: OfferBegun | OfferStored | OfferFailed) -> State:
    copy = happening.copy
    fragment = state.fragments[copy.fragment]
    if isinstance(happening, OfferBegun):
        fragment = replace(fragment, answered=happening.round, offered_step=copy.learner_step)
        state = replace(state, making=(*state.making, copy))
        return changed(state, copy.fragment, fragment)
    if copy not in state.making:
        return state
    state = replace(state, making=tuple(other for other in state.making if other != copy))
    if isinstance(happening, OfferFailed):
        if fragment.answered == happening.round:
            state = changed(state, copy.fragment, replace(fragment, answered=0))
        return state
    return replace(
        state,
        upload_seconds=average(state.upload_seconds, happening.upload_seconds),
        drafts=(*state.drafts, Draft(happening.manifest, round=happening.round, copy=copy)),
    )


def _told_of_fetch(state: State, happening: FetchBegun | Fetched | FetchFailed) -> State:
    fragment = state.fragments[happening.fragment]
    match happening:
        case FetchBegun():
            fragment = replace(fragment, fetching=happening.version)
        case FetchFailed():
            fragment = replace(fragment, fetching=-1)
        case Fetched():
            fragment = replace(
                fragment,
                fetching=-1,
                fetched=happening.version,
                fetch_seconds=happening.fetch_seconds,
            )
    return changed(state, happening.fragment, fragment)


def _checkpoint_saved(state: State, happening: CheckpointSaved) -> State:
    """Only the newest checkpoint waits to be said, however long nobody listens."""
    draft = Draft(
        happening.manifest,
        learner_step=happening.learner_step,
        step=happening.step,
        residuals=happening.residuals,
    )
    others = tuple(draft for draft in state.drafts if draft.copy is not None)
    drafts = state.drafts if state.closed else (*others, draft)
    is_newest = happening.learner_step == state.checkpointed_step
    return replace(state, checkpointing=state.checkpointing and not is_newest, drafts=drafts)


def _spoken(state: State, happening: Spoken) -> State:
    """A word is in flight. What it told is not told again."""
    word = happening.word
    assert state.in_flight is None and word.kind in (
        "delta_offered",
        "checkpoint_stored",
        "learner_left",
    )
    said = getattr(word, "said", 0)
    assert said == state.said + 1, "a learner's words are numbered without a gap"
    adopted = getattr(word, "adopted", ())
    return replace(
        state,
        said=said,
        in_flight=word,
        drafts=state.drafts if isinstance(word, LearnerLeft) else state.drafts[1:],
        adoptions=tuple(adoption for adoption in state.adoptions if adoption not in adopted),
    )
