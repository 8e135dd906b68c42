"""Where a joiner gets its moments: the best checkpoint that can be used, and why no better one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from structlog.testing import capture_logs
from torch import nn

from decodiloco.errors import BlobMissing, StoreDenied
from decodiloco.fragments.of_model import trained
from decodiloco.learner.checkpoint import Raw, capture
from decodiloco.learner.joining import PASSED_OVER_MAX, take_moments
from decodiloco.learner.machine import begin
from decodiloco.learner.state import Checkpoint, State
from decodiloco.store.memory import MemoryStore
from streams.events import LearnerJoined
from streams.parts import Moments, PassedOver
from tests.builders import manifest
from tests.desk import opening_of
from tests.hand_run import small_model, train_plainly
from tests.learner_cluster import Cluster, config_of, step


def checkpoint(learner: str, step_: int) -> Checkpoint:
    return Checkpoint(learner, 10 * step_, step_, manifest(f"{learner} {step_}", codec="raw"))


def state(run_step: int, *stored: Checkpoint) -> State:
    """The joiner is `a`, in a run of H = 4."""
    known = {one.learner: one for one in stored}
    return replace(begin(opening_of(4), "a"), step=run_step, checkpoints=known)


def moments_of(kind: type[torch.optim.Optimizer] = torch.optim.AdamW) -> Raw:
    model = small_model()
    optimizer = kind(model.parameters(), lr=0.01)  # type: ignore[call-arg]
    train_plainly(model, optimizer, 0)
    return capture(optimizer, trained(model).tensors)


def take(found: State, **blobs: Raw | Exception) -> tuple[Moments, torch.optim.Optimizer]:
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def read(stored: Checkpoint) -> Raw:
        blob = blobs[stored.learner]
        if isinstance(blob, Exception):
            raise blob
        return blob

    return take_moments(found, optimizer, trained(model), read), optimizer


def test_the_learner_s_own_come_first_then_the_newest_of_others_within_h_run_steps() -> None:
    known = state(9, checkpoint("a", 1), checkpoint("b", 8), checkpoint("c", 6))
    good = moments_of()
    own, _ = take(known, a=good)
    assert own == Moments(source="own", age_steps=8)
    borrowed, _ = take(state(9, checkpoint("b", 8), checkpoint("c", 6)), b=good)
    assert borrowed == Moments(source="borrowed", age_steps=1)
    zero, optimizer = take(state(9, checkpoint("b", 4)))
    assert zero == Moments(source="zero", age_steps=0) and not optimizer.state


def test_each_that_cannot_be_used_is_passed_over_by_name_and_reason() -> None:
    spoilt = moments_of()
    name = next(key for key in spoilt if key.endswith("exp_avg"))
    spoilt[name] = np.full_like(spoilt[name], np.nan)
    known = state(
        9, checkpoint("a", 9), checkpoint("b", 9), checkpoint("c", 8), checkpoint("d", 7),
        checkpoint("e", 6),
    )  # fmt: skip
    blobs = {
        "a": BlobMissing("blob a is not there"),
        "b": StoreDenied("b's are withheld"),
        "c": moments_of(torch.optim.Adagrad),
        "d": spoilt,
        "e": moments_of(),
    }
    found, optimizer = take(known, **blobs)
    assert (found.source, found.age_steps) == ("borrowed", 3)
    assert optimizer.state
    reasons = [(one.learner, one.learner_step, one.reason) for one in found.passed_over]
    assert reasons[:3] == [
        ("a", 90, "blob a is not there"),
        ("b", 90, "b's are withheld"),
        ("c", 80, "moments of another kind of optimizer"),
    ]
    assert reasons[3][:2] == ("d", 70) and "exp_avg is not finite" in reasons[3][2]


def test_a_joiner_does_not_try_for_ever() -> None:
    names = [f"l{number}" for number in range(20)]
    known = state(1, *(checkpoint(name, 1) for name in names))
    found, optimizer = take(known, **{name: BlobMissing("gone") for name in names})
    assert (found.source, len(found.passed_over)) == ("zero", PASSED_OVER_MAX)
    assert not optimizer.state


def test_a_corrupted_checkpoint_of_one_s_own_is_told_and_another_s_is_borrowed() -> None:
    model, other = small_model(), small_model(seed=2)
    cluster = Cluster(config_of(inner_steps=1000, training={"checkpoint_steps": 100_000}), model)
    with cluster.syncer():
        for name, mine in (("b", other), ("a", model)):
            leave(cluster, name, mine)
        store = cluster.places.store
        assert isinstance(store, MemoryStore)
        (key,) = [key for key in store._blobs if "/checkpoint/a/" in key]
        store._blobs[key] = bytes(len(store._blobs[key]))
        with capture_logs() as lines:
            session, optimizer = cluster.join("a", small_model(seed=4))
            session.close()
    joined = cluster.facts(LearnerJoined)[-1]
    assert isinstance(joined, LearnerJoined) and joined.moments.source == "borrowed"
    (passed,) = joined.moments.passed_over
    assert (passed.learner, passed.learner_step) == ("a", 3)
    assert key in passed.reason or "digest" in passed.reason
    assert optimizer.state
    (told,) = [line for line in lines if line["event"] == "passed over a checkpoint"]
    assert (told["of"], told["reason"]) == ("a", passed.reason)
    assert isinstance(passed, PassedOver)


def leave(cluster: Cluster, name: str, model: nn.Module) -> None:
    session, optimizer = cluster.join(name, model)
    for seed in range(3):
        step(session, model, optimizer, seed)
    assert session.leave("preempted")
