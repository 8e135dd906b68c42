"""The ◆ files: no clock, no I/O, no asyncio, no randomness, no logging, and no order by chance."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.tidy.house import ROOT, imports_of, pure_files, python_files, text_of, tree_of

IMPURE = {
    "aiobotocore", "aiohttp", "asyncio", "concurrent", "datetime", "fsspec", "io", "locale",
    "logging", "multiprocessing", "nats", "os", "pathlib", "platform", "psutil", "random", "rich",
    "s3fs", "secrets", "shutil", "signal", "socket", "structlog", "subprocess", "sys", "tempfile",
    "threading", "time", "torch", "typer", "uuid",
}  # fmt: skip
CALLS = {"open", "print", "input", "id", "hash", "breakpoint"}
DRAWS = re.compile(r"\b(np|numpy)\.random\b")
ORDERED = {"list", "tuple", "iter", "enumerate", "map", "filter", "zip", "reversed", "dict"}

ALLOWED = {
    "decodiloco/config.py": {"pathlib"},  # a value that is read at the door, from one file
    "decodiloco/store/codecs.py": {"sys"},  # the byte order of this machine
    "decodiloco/store/tensors.py": {"threading"},  # a lock: chunks are read by several threads
}

# Rooms in which a file is pure unless it is named here as a shell.
PURE_ROOMS = ("decodiloco/fragments/", "decodiloco/merge/", "decodiloco/syncer/")
SHELLS = {
    "decodiloco/fragments/of_model.py",
    "decodiloco/merge/adding.py",
    "decodiloco/merge/ahead.py",
    "decodiloco/merge/carried_out.py",
    "decodiloco/merge/compiled.py",
    "decodiloco/merge/crew.py",
    "decodiloco/merge/fetch.py",
    "decodiloco/merge/fragment.py",
    "decodiloco/merge/kept.py",
    "decodiloco/merge/loading.py",
    "decodiloco/merge/loops.py",
    "decodiloco/merge/one_pass.py",
    "decodiloco/merge/room.py",
    "decodiloco/syncer/carrying.py",
    "decodiloco/syncer/follower.py",
    "decodiloco/syncer/leadership.py",
    "decodiloco/syncer/mergers.py",
    "decodiloco/syncer/reign.py",
    "decodiloco/syncer/service.py",
    "decodiloco/syncer/stored_snapshot.py",
    "decodiloco/syncer/sweeping.py",
}


def is_set(node: ast.AST, names: frozenset[str] = frozenset()) -> bool:
    """Whether an expression is plainly a set: a display, a call of set, or made of such."""
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.BinOp(op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
            return is_set(node.left, names) or is_set(node.right, names)
        case ast.Name(id=name):
            return name in names
        case _:
            return False


def sets_in(scope: ast.AST) -> frozenset[str]:
    """Names that a scope binds to a set, by value or by annotation."""
    names = set()
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_set(value):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind):
                if re.match(r"(frozen)?set\b", ast.unparse(kind)):
                    names.add(name)
            case ast.arg(arg=name, annotation=ast.expr() as kind):
                if re.match(r"(frozen)?set\b", ast.unparse(kind)):
                    names.add(name)
    return frozenset(names)


def walks_over_sets(tree: ast.AST) -> Iterator[ast.AST]:
    """Loops, comprehensions and calls that turn a set into an order."""
    names = sets_in(tree)
    for node in ast.walk(tree):
        match node:
            case ast.For(iter=walked) | ast.comprehension(iter=walked) | ast.Starred(value=walked):
                if is_set(walked, names):
                    yield walked
            case ast.Call(func=ast.Name(id=name), args=[walked, *_]) if name in ORDERED:
                if is_set(walked, names):
                    yield walked
            case ast.Call(func=ast.Attribute(attr="join" | "pop"), args=[walked]):
                if is_set(walked, names):
                    yield walked
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="pop"), args=[]):
                if name in names:
                    yield node


def test_a_pure_file_imports_nothing_of_the_world() -> None:
    bad = [
        f"{path}:{line} {name}"
        for path in pure_files()
        for line, name in imports_of(path)
        if name.split(".")[0] in IMPURE - ALLOWED.get(path, set())
    ]
    assert bad == []


def test_a_pure_file_calls_nothing_of_the_world() -> None:
    bad = []
    for path in pure_files():
        for node in ast.walk(tree_of(path)):
            match node:
                case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                    bad.append(f"{path}:{node.lineno} {name}")
                case ast.AsyncFunctionDef() | ast.Await():
                    bad.append(f"{path}:{node.lineno} waits")
        bad += [f"{path} {drawn}" for drawn in DRAWS.findall(text_of(path))]
    assert bad == []


def test_a_pure_file_never_walks_over_a_set() -> None:
    bad = [
        f"{path}: {ast.unparse(node)}"
        for path in pure_files()
        for node in walks_over_sets(tree_of(path))
    ]
    assert bad == []


@pytest.mark.parametrize(
    "line",
    [
        "for x in {1, 2}: pass",
        "[x for x in set(y)]",
        "list(a - set(b))",
        "tuple({x for x in y})",
        "','.join(set(y))",
        "s: set[int] = f()\nfor x in s: pass",
        "def f(s: frozenset[int]):\n    return [*s]",
        "s = {1}\ns.pop()",
    ],
)
def test_this_test_sees_a_walk_over_a_set(line: str) -> None:
    assert list(walks_over_sets(ast.parse(line)))


@pytest.mark.parametrize(
    "line", ["sorted({1, 2})", "for x in sorted(set(y)): pass", "len({1})", "2 in {1, 2}"]
)
def test_this_test_lets_sets_be_used_as_sets(line: str) -> None:
    assert not list(walks_over_sets(ast.parse(line)))


def test_every_file_of_a_pure_room_is_listed_as_pure_or_named_a_shell() -> None:
    unlisted = [
        path
        for path in python_files("decodiloco")
        if path.startswith(PURE_ROOMS)
        and not path.endswith("__init__.py")
        and path not in pure_files()
        and path not in SHELLS
    ]
    assert unlisted == [], "add to tests/pure.coverage.ini, or to SHELLS here"


def test_what_is_listed_is_there() -> None:
    for path in (*pure_files(), *sorted(SHELLS), *ALLOWED):
        assert (ROOT / path).is_file(), path
    assert not SHELLS & set(pure_files())


def test_the_import_contract_names_the_same_pure_modules() -> None:
    modules = {path.removesuffix(".py").replace("/", ".") for path in pure_files()}
    section = text_of(".importlinter").split("[importlinter:contract:pure]")[1]
    listed = section.split("source_modules =")[1].split("forbidden_modules =")[0].split()
    assert set(listed) == modules
