"""What is done to a container of a cluster. Each act stands on the run's tape before it strikes.

Knows containers, not what runs in them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from tests.containers.cluster import Cluster

AWAY_SECONDS = 3.0  # longer than the silence after which a standby takes over

Act = Callable[[Cluster, str], None]


def killed(cluster: Cluster, service: str) -> None:
    """Its container is killed, and started again by hand."""
    engine, name = cluster.project.engine, cluster.project.container(service)
    engine.run("kill", "--signal", "KILL", name)
    engine.run("start", name)


def crashed(cluster: Cluster, service: str) -> None:
    """Its process dies; the restart policy of the compose file brings it back."""
    os.kill(cluster.project.process(service), signal.SIGKILL)


def paused(cluster: Cluster, service: str) -> None:
    """All its processes stand still for some seconds."""
    engine, name = cluster.project.engine, cluster.project.container(service)
    engine.run("pause", name)
    _away()
    engine.run("unpause", name)


def cut_off(cluster: Cluster, service: str) -> None:
    """It is taken off the network for some seconds, and comes back under another address."""
    engine, name = cluster.project.engine, cluster.project.container(service)
    engine.run("network", "disconnect", "--force", cluster.project.network, name)
    _away()
    engine.run("network", "connect", "--alias", service, cluster.project.network, name)


def restarted(cluster: Cluster, service: str) -> None:
    """It is asked to stop, and started again."""
    engine, name = cluster.project.engine, cluster.project.container(service)
    engine.run("restart", "--time", "10", name)


def by_hand(cluster: Cluster, service: str) -> None:
    """Starts a container that has ended: podman leaves it so if a server was down just then."""
    if cluster.project.state(service) == "exited":
        cluster.project.engine.run("start", cluster.project.container(service))
        print(f"started by hand: {service}", flush=True)


def carry_out(cluster: Cluster, act: Act, service: str) -> str:
    """Says it, does it; the line for whoever reads along."""
    cluster.say_hardship(act.__name__, service)
    act(cluster, service)
    return f"{act.__name__} {service}"


def _away() -> None:
    threading.Event().wait(AWAY_SECONDS)
