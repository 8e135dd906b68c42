"""Secrets planted wherever a config or an address may hold one: no command ever tells them.

Every command fails here, each in the way that its place or its file makes it fail, since failures
are what talks. What a run that goes well leaves behind is searched in `test_doors_run`.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from decodiloco import cli
from decodiloco.config import Config, load_config
from decodiloco.keys import Wanted, make_keys
from decodiloco.places import check_places
from replay import cli as replay_cli
from streams.address import parse_address

MARK = "7fzq"  # stands in every secret, and nowhere else
USER, PASSWORD = f"user{MARK}", f"pass{MARK}"
NATS = f"nats://{USER}:{PASSWORD}@127.0.0.1:1"
S3 = f"s3://key{MARK}:secret{MARK}@bucket/prefix"
ENDPOINT = f"http://{USER}:{PASSWORD}@127.0.0.1:1"

CONFIGS = {
    "a server with a password": f'nats = "{NATS}"\nstore = "file:///dev/null/nowhere"',
    "a store with a secret": f'store = "{S3}"',
    "a store's server with a password": f'store = "s3://bucket/x"\nstore_endpoint = "{ENDPOINT}"',
    "a line that is cut": f'nats = "{NATS}\nstore = "file:///dev/null/nowhere"',
    "a password in a table": f'store = "file:///dev/null/nowhere"\n[here.nats]\nurl = "{NATS}"',
    "a list of addresses": f'store = "file:///dev/null/nowhere"\nnats = ["{NATS}"]',
    "a store that is none": f'store = "{S3.replace("s3:", "s4:")}"',
    "an address with a slash too few": f'store = "f"\nnats = "{NATS.replace("//", "/")}"',
    "a password with a comma": f'store = "f"\nnats = "nats://{USER}:{PASSWORD},x@127.0.0.1:1"',
    "an unknown setting": f'store = "file:///dev/null/nowhere"\npassword = "{NATS}"',
    "a query that is none": f'store = "file:///dev/null/nowhere"\nnats = "{NATS}?token=1"',
}
COMMANDS = {
    "decodiloco": (
        ("open", "--config"),
        ("syncer", "--id", "s", "--config"),
        ("learner", "--id", "a", "--config"),
        ("evaluator", "--id", "e", "--config"),
        ("doctor", "--json", "--config"),
        ("keys", "--s3-policies", "--out", "keys"),
        ("status",),
        ("close",),
        ("retain", "--keep-merges", "9"),
        ("exporter", "--listen", "127.0.0.1:0"),
        ("archive", "--once"),
        ("restore", "--config"),
    ),
    "replay": (
        ("record", "-o", "x.tape"),
        ("show",),
        ("state",),
        ("verify", "--json"),
        ("diff", "x"),
        ("follow", "--verify"),
    ),
}
QUICK = ("open", "status", "doctor", "record")  # where each command waits for a server
MAINS: dict[str, Callable[[], None]] = {"decodiloco": cli.main, "replay": replay_cli.main}


class Shell:
    """Types commands in a folder, and keeps all that can be read of them."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], folder: Path
    ) -> None:
        self._monkeypatch, self._capfd, self.folder = monkeypatch, capfd, folder
        monkeypatch.chdir(folder)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"ID{MARK}")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"secret/{MARK}")
        monkeypatch.setenv("AWS_SESSION_TOKEN", f"token{MARK}")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    def types(self, program: str, *words: str) -> str:
        """What was printed, logged and raised."""
        self._monkeypatch.setattr(sys, "argv", [program, *words])
        self._capfd.readouterr()
        raised = ""
        try:
            MAINS[program]()
        except (Exception, SystemExit) as error:
            raised = "".join(traceback.format_exception(error)) + repr(error)
        finally:
            structlog.reset_defaults()
        said = self._capfd.readouterr()
        return said.out + said.err + raised

    def files(self) -> Iterator[tuple[Path, bytes]]:
        """All that lies in the folder, but for what holds secrets by right."""
        for path in self.folder.rglob("*"):
            if path.is_file() and path.name != "run.toml" and path.suffix != ".nk":
                yield path, path.read_bytes()

    def config(self, here: str) -> str:
        path = self.folder / "run.toml"
        path.write_text(f'[run]\nname = "trial"\n[here]\n{here}\n')
        return str(path)


