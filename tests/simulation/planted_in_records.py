"""Faults in fences, folds, merges and what is kept of them. See `planted_bugs`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from decodiloco.merge import adding, gates, one_pass
from decodiloco.merge.order import Merged
from decodiloco.syncer import (
    drafting,
    machine,
    snapshot,
    weights,
)
from decodiloco.syncer.fates import Account
from decodiloco.syncer.state import State
from replay.tape_writer import TapeWriter
from replay.world import syncer
from replay.world.model import Model
from replay.world.places import WorldTape
from replay.world.sending import Sending
from tests.simulation.planting import Bug, Change


def _fence_stays() -> list[Change]:
    took_over = syncer.SyncerTookOver

    def same(**fields: Any) -> Any:
        return took_over(**{**fields, "fence": max(1, fields["fence"] - 1)})

    def ours(state: State, envelope: Any) -> None:
        """Nobody looks at fences."""

    return [(syncer, "SyncerTookOver", same), (machine, "_check_fence", ours)]


def _weight_of_steps() -> list[Change]:
    right = weights._contribution

    def wrong(state: State, round_: Any, offer: Any) -> Any:
        return replace(right(state, round_, offer), tokens=offer.learner_step)

    return [(weights, "_contribution", wrong)]


def _momentum_lost() -> list[Change]:
    right = adding.step_piece

    def wrong(parameter: Any, momentum: Any, *rest: Any) -> bool:
        return right(parameter, None, *rest)

    return [(adding, "step_piece", wrong)]


def _momentum_lost_at_takeover() -> list[Change]:
    right = snapshot.decode_state

    def wrong(opening: Any, payload: bytes) -> State:
        state = right(opening, payload)
        return replace(
            state,
            fragments=tuple(
                replace(one, momentum=one.parameters if one.momentum else None)
                for one in state.fragments
            ),
        )

    return [(syncer, "decode_state", wrong)]


def _not_finite_passes() -> list[Change]:
    def passes(*_: Any) -> None:
        return None

    return [(gates, "check_header", passes), (gates, "check_squares", passes)]


def _no_clip() -> list[Change]:
    right = one_pass.plan_merge

    def wrong(rule: Any, shares: Any, squares: Any, clipping: Any, gram: Any = None) -> Any:
        return right(rule, shares, squares, replace(clipping, norm_clip=None), gram)

    return [(one_pass, "plan_merge", wrong)]


def _bytes_after_words() -> list[Change]:
    right = Merged.blobs

    def wrong(self: Any, order: Any) -> Any:
        return right(self, order)[:1]

    return [(Merged, "blobs", wrong)]


def _digest_of_before() -> list[Change]:
    def wrong(state: State) -> bytes:
        return snapshot.state_digest(replace(state, position=state.position - 1))

    return [(drafting, "state_digest", wrong)]


def _clock_in_the_fold() -> list[Change]:
    def fold(state: State, envelope: Any) -> State:
        made = plain(state, envelope)
        late = envelope.time_seconds % 2 < 1
        timings = replace(made.timings, merge_seconds=1.0 if late else 0.0)
        return replace(made, timings=timings)

    from decodiloco.syncer import compose
    from replay.invariants import all_of_them, of_state
    from replay.world import world

    plain = machine.fold
    return [
        (compose, "fold", fold),
        (world, "fold", fold),
        (all_of_them, "fold", fold),
        (of_state, "fold", fold),
    ]


def _snapshot_forgets() -> list[Change]:
    right = snapshot.encode_state

    def wrong(state: State) -> bytes:
        return right(replace(state, superseded=(), liveness_changed=0))

    from replay.invariants import of_state

    return [(of_state, "encode_state", wrong)]


def _fates_twice() -> list[Change]:
    right = Account.totals

    def wrong(self: Account) -> Any:
        found = right(self)
        return {**found, "merged": found["merged"] + found["superseded"]}

    return [(Account, "totals", wrong)]


def _overwritten_is_merged() -> list[Change]:
    right = Account.adopted

    def wrong(self: Account, tokens: int) -> Account:
        return right(self, max(0, tokens - 1))

    return [(Account, "adopted", wrong)]


def _no_answer_is_yes() -> list[Change]:
    right = Sending._answered

    def wrong(self: Any, outcome: Any) -> None:
        if isinstance(outcome, Exception):
            self._world.tape.acknowledge(self._batch)
        right(self, outcome)

    return [(Sending, "_answered", wrong)]


def _merge_by_chance() -> list[Change]:
    right = adding.step_piece
    calls = [0]

    def wrong(*arrays: Any) -> bool:
        *before, (lr, mu), stepped = arrays
        calls[0] += 1
        return right(*before, (np.float32(lr * (1 + 1e-6 * (calls[0] % 7))), mu), stepped)

    return [(adding, "step_piece", wrong)]


def _final_model_is_kept() -> list[Change]:
    right = Model.digest

    def wrong(self: Model) -> bytes:
        self.step()
        return right(self)

    return [(Model, "digest", wrong)]


def _record_changed() -> list[Change]:
    right = WorldTape.append

    def wrong(self: Any, batch: Any) -> Any:
        late = [replace(one, time_seconds=one.time_seconds + 1) for one in batch]
        return right(self, late)

    return [(WorldTape, "append", wrong)]


def _torn_tail_stays() -> list[Change]:
    right = TapeWriter._write

    def wrong(self: Any, data: bytes) -> None:
        self._offset += self.torn_bytes
        right(self, data)

    return [(TapeWriter, "_write", wrong)]


def _another_answer() -> list[Change]:
    return [(syncer, "known_answer", lambda: bytes(32))]


BUGS: dict[str, Bug] = {
    "stale fence": Bug(
        "A takeover keeps the fence, and nobody looks at fences.", "fences grow", _fence_stays
    ),
    "weight of steps": Bug(
        "A weight comes from the learner's step, not from its tokens.",
        "merged from these bytes", _weight_of_steps,
    ),
    "no momentum": Bug(
        "The outer step begins without momentum each time.", "merged from these bytes",
        _momentum_lost,
    ),
    "momentum lost at takeover": Bug(
        "A syncer that begins from a snapshot has other momentum.", "digest of the state",
        _momentum_lost_at_takeover, 12,
    ),
    "not finite passes": Bug(
        "Deltas are not looked at before they are added up.", "no machine stumbles",
        _not_finite_passes, 60,
    ),
    "no clip": Bug(
        "No delta's norm is clipped.", "merged from these bytes", _no_clip, 30
    ),
    "bytes after words": Bug(
        "A merge is recorded before momentum and report are stored.", "bytes before words",
        _bytes_after_words,
    ),
    "digest of before": Bug(
        "The state digest in a merge is that of one fact earlier.", "digest of the state",
        _digest_of_before,
    ),
    "clock in the fold": Bug(
        "The fold looks at the time of a fact.", "no clock", _clock_in_the_fold
    ),
    "snapshot forgets": Bug(
        "A snapshot leaves out when somebody came or went last.", "snapshot is the state",
        _snapshot_forgets,
    ),
    "fates twice": Bug(
        "Superseded tokens count as merged, too.", "fates add up", _fates_twice, 12, 1, False
    ),
    "record changed": Bug(
        "The tape's server keeps another record than the one it was given.", "one chain",
        _record_changed,
    ),
    "torn tail stays": Bug(
        "A recorder goes on behind the torn part of a record.", "recording goes on",
        _torn_tail_stays, 30,
    ),
    "another answer": Bug(
        "A syncer writes although its arithmetic is not ours.", "known answer", _another_answer
    ),
    "overwritten too late": Bug(
        "An adoption overwrites all work but its last token.", "digest of the state",
        _overwritten_is_merged,
    ),
    "no answer is yes": Bug(
        "An append without an answer is taken for stored.", "acknowledged stands",
        _no_answer_is_yes, 60,
    ),
    "merge by chance": Bug(
        "A merge made twice comes to other bytes.", "same bytes from all", _merge_by_chance, 12
    ),
    "final model trained on": Bug(
        "A learner trains on after it has loaded the final model.", "finished with the model",
        _final_model_is_kept, 6,
    ),
}  # fmt: skip
