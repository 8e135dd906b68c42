"""All that can happen to a container, done to each service of the compose cluster in turn.

`make compose-chaos` runs it. It needs root beside the engine: it kills a container's process.
"""

from __future__ import annotations

import time

import pytest

from tests.containers.acts import by_hand, carry_out, crashed, cut_off, paused, restarted
from tests.containers.checks import MERGE_SECONDS_MAX, ended_well, is_back
from tests.containers.cluster import SERVERS, WATCHER, roles, running
from tests.containers.engine import Engine

STEPS = 100_000  # it is closed by hand


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_merges_go_on_after_all_that_can_happen_to_each_container(
    engine: Engine, images: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    services = (*SERVERS, *(role for role in roles() if role != "open"), WATCHER)
    done = 0
    with running(engine, tmp_path_factory.mktemp("chaos"), images, STEPS) as cluster:
        cluster.until(lambda told: told["step"] >= 4, "four merges", 180.0)
        for act in (restarted, crashed, paused, cut_off):
            for service in services:
                by_hand(cluster, service)
                began = time.monotonic()
                line = carry_out(cluster, act, service)
                cluster.merge(1, MERGE_SECONDS_MAX)
                is_back(cluster, service)
                done += 1
                print(f"{time.monotonic() - began:5.1f} s  {line}", flush=True)
        for service in services:
            by_hand(cluster, service)
        asked = cluster.typed("decodiloco.cli", "close", str(cluster.outside))
        assert asked.returncode == 0, asked.stderr
        ended_well(cluster, hardships=done)
