"""The word gates of an offer, in order: the first that fails names the reason. Pure.

Bytes are judged later, in the merge; here only the message and the state are looked at. The
counters of one life are points (step, tokens) on one rising line: whatever does not lie on it is
a lie, and would spoil the account of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from decodiloco.fragments.layout import Layout
from decodiloco.fragments.schedule import fragment_of
from decodiloco.store.codecs import coded_bytes
from decodiloco.syncer.offers import adopted
from decodiloco.syncer.state import Learner, State
from streams.events import DeltaOffered, LearnerLeft

HEADER_BYTES_MAX = 16 * 1024 * 1024
SECONDS_MAX = 24 * 3600.0  # a longer step, upload or fetch is a lie: it would set the run's pace

Point = tuple[int, int]  # a learner's step, and the tokens it had trained by then
Gate = Callable[[State, Learner, DeltaOffered], str | None]


def fault(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    """Why this offer is refused, or None when it is sound."""
    for gate in GATES:
        reason = gate(state, learner, word)
        if reason is not None:
            return reason
    return None


def adoption_fault(state: State, learner: Learner, word: DeltaOffered | LearnerLeft) -> str | None:
    """Why these adoptions cannot be: unknown fragments, or versions or counters that go back."""
    versions, steps = list(learner.adopted), list(learner.anchor_steps)
    for adoption in word.adopted:
        fragment, version = adoption.fragment, adoption.version
        if fragment >= len(versions):
            return f"adopted: no fragment {fragment}"
        if version < versions[fragment]:  # the same is written again to heal
            return f"adopted: version {version} of fragment {fragment} goes back"
        if version > state.versions[fragment]:
            return f"adopted: no version {version} of fragment {fragment}"
        if adoption.learner_step < learner.joined_step:
            return "adopted: before this life began"
        if adoption.learner_step < steps[fragment]:
            return f"adopted: version {version} of fragment {fragment} before an older one"
        if adoption.fetch_seconds > SECONDS_MAX:
            return f"adopted: fetched for {adoption.fetch_seconds:.3g} seconds"
        versions[fragment], steps[fragment] = version, adoption.learner_step
    told = [(each.learner_step, each.tokens_trained) for each in word.adopted]
    bend = _bend(state, learner, [*told, *_points(word)])
    return None if bend is None else f"adopted: {bend}"


def farewell_fault(state: State, learner: Learner, word: LearnerLeft) -> str | None:
    """Why a learner cannot have left like this."""
    if word.learner_step < learner.learner_step or word.tokens_trained < learner.tokens_trained:
        return "counters go back"
    bend = _bend(state, learner, _points(word))
    if bend is not None:
        return f"counters: {bend}"
    if word.reason == "finished" and state.closed is None:
        return "finished, but the run is not closed"
    return adoption_fault(state, learner, word)


def _points(word: DeltaOffered | LearnerLeft) -> list[Point]:
    """Where a word's work begins and ends."""
    end = (word.learner_step, word.tokens_trained)
    if isinstance(word, LearnerLeft):
        return [end]
    return [(word.learner_step - word.inner_steps, word.tokens_trained - word.tokens), end]


def _bend(state: State, learner: Learner, points: list[Point]) -> str | None:
    """Where these points do not lie on the rising line of this life.

    It begins at the join and passes the last point that was told. A step trains some tokens, at
    most `tokens_per_step_max`.
    """
    begin = (learner.joined_step, learner.joined_tokens)
    line = sorted([begin, (learner.learner_step, learner.tokens_trained), *points])
    if line[0] != begin:
        return f"{line[0][1]} tokens at step {line[0][0]}, before this life began"
    for (step, tokens), (next_step, next_tokens) in pairwise(line):
        most = (next_step - step) * state.config.merge.tokens_per_step_max
        if not 0 <= next_tokens - tokens <= most:
            return f"{tokens} tokens at step {step}, {next_tokens} at step {next_step}"
    return None


