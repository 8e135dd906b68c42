"""A container engine as the tests use it: docker with its compose, or podman with podman-compose.

Knows commands, not what runs in the containers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HEALTHY_SECONDS_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Engine:
    """`program` runs containers, `compose` runs compose files on it."""

    program: str
    compose: tuple[str, ...]

    def run(self, *words: str, seconds: float = 120.0, check: bool = True) -> str:
        """A command's stdout. Raises AssertionError with what it said when it fails."""
        return told([self.program, *words], None, seconds, check)

    def succeeds(self, *words: str) -> bool:
        """Whether a command ends with 0."""
        done = subprocess.run([self.program, *words], capture_output=True, timeout=120, check=False)
        return done.returncode == 0

    def runs_health_checks(self) -> bool:
        """Docker's engine does; podman leaves that to systemd, where there is one."""
        return self.program != "podman" or Path("/run/systemd/private").exists()

    def has(self, image: str) -> bool:
        """Whether an image is on this machine."""
        return bool(self.run("images", "--quiet", image))


@dataclass(frozen=True, slots=True)
class Project:
    """One compose file in a folder, under a project name of its own."""

    engine: Engine
    folder: Path
    name: str

    @property
    def network(self) -> str:
        """The full name of the compose file's network `run`."""
        return f"{self.name}_run"

    def compose(self, *words: str, seconds: float = 180.0, check: bool = True) -> str:
        """A compose command's stdout."""
        command = [*self.engine.compose, "-p", self.name]
        for file in ("compose.yaml", "compose.override.yaml"):
            command += ["-f", file]
        return told([*command, *words], self.folder, seconds, check)

    def container(self, service: str) -> str:
        """The name of a service's only container."""
        joint = "_" if self.engine.program == "podman" else "-"
        return joint.join((self.name, service, "1"))

    def state(self, service: str) -> str:
        """created, running, paused, exited ..."""
        return self._inspected(service, "{{.State.Status}}")

    def exit_code(self, service: str) -> int:
        """Of a container that has ended."""
        return int(self._inspected(service, "{{.State.ExitCode}}"))

    def process(self, service: str) -> int:
        """The id of a container's first process, as this machine counts; 0 while it has none."""
        return int(self._inspected(service, "{{.State.Pid}}"))

    def log(self, service: str) -> str:
        """What it has said so far, on stdout and stderr."""
        done = subprocess.run(
            [self.engine.program, "logs", self.container(service)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout

    def left(self) -> list[str]:
        """The names of all containers, networks and volumes of this project that are here."""
        kinds = (
            ("ps", "--all", "--format", "{{.Names}}"),
            ("network", "ls", "--format", "{{.Name}}"),
            ("volume", "ls", "--format", "{{.Name}}"),
        )
        names = [name for kind in kinds for name in self.engine.run(*kind).split()]
        return [name for name in names if name.startswith(self.name)]

    def wait_until_healthy(self, services: Sequence[str]) -> None:
        """Runs the services' health checks until each is well, where the engine does not do it.

        An engine that runs them itself also lets compose wait for them.
        """
        if self.engine.runs_health_checks():
            return
        deadline = time.monotonic() + HEALTHY_SECONDS_MAX
        for service in services:
            while not self._is_well(service):
                assert time.monotonic() < deadline, f"{service} does not become healthy"

    def _is_well(self, service: str) -> bool:
        return self.engine.succeeds("healthcheck", "run", self.container(service))

    def _inspected(self, service: str, form: str) -> str:
        return self.engine.run("inspect", "--format", form, self.container(service)).strip()


def find_engine() -> Engine | str:
    """The engine of this machine, or the reason why there is none."""
    beside = Path(sys.executable).with_name("podman-compose")
    if shutil.which("docker") and _answers(["docker", "info"]):
        if _answers(["docker", "compose", "version"]):
            return Engine("docker", ("docker", "compose"))
        return "docker answers, but `docker compose` is not installed"
    if shutil.which("podman") and _answers(["podman", "info"]):
        if beside.exists():
            return Engine("podman", (str(beside),))
        return 'podman answers, but podman-compose is not here: pip install "decodiloco[dev]"'
    return "neither docker nor podman answers on this machine"


def told(command: Sequence[str], folder: Path | None, seconds: float, check: bool = True) -> str:
    """A command's stdout. Raises AssertionError with all that it said when it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "PODMAN_COMPOSE_WARNING_LOGS": "false"},
    )
    assert not check or done.returncode == 0, (
        f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    return done.stdout


def _answers(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
