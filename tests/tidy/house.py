"""What the house rules look at: the tracked files, their syntax trees, and which are pure."""

from __future__ import annotations

import ast
import configparser
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("streams", "decodiloco", "replay")


@cache
def tracked() -> tuple[str, ...]:
    """Every file that git has or would add, by its path from the root."""
    told = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return tuple(sorted(path for path in told.splitlines() if (ROOT / path).is_file()))


def python_files(*rooms: str) -> tuple[str, ...]:
    """The Python files below these top folders; all of them without any."""
    return tuple(
        path
        for path in tracked()
        if path.endswith(".py") and (not rooms or path.split("/")[0] in rooms)
    )


def text_of(path: str) -> str:
    """A file's text; empty when it is no text."""
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


@cache
def tree_of(path: str) -> ast.Module:
    """A Python file's syntax tree."""
    return ast.parse(text_of(path), path)


@cache
def pure_files() -> tuple[str, ...]:
    """The ◆ files of the design, as `tests/pure.coverage.ini` lists them."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "tests" / "pure.coverage.ini", encoding="utf-8")
    return tuple(settings["run"]["include"].split())


def imports_of(path: str) -> Iterator[tuple[int, str]]:
    """Each module that a file imports while it runs, with its line; not what only types need."""
    for node in _running(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module


def functions_of(path: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of a file, methods and inner ones too."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _running(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield from _running(child)
