"""The compose cluster, really run: it trains to its end while containers are killed, and is proved.

`make compose-test` runs it. It needs docker, or podman and podman-compose; the images are built.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tests.containers.acts import carry_out, killed
from tests.containers.checks import MERGE_SECONDS_MAX, ended_well
from tests.containers.cluster import WATCHER, running
from tests.containers.engine import Engine, told
from tests.tidy.compose import VARIABLE, services
from tests.tidy.house import ROOT

STEPS = 120
ONE_OF_EACH_KIND = ("learner-c", "evaluator", "archive", WATCHER, "nats-2", "object-store")


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_run_survives_the_kill_of_one_container_of_each_kind(
    engine: Engine, images: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with running(engine, tmp_path_factory.mktemp("kills"), images, STEPS) as cluster:
        cluster.until(lambda told: told["step"] >= 4, "four merges", 180.0)
        for service in (cluster.status()["leader"], *ONE_OF_EACH_KIND):
            print(carry_out(cluster, killed, service), flush=True)
            cluster.merge(2, MERGE_SECONDS_MAX)
        ended_well(cluster, hardships=1 + len(ONE_OF_EACH_KIND))


def test_compose_itself_takes_the_file_with_its_public_images(
    engine: Engine, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    shutil.copy(ROOT / "deploy/store.env.example", tmp_path / "deploy/store.env")
    command = [*engine.compose, "-f", "compose.yaml", "--profile", "watch", "--profile", "tools"]

    read = yaml.safe_load(told([*command, "config"], tmp_path / "deploy", 60.0))

    public = {name: VARIABLE.sub(r"\2", each["image"]) for name, each in services().items()}
    assert {name: each["image"] for name, each in read["services"].items()} == public
