"""Importing the package costs nothing, and what is started loads only what it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.tidy.house import ROOT

HEAVY = ("torch", "nats", "numpy", "pydantic")
HEAVIEST = ("torch", "numba", "llvmlite", "sympy", "botocore", "aiobotocore", "s3fs", "matplotlib")
TAPE = str(ROOT / "tests/golden/tapes/live.tape")
ROLES = (
    "decodiloco.syncer.service", "decodiloco.archive.keeper", "decodiloco.metrics.exporter",
    "decodiloco.local.demo", "decodiloco.status", "decodiloco.close", "decodiloco.places",
    "replay.recorder", "replay.live", "replay.follow.showing", "replay.state",
)  # fmt: skip


def told(program: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_loads_neither_torch_nor_nats() -> None:
    assert told(f"import sys, decodiloco; print([m for m in {HEAVY} if m in sys.modules])") == "[]"


def test_the_merge_loads_without_torch() -> None:
    program = "import sys, decodiloco; decodiloco.merge.merge_tensor; print('torch' in sys.modules)"
    assert told(program) == "False"


def test_the_functions_stay_functions_whoever_imports_their_modules() -> None:
    program = (
        "from decodiloco.open_run import open_run\n"
        "import decodiloco, decodiloco.open_run\n"
        "print(decodiloco.open_run is open_run, callable(decodiloco.join))"
    )
    assert told(program) == "True True"


def test_an_unknown_name_is_an_attribute_error() -> None:
    program = (
        "import decodiloco\n"
        "try:\n    decodiloco.epoch\n"
        "except AttributeError as error:\n    print(error)"
    )
    assert told(program) == "module 'decodiloco' has no attribute 'epoch'"


@pytest.mark.parametrize(
    ("command", "arguments", "unwanted"),
    [
        ("decodiloco", ["--help"], (*HEAVIEST, *HEAVY, "asyncio")),
        ("replay", ["--help"], (*HEAVIEST, *HEAVY, "asyncio")),
        ("replay", ["show", TAPE], (*HEAVIEST, "numpy", "nats", "asyncio", "decodiloco.config")),
        ("replay", ["diff", TAPE, TAPE], (*HEAVIEST, "nats")),
    ],
)
def test_a_command_loads_no_more_than_it_needs(
    command: str, arguments: list[str], unwanted: tuple[str, ...]
) -> None:
    program = (
        f"import sys, {command}.cli\n"
        f"sys.argv = {[command, *arguments]}\n"
        f"try:\n    {command}.cli.main()\n"
        "except SystemExit as ended:\n    assert not ended.code, ended.code\n"
        f"print(); print([m for m in {unwanted} if m in sys.modules])"
    )
    assert told(program).splitlines()[-1] == "[]"


def test_a_role_that_does_not_train_loads_no_torch_and_no_compiler() -> None:
    program = f"import sys, {', '.join(ROLES)}; print([m for m in {HEAVIEST} if m in sys.modules])"
    assert told(program) == "[]"


def test_the_first_model_is_made_without_the_compiler_of_torch() -> None:
    program = (
        "import sys\n"
        "from decodiloco.config import Model\n"
        "from decodiloco.training.gpt import build\n"
        "build(Model())\n"
        "print([m for m in ('torch._dynamo', 'sympy') if m in sys.modules])"
    )
    assert told(program) == "[]"
