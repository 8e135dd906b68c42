"""The compose cluster, really run: it trains to its end while containers are broken, and is proved.

`make compose-test` runs it. It needs docker, or podman and podman-compose; the images are built.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.containers.cluster import Cluster, running
from tests.containers.engine import Engine, find_engine
from tests.containers.images import made

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

STEPS_OF_A_KILL = 60
STEPS_OF_CHAOS = 200
ONE_OF_EACH_KIND = ("syncer-1", "learner-c", "evaluator", "nats-2", "object-store")
AWAY_SECONDS = 3.0


@pytest.fixture(scope="module")
def engine() -> Engine:
    found = find_engine()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="module")
def images(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return made(engine, tmp_path_factory.mktemp("images"))


def merged(cluster: Cluster, more: int, seconds: float = 120.0) -> None:
    """Waits for so many more merges, or the run's end."""
    before = cluster.status().get("step", 0)
    cluster.until(
        lambda told: told["step"] >= before + more or told["phase"] == "closed",
        f"{more} merges after step {before}",
        seconds,
    )


def ended_well(cluster: Cluster) -> None:
    """The run closes, every role ends by itself with 0, and the whole tape is proved."""
    cluster.until(lambda told: told["phase"] == "closed", "the run is closed", 300.0)
    deadline = time.monotonic() + 120.0
    roles = ("syncer-1", "syncer-2", "learner-a", "learner-b", "learner-c", "learner-d")
    while any(cluster.project.state(role) == "running" for role in roles):
        assert time.monotonic() < deadline, {role: cluster.project.state(role) for role in roles}
    assert {role: cluster.project.exit_code(role) for role in roles} == dict.fromkeys(roles, 0)
    proof = cluster.verified()
    assert proof["ok"] and proof["merges_checked"] == proof["merges"] > 0


def killed(cluster: Cluster, service: str) -> None:
    project = cluster.project
    project.engine.run("kill", "--signal", "KILL", project.container(service))
    project.engine.run("start", project.container(service))


def paused(cluster: Cluster, service: str) -> None:
    project = cluster.project
    project.engine.run("pause", project.container(service))
    _away()
    project.engine.run("unpause", project.container(service))


def cut_off(cluster: Cluster, service: str) -> None:
    project, network = cluster.project, f"{cluster.project.name}_run"
    name = project.container(service)
    project.engine.run("network", "disconnect", "--force", network, name)
    _away()
    project.engine.run("network", "connect", "--alias", service, network, name)


def restarted(cluster: Cluster, service: str) -> None:
    project = cluster.project
    project.engine.run("restart", "--time", "10", project.container(service))


def _away() -> None:
    threading.Event().wait(AWAY_SECONDS)


ACTS: tuple[Callable[[Cluster, str], None], ...] = (killed, paused, cut_off, restarted)


def test_a_run_survives_the_kill_of_one_container_of_each_kind(
    engine: Engine, images: dict[str, str], tmp_path: Path
) -> None:
    with running(engine, tmp_path, images, STEPS_OF_A_KILL) as cluster:
        cluster.until(lambda told: told["step"] >= 4, "four merges", 180.0)
        for service in ONE_OF_EACH_KIND:
            killed(cluster, service)
            merged(cluster, 2)
        ended_well(cluster)


@pytest.fixture(scope="module")
def chaos(
    engine: Engine, images: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    with running(engine, tmp_path_factory.mktemp("chaos"), images, STEPS_OF_CHAOS) as cluster:
        yield cluster


def test_merges_go_on_after_everything_that_can_happen_to_a_container(chaos: Cluster) -> None:
    chaos.until(lambda told: told["step"] >= 4, "four merges", 180.0)
    done = []
    for act in ACTS:
        for service in ONE_OF_EACH_KIND:
            if chaos.status()["phase"] == "closed":
                break
            if chaos.project.state(service) == "running":
                act(chaos, service)
                done.append(f"{act.__name__} {service}")
                merged(chaos, 1)
    print("\n".join(done))
    assert len(done) >= 16, done
    ended_well(chaos)
