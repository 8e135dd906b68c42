"""The syncer's state as bytes: its digest (v1), and snapshots that a fold can go on from. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from blake3 import blake3
from pydantic import BaseModel, TypeAdapter, ValidationError

from decodiloco.errors import BlobCorrupt
from decodiloco.opening import Opening
from decodiloco.syncer.state import Learner, Retention, Round, State
from streams.codec import pack, pack_plain, unpack
from streams.errors import Unreadable
from streams.printing import first_fault, printable

SCHEMA = 1
SNAPSHOT_BYTES_MAX = 64 * 1024 * 1024  # of small blobs, which it is
SNAPSHOT_DEPTH_MAX = 12

_LATER = {"retention": Retention()}
_ALWAYS = object()
_MAPS = ("rounds", "offers", "learners", "speakers", "inboxes")
_LEAVES = frozenset((bool, int, float, str, bytes, type(None)))
_STATE = TypeAdapter(State)


def state_digest(state: State) -> bytes:
    """State digest v1: blake3 of canonical msgpack of integers, strings and bytes only.

    Run, next position, fence, step, versions, parameter and momentum digests, open rounds with
    the offers in them, for each learner its life, words, marks, last merged steps and token fates,
    and the inbox cursors. Taken before the fact that carries it.
    """
    plain = (
        1,
        state.run,
        state.position + 1,
        state.fence,
        state.step,
        state.versions,
        [one.parameters.digest for one in state.fragments],
        [b"" if one.momentum is None else one.momentum.digest for one in state.fragments],
        [_round(state, state.rounds[number]) for number in sorted(state.rounds)],
        [_learner(state.learners[name]) for name in sorted(state.learners)],
        [(inbox, *state.inboxes[inbox]) for inbox in sorted(state.inboxes)],
    )
    return blake3(pack_plain(plain)).digest()


def _round(state: State, round_: Round) -> tuple[Any, ...]:
    """Where no window is closed, all offers of its fragment wait: by learner id, as in a window."""
    positions: Sequence[int] = round_.offers
    if not positions:
        held = state.offers.of(round_.fragment).values()
        positions = [offer.position for offer in sorted(held, key=_by_learner)]
    return round_.number, round_.fragment, round_.version, round_.closed_at, positions


_by_learner = attrgetter("learner")


def _learner(learner: Learner) -> tuple[Any, ...]:
    """Open is what no settled fate has; of those who are lost it is lost."""
    trained = learner.tokens_trained
    accounts: list[tuple[int, ...]] = [
        (account.merged_step, *account.counts, trained - account.settled_tokens)
        if len(account.spans) < 2
        else (account.merged_step, *account.settled, trained - sum(account.settled))
        for account in learner.accounts
    ]
    if learner.status == "lost":
        accounts = [(*told[:-2], told[-2] + told[-1], 0) for told in accounts]
    return learner.id, learner.incarnation, learner.said, learner.marks, accounts


def encode_state(state: State) -> bytes:
    """A snapshot: all of the state but its opening, as canonical msgpack.

    A field that came later takes no bytes at its default: older snapshots stay what they are.
    """
    plain = {
        field.name: _plain(value)
        for field in fields(state)
        if field.name != "opening"
        and (value := getattr(state, field.name)) != _LATER.get(field.name, _ALWAYS)
    }
    payload = pack([SCHEMA, plain])
    assert len(payload) <= SNAPSHOT_BYTES_MAX
    return payload


def decode_state(opening: Opening, payload: bytes) -> State:
    """The state in a snapshot's bytes; folding goes on from it. Raises BlobCorrupt."""
    try:
        schema, plain = unpack(payload, SNAPSHOT_BYTES_MAX, SNAPSHOT_DEPTH_MAX)
        if schema != SCHEMA:
            raise BlobCorrupt(
                f"snapshot of schema {printable(str(schema)[:20])}; this build reads {SCHEMA}"
            )
        values = {name: dict(plain[name]) if name in _MAPS else plain[name] for name in plain}
        return _STATE.validate_python({**values, "opening": opening})
    except (Unreadable, ValidationError, ValueError, TypeError, KeyError) as error:
        raise BlobCorrupt(f"the snapshot cannot be read: {first_fault(error)}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel) or type(value) in _LEAVES:
        return value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return [[key, _plain(value[key])] for key in sorted(value)]
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
