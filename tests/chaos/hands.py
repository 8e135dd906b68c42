"""A run by hand, as somebody types it in several terminals: processes, their logs, their ends.

And NATS servers that are not ours: the packaged program with a config or with none.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

LIMIT_SECONDS = 150.0
COMMAND_SECONDS = 120.0
TEXTS = Path(json.__file__).parent / "*.py"

CONFIG = """\
[run]
name = "hand"
fragments = 2
inner_steps = 4
learners_min = 2
model = {{ layers = 1, width = 32, heads = 2, context = 32 }}
training = {{ data = "{texts}", batch_sequences = 2, evaluate_tokens = 512 }}
times = {{ takeover_seconds = 1.0, heartbeat_seconds = 0.25, lost_seconds = 3.0 }}

[here]
nats = "{nats}"
store = "{store}"
"""


class Process:
    """One command in a terminal of its own, its output in a file."""

    def __init__(self, log: Path, *words: str, environment: Mapping[str, str] | None = None):
        self.log_path = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment
            )

    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def says(self, text: str) -> None:
        """Waits until its log holds a text; fails when it has ended without."""
        until(lambda: text in self.log() or self.process.poll() is not None, f"{text!r} is said")
        assert text in self.log(), f"{self.log_path.name} ended without {text!r}:\n{self.log()}"

    def ends(self) -> int:
        return self.process.wait(LIMIT_SECONDS)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Terminals:
    """Several terminals around one run.toml. None outlives the test."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.config = str(folder / "run.toml")
        self._environment = environment
        self._processes: list[Process] = []

    def start(self, role: str, id_: str) -> Process:
        """`decodiloco learner --config run.toml --id a`, left running."""
        words = ("-m", "decodiloco.cli", role, "--config", self.config, "--id", id_)
        log = self.folder / f"{role}-{id_}.log"
        process = Process(log, sys.executable, *words, environment=self._environment)
        self._processes.append(process)
        return process

    def types(self, *words: str, module: str = "decodiloco.cli") -> tuple[int, str, str]:
        """A command that ends: its exit code, stdout and stderr. Never a traceback."""
        done = subprocess.run(
            [sys.executable, "-m", module, *words],
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            env=self._environment,
            cwd=self.folder,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr

    def replay(self, *words: str) -> tuple[int, str, str]:
        return self.types(*words, module="replay.cli")

    def status(self) -> dict[str, Any]:
        code, out, err = self.types("status", self.config, "--json")
        assert code == 0, err
        report: dict[str, Any] = json.loads(out)
        return report

    def stop(self) -> None:
        for process in self._processes:
            process.stop()


@contextmanager
def terminals(
    folder: Path, nats: str, store: str, environment: Mapping[str, str] | None = None
) -> Iterator[Terminals]:
    """Terminals with a run.toml for these places; `store` may carry further settings of here."""
    text = CONFIG.format(texts=TEXTS, nats=nats, store=store)
    (folder / "run.toml").write_text(text, encoding="utf-8")
    opened = Terminals(folder, environment)
    try:
        yield opened
    finally:
        opened.stop()


class Server:
    """The packaged nats-server, started by somebody who is not us."""

    def __init__(self, folder: Path, port: int, jetstream: bool) -> None:
        self.url = f"nats://127.0.0.1:{port}"
        self._port = port
        self._folder = folder
        self._words = ["-a", "127.0.0.1", "-p", str(port)]
        if jetstream:
            config = folder / "theirs.conf"
            config.write_text(f'jetstream {{ store_dir: "{folder}/theirs" }}\n')
            self._words += ["-c", str(config)]
        self.start()

    def start(self) -> None:
        program = str(Path(sys.executable).with_name("nats-server"))
        self._process = Process(self._folder / "theirs.log", program, *self._words)
        until(lambda: answers(self._port), "the NATS server answers")

    def kill(self) -> None:
        """`kill -9`; what it acknowledged is on its disk."""
        self._process.process.kill()
        self._process.process.wait()

    def stop(self) -> None:
        self._process.stop()


@contextmanager
def their_server(folder: Path, jetstream: bool) -> Iterator[Server]:
    """A NATS server with a config of its own (JetStream on), or with the program's defaults."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    server = Server(folder, port, jetstream)
    try:
        yield server
    finally:
        server.stop()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for a condition, with a limit; says what did not happen."""
    clock = threading.Event()  # never set: something to wait on
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen that {what}"
        clock.wait(0.05)


def processes_of(folder: Path) -> list[str]:
    """The command lines of all processes that name a folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(str(folder) in word for word in words):
            found.append(" ".join(words))
    return found
