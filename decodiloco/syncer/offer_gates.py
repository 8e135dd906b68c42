"""The word gates of an offer, in order: the first that fails names the reason. Pure.

Bytes are judged later, in the merge; here only the message and the state are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from decodiloco.fragments.schedule import fragment_of
from decodiloco.syncer.offers import adopted
from decodiloco.syncer.state import Learner, State
from streams.events import Adoption, DeltaOffered

BYTES_PER_ELEMENT = {"fp32": 4, "bf16": 2}
HEADER_BYTES_MAX = 16 * 1024 * 1024

Gate = Callable[[State, Learner, DeltaOffered], str | None]


def fault(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    """Why this offer is refused, or None when it is sound."""
    for gate in GATES:
        reason = gate(state, learner, word)
        if reason is not None:
            return reason
    return None


def adoption_fault(state: State, learner: Learner, adoptions: Iterable[Adoption]) -> str | None:
    """Why these adoptions cannot be: unknown fragments, or versions that go back."""
    versions = list(learner.adopted)
    for adoption in adoptions:
        if adoption.fragment >= len(versions):
            return f"adopted: no fragment {adoption.fragment}"
        if adoption.version <= versions[adoption.fragment]:
            return f"adopted: version {adoption.version} of fragment {adoption.fragment} goes back"
        if adoption.version > state.versions[adoption.fragment]:
            return f"adopted: no version {adoption.version} of fragment {adoption.fragment}"
        versions[adoption.fragment] = adoption.version
        if adoption.learner_step < learner.joined_step:
            return "adopted: before this life began"
    return None


def _life(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    if word.incarnation < learner.incarnation:
        return f"old incarnation {word.incarnation}; {learner.incarnation} is the newest"
    if word.incarnation > learner.incarnation:
        return f"unknown incarnation {word.incarnation}"
    if learner.status == "left":
        return "this life has left"
    if state.closed is not None:
        return "the run is closed"
    return None


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
    return None


def _round(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    fragments = len(state.fragments)
    if not 1 <= word.round < state.next_round:
        return f"unknown round {word.round}"
    if word.fragment != fragment_of(word.round, fragments):
        return f"fragment {word.fragment} is not that of round {word.round}"
    return None


def _adopted(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    return adoption_fault(state, learner, word.adopted)


def _base(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    begin = word.learner_step - word.inner_steps
    then = adopted(learner, (a for a in word.adopted if a.learner_step < word.learner_step))
    if word.base_version != then.adopted[word.fragment]:
        return (
            f"unknown base version {word.base_version}; "
            f"this learner holds {then.adopted[word.fragment]}"
        )
    if begin < then.anchor_steps[word.fragment]:
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
    least = state.layout.elements(word.fragment) * BYTES_PER_ELEMENT[codec]
    if not least < word.manifest.bytes <= least + HEADER_BYTES_MAX:
        return f"size {word.manifest.bytes}: the fragment takes {least} bytes and a header"
    return None


def _finite(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    return None if math.isfinite(word.loss) else f"not finite: loss {word.loss}"


def _disjoint(state: State, learner: Learner, word: DeltaOffered) -> str | None:
    """No step of a learner is merged twice, nor stands in two closed windows."""
    begin = word.learner_step - word.inner_steps
    taken = learner.accounts[word.fragment].merged_step
    for round_ in state.rounds.values():
        for position in round_.offers:
            offer = state.offers[position]
            if (offer.learner, offer.fragment) == (word.learner, word.fragment):
                taken = max(taken, offer.learner_step)
    if begin < taken:
        return f"overlaps: begins at step {begin}; merged or merging up to {taken}"
    return None


GATES: tuple[Gate, ...] = (
    _life,
    _counters,
    _round,
    _adopted,
    _base,
    _fresh,
    _bytes,
    _finite,
    _disjoint,
)