@pytest.fixture
def shell(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Shell:
    return Shell(monkeypatch, capfd, tmp_path)


def assert_silent(shell: Shell, told: str, words: object) -> None:
    assert MARK.lower() not in told.lower(), f"{words} told: {told}"
    for path, held in shell.files():
        assert MARK.encode() not in held, f"{words} left it in {path}"


@pytest.mark.parametrize("what", CONFIGS)
def test_no_command_tells_a_secret_of_its_config(shell: Shell, what: str) -> None:
    config = shell.config(CONFIGS[what])
    is_slow = what in (*list(CONFIGS)[:3], "a store that is none")
    for program, commands in COMMANDS.items():
        for words in commands:
            if is_slow and words[0] not in QUICK:
                continue
            typed = (*words, config)
            told = shell.types(program, *typed)
            assert told, typed
            assert_silent(shell, told, typed)


ADDRESSES = (
    f"{NATS}/trial",
    NATS,
    f"{NATS}/trial?key=none.nk",
    f"{NATS}/trial?token=x",
    NATS.replace("nats:", "http:") + "/trial",
    NATS.replace("//", "/") + "/trial",
    f"nats://{USER}:{PASSWORD},x@127.0.0.1:1/trial",
)


@pytest.mark.parametrize("place", ADDRESSES)
def test_no_command_tells_a_secret_of_an_address(shell: Shell, place: str) -> None:
    for program, words in (
        ("decodiloco", ("status", place)),
        ("decodiloco", ("close", place)),
        ("decodiloco", ("retain", place, "--keep-merges", "9")),
        ("decodiloco", ("exporter", place)),
        ("decodiloco", ("archive", place, "--once")),
        ("replay", ("follow", place)),
        ("replay", ("record", place, "-o", "x.tape")),
        ("replay", ("verify", place, "--store", S3)),
        ("replay", ("state", place, "--store-endpoint", ENDPOINT)),
    ):
        assert_silent(shell, shell.types(program, *words), words)


@pytest.mark.parametrize(
    "setting",
    [f"here.nats={NATS}", f"here.store={S3}", f"here.nats={NATS}/x", f"here.store={NATS}", NATS],
)
def test_no_command_tells_a_secret_that_was_set_at_the_door(shell: Shell, setting: str) -> None:
    config = shell.config('store = "file:///dev/null/nowhere"\nnats = "nats://127.0.0.1:1"')
    for words in (("open",), ("learner", "--id", "a"), ("doctor",)):
        typed = (*words, "--config", config, "--set", setting)
        assert_silent(shell, shell.types("decodiloco", *typed), typed)


@pytest.mark.parametrize("spoil", ["a letter", "a line", "its role", "open to all"])
def test_no_command_tells_the_seed_of_a_key(shell: Shell, spoil: str) -> None:
    config = load_config(
        shell.config('store = "file:///dev/null/nowhere"\nnats = "nats://127.0.0.1:1"')
    )
    make_keys(config, shell.folder / "keys", [Wanted("learner", "a")])
    path = shell.folder / "keys" / "learner-a.nk"
    lines = path.read_text().splitlines()
    seed = lines[-1]
    match spoil:
        case "a letter":
            lines[-1] = seed[:20] + ("A" if seed[20] != "A" else "B") + seed[21:]
        case "a line":
            lines[-1] = f"{seed[:30]}\n{seed[30:]}"
        case "its role":
            lines = [line.replace("role: learner", f"role: {seed}") for line in lines]
        case _:
            path.chmod(0o644)
    path.write_text("\n".join(lines) + "\n")
    for role in ("learner", "syncer"):
        typed = (role, "--id", "a", "--config", str(shell.folder / "run.toml"),
                 "--set", f"here.nats_key={path}")  # fmt: skip
        told = shell.types("decodiloco", *typed)
        assert told and seed[5:25] not in told and seed[35:] not in told, told


def test_what_holds_a_secret_does_not_show_it(shell: Shell) -> None:
    config: Config = load_config(
        shell.config(f'nats = "{NATS}"\nstore = "file:///dev/null/nowhere"')
    )
    shown = [repr(config), str(config), repr(config.here), repr(parse_address(NATS))]
    with pytest.raises(Exception) as caught:
        check_places(load_config(shell.config(f'store = "{S3}"\nnats = "{NATS}?key=none.nk"')))
    shown += [repr(caught.value), *map(repr, caught.value.args)]
    assert not [text for text in shown if MARK in text]
