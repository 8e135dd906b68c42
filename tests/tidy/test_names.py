"""Words that say nothing, and things that are never done here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.tidy.house import PACKAGES, imports_of, python_files, text_of, tracked, tree_of

NO_WORDS = {"utils", "util", "helpers", "helper", "common", "manager", "worker", "epoch"}
NO_FILES = NO_WORDS | {"base"}
NO_IMPORTS = {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve"}
NO_CALLS = {"torch.load", "torch.save", "eval", "exec", "numpy.load", "np.load"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|raise NotImplementedError|pragma: no cover")
THIS = "tests/tidy/test_names.py"


def words_of(name: str) -> set[str]:
    parted = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return {word.lower() for word in parted.split("_")}


def names_defined(path: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id


def calls_of(path: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func)


@pytest.mark.parametrize("path", tracked())
def test_no_file_is_named_after_nothing(path: str) -> None:
    for part in PurePosixPath(path).parts:
        assert not words_of(part.split(".")[0].replace("-", "_")) & NO_FILES, path


@pytest.mark.parametrize("path", python_files())
def test_no_name_uses_a_word_that_says_nothing(path: str) -> None:
    bad = [
        f"{path}:{line} {name}" for line, name in names_defined(path) if words_of(name) & NO_WORDS
    ]
    assert bad == []


@pytest.mark.parametrize("path", [path for path in python_files() if path != THIS])
def test_nothing_is_left_unfinished(path: str) -> None:
    bad = [
        f"{path}:{number} {line.strip()}"
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert bad == []


@pytest.mark.parametrize("path", python_files())
def test_bytes_from_outside_are_never_run(path: str) -> None:
    bad = [f"{path}:{line} {name}" for line, name in imports_of(path) if name in NO_IMPORTS]
    bad += [f"{path}:{line} {name}" for line, name in calls_of(path) if name in NO_CALLS]
    assert bad == []


@pytest.mark.parametrize("path", python_files("tests"))
def test_tests_wait_for_conditions_and_know_no_mocks(path: str) -> None:
    bad = [f"{path}:{line} {name}" for line, name in calls_of(path) if name == "time.sleep"]
    bad += [f"{path}:{line} {name}" for line, name in imports_of(path) if "mock" in name]
    assert bad == []


@pytest.mark.parametrize("path", python_files(*PACKAGES))
def test_settings_come_from_the_config_and_not_from_the_environment(path: str) -> None:
    """Handing the environment on to a child process is allowed, in the room of processes."""
    if path.startswith("decodiloco/local/"):
        return
    bad = [
        f"{path}:{node.lineno} {ast.unparse(node)}"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute | ast.Name)
        and ast.unparse(node) in {"os.environ", "os.getenv", "environ", "getenv"}
    ]
    assert bad == []
