"""Importing the package costs nothing; its three names load when they are used."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "nats", "numpy", "pydantic")


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