def _life(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    if word.incarnation < learner.incarnation:
        return f"old incarnation {word.incarnation}; {learner.incarnation} is the newest"
    if word.incarnation > learner.incarnation:
        return f"unknown incarnation {word.incarnation}"
    return None


def _still_there(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    if learner.status == "quarantined":
        return f"quarantined ({learner.marked_for})"[:200]
    if learner.status == "left":
        return "this life has left"
    return None if state.closed is None else "the run is closed"


def _counters(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    per_step = state.config.merge.tokens_per_step_max
    if not 1 <= word.inner_steps <= word.learner_step <= 2**53:
        return f"counters: inner_steps {word.inner_steps} of learner_step {word.learner_step}"
    if not 1 <= word.tokens <= word.tokens_trained <= 2**53:
        return f"counters: tokens {word.tokens} of {word.tokens_trained}"
    if word.tokens > word.inner_steps * per_step:
        return f"counters: {word.tokens} tokens in {word.inner_steps} steps"
    lived = word.learner_step - learner.joined_step
    trained = word.tokens_trained - learner.joined_tokens
    if word.inner_steps > lived:
        return f"counters: {word.inner_steps} steps in a life of {lived}"
    if not word.tokens <= trained <= lived * per_step:
        return f"counters: {trained} tokens in a life of {lived} steps"
    bend = _bend(state, learner, _points(word))
    return None if bend is None else f"counters: {bend}"


def _durations(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    longest = max(word.step_seconds, word.upload_seconds)
    return f"counters: {longest:.3g} seconds" if longest > SECONDS_MAX else None


def _round(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    fragments = len(state.fragments)
    if not 1 <= word.round < state.next_round:
        return f"unknown round {word.round}"
    if word.fragment != fragment_of(word.round, fragments):
        return f"fragment {word.fragment} is not that of round {word.round}"
    return None


def _adopted(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    return adoption_fault(state, learner, word)


def _held(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    """Nothing is folded of what is held back; it must name what could have been adopted."""
    for adoption in word.held:
        if adoption.fragment >= len(state.versions):
            return f"held: no fragment {adoption.fragment}"
        if adoption.version > state.versions[adoption.fragment]:
            return f"held: no version {adoption.version} of fragment {adoption.fragment}"
        if adoption.learner_step < learner.joined_step:
            return "held: before this life began"
    told = [(each.learner_step, each.tokens_trained) for each in word.held]
    bend = _bend(state, learner, [*told, *_points(word)])
    return None if bend is None else f"held: {bend}"


def _residuals(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    """Nothing is folded of residuals; they must be of older facts, each once, and of such a run."""
    if not word.residuals:
        return None
    if not state.config.codecs.feeds_back:
        return "residuals: this run feeds none back"
    if sorted(set(word.residuals)) != list(word.residuals):
        return "residuals: not in order, each once"
    if word.residuals[-1] > state.position:
        return f"residuals: nothing is at position {word.residuals[-1]} yet"
    return None


def _base(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    begin = word.learner_step - word.inner_steps
    earlier = (a for a in word.adopted if a.learner_step < word.learner_step)
    then = adopted(learner, earlier, state.config.adoption.carry)
    if word.base_version != then.adopted[word.fragment]:
        return (
            f"unknown base version {word.base_version}; "
            f"this learner holds {then.adopted[word.fragment]}"
        )
    if begin < then.anchor_steps[word.fragment] and not state.config.adoption.carry:
        return f"counters: begins at step {begin}, before its base was adopted"
    return None


def _fresh(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    """Staleness: versions between the offer's base and the merge that it could still join."""
    pending = state.round_of(word.fragment)
    version = state.versions[word.fragment] + 1
    if pending is not None and not pending.is_open:
        version += 1
    stale = version - 1 - word.base_version
    if stale > state.config.merge.staleness_versions_max:
        return f"too old: {stale} versions behind"
    return None


def _bytes(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    codec = state.config.codecs.delta
    if word.manifest.codec != codec:
        return f"codec {word.manifest.codec}; this run uses {codec}"
    least = payload_bytes(state.layout, word.fragment, codec)
    if not least < word.manifest.bytes <= least + HEADER_BYTES_MAX:
        return f"size {word.manifest.bytes}: the fragment takes {least} bytes and a header"
    return None


def _finite(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    return None if math.isfinite(word.loss) else f"not finite: loss {word.loss}"


def _disjoint(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    """No step of a learner is merged twice, nor stands in two closed windows."""
    begin, account = word.learner_step - word.inner_steps, learner.accounts[word.fragment]
    merging = [
        state.offers[position]
        for round_ in state.rounds.values()
        if round_.fragment == word.fragment
        for position in round_.offers
        if state.offers[position].learner == word.learner
    ]
    taken = max([account.merged_step, *(offer.learner_step for offer in merging)])
    if begin < taken:
        return f"overlaps: begins at step {begin}; merged or merging up to {taken}"
    first, settled = word.tokens_trained - word.tokens, account.taken([o.position for o in merging])
    if first < settled:
        return f"overlaps: begins at token {first}; settled or merging up to {settled}"
    return None


def payload_bytes(layout: Layout, fragment: int, codec: str) -> int:
    """What the tensors of a fragment's delta take, without the header."""
    return sum(coded_bytes(tensor.elements, codec) for tensor in layout.of(fragment))


GATES: tuple[Gate, ...] = (
    _life,
    _counters,
    _durations,
    _still_there,
    _round,
    _adopted,
    _held,
    _residuals,
    _base,
    _fresh,
    _bytes,
    _finite,
    _disjoint,
)
