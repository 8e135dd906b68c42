"""What a cluster that is broken must come to, as somebody outside the containers sees it."""

from __future__ import annotations

import time

from replay.place import open_tape
from streams.events import HardshipInjected, LearnerLeft, RunClosed
from tests.containers.cluster import Cluster, roles

MERGE_SECONDS_MAX = 120.0
END_SECONDS_MAX = 180.0


def is_back(cluster: Cluster, service: str, seconds: float = 60.0) -> None:
    """Waits until a service's container runs, by whatever brought it back."""
    deadline = time.monotonic() + seconds
    while (state := cluster.project.state(service)) != "running":
        assert time.monotonic() < deadline, f"{service} is {state}"


def ended_well(cluster: Cluster, hardships: int) -> None:
    """The run closes, every role ends by itself with 0, and the whole tape is proved."""
    cluster.until(lambda told: told["phase"] == "closed", "the run is closed", END_SECONDS_MAX)
    deadline = time.monotonic() + END_SECONDS_MAX
    while running_still := [role for role in roles() if cluster.project.state(role) == "running"]:
        assert time.monotonic() < deadline, running_still
    assert {role: cluster.project.exit_code(role) for role in roles()} == dict.fromkeys(roles(), 0)
    proof = cluster.verified()
    assert proof["ok"] and proof["merges_checked"] == proof["merges"] == cluster.status()["step"]
    print(f"{proof['events']} facts, {proof['merges']} merges, all proved", flush=True)
    facts = [envelope.event for envelope in open_tape(cluster.outside)]
    assert sum(isinstance(fact, HardshipInjected) for fact in facts) == hardships
    (closed,) = (fact for fact in facts if isinstance(fact, RunClosed))
    left = {fact.learner: fact for fact in facts if isinstance(fact, LearnerLeft)}
    assert {id_: (fact.reason, fact.digest) for id_, fact in left.items()} == dict.fromkeys(
        "abcd", ("finished", closed.digest)
    )
