"""Words that say nothing, and things that are never done here."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath

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


def found(
    look: Callable[[str], Iterator[tuple[int, str]]], paths: Iterable[str], words: set[str]
) -> list[str]:
    """Where any of the words turns up."""
    return [f"{path}:{line} {name}" for path in paths for line, name in look(path) if name in words]


def test_no_file_is_named_after_nothing() -> None:
    bad = [
        path
        for path in tracked()
        for part in PurePosixPath(path).parts
        if words_of(part.split(".")[0].replace("-", "_")) & NO_FILES
    ]
    assert bad == []


def test_no_name_uses_a_word_that_says_nothing() -> None:
    bad = [
        f"{path}:{line} {name}"
        for path in python_files()
        for line, name in names_defined(path)
        if words_of(name) & NO_WORDS
    ]
    assert bad == []


def test_nothing_is_left_unfinished() -> None:
    bad = [
        f"{path}:{number} {line.strip()}"
        for path in python_files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if UNFINISHED.search(line) and path != THIS
    ]
    assert bad == []


def test_bytes_from_outside_are_never_run() -> None:
    assert found(imports_of, python_files(), NO_IMPORTS) == []
    assert found(calls_of, python_files(), NO_CALLS) == []


def test_tests_wait_for_conditions_and_know_no_mocks() -> None:
    assert found(calls_of, python_files("tests"), {"time.sleep"}) == []
    assert found(imports_of, python_files("tests"), {"mock", "unittest.mock"}) == []


def test_settings_come_from_the_config_and_not_from_the_environment() -> None:
    """Handing the environment on to a child process is allowed, in the room of processes."""
    bad = [
        f"{path}:{node.lineno} {ast.unparse(node)}"
        for path in python_files(*PACKAGES)
        if not path.startswith("decodiloco/local/")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute | ast.Name)
        and ast.unparse(node) in {"os.environ", "os.getenv", "environ", "getenv"}
    ]
    assert bad == []
