"""What others may use: documented, listed, and cheap to import."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys

import pytest

from decodiloco.config import Config, Table
from tests.tidy.house import PACKAGES, python_files, tree_of

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def public(body: list[ast.stmt]) -> list[Definition]:
    return [node for node in body if isinstance(node, Definition) and not node.name.startswith("_")]


def is_short(node: Definition) -> bool:
    """A function whose name can say it all."""
    return not isinstance(node, ast.ClassDef) and len(node.body) == 1


def test_a_module_says_what_it_is() -> None:
    mute = [
        path
        for path in python_files()
        if not ast.get_docstring(tree_of(path))
        and not (path.startswith("tests/") and path.endswith("__init__.py"))
    ]
    assert mute == []


def test_whatever_is_public_has_a_docstring() -> None:
    bare = [
        f"{path}:{node.lineno} {node.name}"
        for path in python_files(*PACKAGES)
        for node in public(tree_of(path).body)
        if not ast.get_docstring(node) and not is_short(node)
    ]
    assert bare == []


def offered_by(path: str) -> set[str]:
    """The public names that a package's `__init__` defines, or takes from our own modules."""
    body = tree_of(path).body
    return {node.name for node in public(body)} | {
        alias.asname or alias.name
        for node in body
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES
        for alias in node.names
    }


def test_a_package_lists_exactly_what_it_offers() -> None:
    for path in python_files(*PACKAGES):
        if path.endswith("/__init__.py"):
            name = path.removesuffix("/__init__.py").replace("/", ".")
            module = importlib.import_module(name)
            listed = set(getattr(module, "__all__", ()))
            assert offered_by(path) <= listed, f"{path}: __all__ lacks some"
            assert all(getattr(module, each) is not None for each in listed)


def test_importing_the_packages_loads_neither_torch_nor_nats() -> None:
    code = (
        "import sys, streams, decodiloco, replay\n"
        "print(sorted({'torch', 'nats', 'numpy', 's3fs'} & set(sys.modules)))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout.strip() == "[]"


def tables(table: type[Table]) -> list[type[Table]]:
    inner = [
        field.annotation
        for field in table.model_fields.values()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Table)
    ]
    return [table, *(found for one in inner for found in tables(one))]


@pytest.mark.parametrize("table", tables(Config), ids=lambda table: table.__name__)
def test_every_setting_is_documented(table: type[Table]) -> None:
    assert table.__doc__
    for name, field in table.model_fields.items():
        is_table = isinstance(field.annotation, type) and issubclass(field.annotation, Table)
        assert is_table or (field.description or "").endswith("."), f"{table.__name__}.{name}"
