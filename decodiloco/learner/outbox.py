"""Which word a learner says next. Words go one at a time, numbered 1, 2, 3 ... in a life.

A word is in flight until it, or its refusal, stands on the tape; whoever carries it says the
same bytes again until then. Only what is durable is named.
"""

from __future__ import annotations

from decodiloco.learner.owed import is_usable
from decodiloco.learner.state import Copy, Draft, State
from streams.events import CheckpointStored, DeltaOffered, LearnerJoined, LearnerLeft, Word
from streams.parts import Adoption, Moments

ADOPTIONS_MAX = 64


def next_word(state: State) -> Word | None:
    """The word to say now; None while one is in flight or nothing is to be said.

    A farewell waits for the checkpoint that is being stored: nothing may be said after it.
    """
    if not state.incarnation or state.ended_by or state.left or state.in_flight is not None:
        return None
    if state.drafts:
        draft = state.drafts[0]
        return _checkpoint(state, draft) if draft.copy is None else _offer(state, draft, draft.copy)
    if state.leaving is not None and (state.closed or not state.checkpointing):
        return _farewell(state)
    return None


def join_word(state: State, region: str, fingerprint: str, moments: Moments) -> LearnerJoined:
    """The first word of a life; it goes on where the tape says that the last one ended.

    Made anew for each attempt: a late word of the last life may have moved the counters.
    """
    return LearnerJoined(
        learner=state.learner,
        slot=0,
        nonce=state.nonce,
        seen=state.position,
        region=region,
        layout_digest=state.opening.layout.digest,
        fingerprint=fingerprint[:400],
        cursor=state.cursor,
        learner_step=state.learner_step,
        tokens_trained=state.tokens_trained,
        versions=state.versions,
        moments=moments,
    )


def _offer(state: State, draft: Draft, copy: Copy) -> DeltaOffered:
    told = _tellable(state, draft, copy)
    return DeltaOffered(
        learner=state.learner,
        incarnation=state.incarnation,
        said=state.said + 1,
        seen=state.position,
        round=draft.round,
        fragment=copy.fragment,
        base_version=copy.base.version,
        learner_step=copy.learner_step,
        inner_steps=copy.inner_steps,
        tokens=copy.tokens,
        tokens_trained=copy.tokens_trained,
        step_seconds=state.step_seconds or 0.0,
        upload_seconds=state.upload_seconds or 0.0,
        loss=copy.loss,
        cursor=copy.cursor,
        adopted=told,
        held=tuple(one for one in state.adoptions if one not in told)[:ADOPTIONS_MAX],
        residuals=copy.residuals,
        manifest=draft.manifest,
    )


def _checkpoint(state: State, draft: Draft) -> CheckpointStored:
    return CheckpointStored(
        learner=state.learner,
        incarnation=state.incarnation,
        said=state.said + 1,
        learner_step=draft.learner_step,
        step=draft.step,
        residuals=draft.residuals,
        manifest=draft.manifest,
    )


def _farewell(state: State) -> LearnerLeft:
    assert state.leaving is not None
    return LearnerLeft(
        learner=state.learner,
        incarnation=state.incarnation,
        said=state.said + 1,
        seen=state.position,
        reason=state.leaving.reason,
        learner_step=state.learner_step,
        tokens_trained=state.tokens_trained,
        cursor=state.cursor,
        adopted=state.adoptions[:ADOPTIONS_MAX],
        digest=state.leaving.digest,
    )


def _tellable(state: State, draft: Draft, told: Copy) -> tuple[Adoption, ...]:
    """Adoptions that this word may tell, as they were made; if too many, its own fragment's first.

    An adoption is held back while an offer of the same fragment that was copied before it is
    still to be said, or may still be made: its work would be told overwritten, then offered. So
    is one that came after this word's copy: a next life goes on at the cursor of the newest step
    that was told, and no word may tell of a step without the cursor that belongs to it.
    """
    waiting = [*state.making, *(d.copy for d in state.drafts if d.copy is not None and d != draft)]
    for item in state.fragments:
        if item.copy is not None and is_usable(state, item.copy):
            waiting.append(item.copy)
    free = [
        adoption
        for adoption in state.adoptions
        if adoption.learner_step <= told.learner_step
        and not any(
            copy.fragment == adoption.fragment and copy.learner_step <= adoption.learner_step
            for copy in waiting
        )
    ]
    free.sort(key=lambda adoption: adoption.fragment != told.fragment)
    chosen = free[:ADOPTIONS_MAX]
    return tuple(adoption for adoption in state.adoptions if adoption in chosen)
