"""Every wait stands in its layer's table, says what is waited for, and keeps its order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from decodiloco import times as run_times
from decodiloco.config import Times
from decodiloco.time_orders import FIXED, SETTINGS, WAITS
from replay import times as proof_times
from streams import times as record_times
from streams.times import Seconds, waits_in
from tests.tidy.house import ROOT

TABLES = {
    "streams/times.py": record_times,
    "decodiloco/times.py": run_times,
    "replay/times.py": proof_times,
}
NO_WAITS = {
    "decodiloco/syncer/offer_gates.py": "a bound on what a word may say",
    "streams/pulse.py": "a bound on what a heartbeat may say",
    "decodiloco/metrics/families.py": "edges of histograms",
    "replay/invariants": "how far two clocks or floats may be apart",
    "replay/goodput": "units, and costs of a simulated cluster",
    "replay/study": "a simulated clock",
    "replay/synthetic": "a simulated clock",
    "replay/world": "a simulated clock",
}
PAUSE_SECONDS_MAX = 0.1  # between two looks at a condition: not a wait that ends by itself
WAITING = {"timeout", "settimeout", "wait_for", "create_connection", "sleep", "wait", "join"}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for package in ("streams", "decodiloco", "replay"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name not in TABLES and not name.startswith(tuple(NO_WAITS)):
                yield name, ast.parse(path.read_text(encoding="utf-8"))


def number(node: ast.AST | None) -> float | None:
    """The value of a literal number, also of a product of some."""
    try:
        value = ast.literal_eval(node) if node is not None else None
    except ValueError:
        if isinstance(node, ast.BinOp):
            left, right = number(node.left), number(node.right)
            return None if left is None or right is None else left * right
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None


def named_numbers(tree: ast.Module) -> Iterator[str]:
    """Module-level names with SECONDS in them that are plain numbers."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if isinstance(node, ast.AnnAssign):
            targets = (node.target,)
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and re.search(r"SECONDS", name.id):
                    yield f"{name.id} at line {node.lineno}"


def literal_waits(tree: ast.Module) -> Iterator[str]:
    """Calls that wait for a number of seconds that is written where it is used."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        told = [
            word.value for word in node.keywords if re.search("timeout|seconds", word.arg or "")
        ]
        told += node.args if name in WAITING else []
        for value in told:
            seconds = number(value)
            if seconds is not None and seconds > PAUSE_SECONDS_MAX:
                yield f"{name}({seconds:g}) at line {node.lineno}"


def literal_defaults(tree: ast.Module) -> Iterator[str]:
    """Parameters of functions with a number of seconds as their default."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            places, words = node.args, node.args.kwonlyargs
            every = [*places.posonlyargs, *places.args]
            last = every[len(every) - len(places.defaults) :]
            pairs = list(zip((*last, *words), (*places.defaults, *places.kw_defaults), strict=True))
            for argument, default in pairs:
                seconds = number(default)
                if re.search("seconds|timeout", argument.arg) and seconds:
                    yield f"{argument.arg} = {seconds:g} at line {node.lineno}"


def test_no_wait_stands_outside_its_layers_table() -> None:
    found = [
        f"{name}: {told}"
        for name, tree in sources()
        for told in (*named_numbers(tree), *literal_waits(tree), *literal_defaults(tree))
    ]

    assert not found, (
        "put these into streams/times.py, decodiloco/times.py or replay/times.py: "
        + ("; ".join(found))
    )


@pytest.mark.parametrize("path", TABLES)
def test_every_wait_says_what_it_waits_for_and_what_then(path: str) -> None:
    module = TABLES[path]
    names = [name for name in vars(module) if "SECONDS" in name]

    assert names == list(waits_in(vars(module)))
    for name in names:
        wait = getattr(module, name)
        assert isinstance(wait, Seconds)
        assert wait > 0
        for words in (wait.waits_for, wait.then):
            assert words, name
            assert not words.endswith("."), name
            assert "|" not in words, name


def test_no_two_waits_of_record_and_run_share_a_name() -> None:
    assert len(WAITS) == len(waits_in(vars(record_times))) + len(waits_in(vars(run_times)))


def test_every_wait_is_read_by_somebody() -> None:
    text = "\n".join(
        path.read_text(encoding="utf-8")
        for package in ("streams", "decodiloco", "replay")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.relative_to(ROOT).as_posix() not in (*TABLES, "decodiloco/time_orders.py")
    )
    tables = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in TABLES)
    for module in TABLES.values():
        for name in waits_in(vars(module)):
            word = re.compile(rf"\b{name}\b")
            assert word.search(text) or len(word.findall(tables)) > 1, f"nobody reads {name}"


@pytest.mark.parametrize("order", FIXED, ids=lambda order: f"{order.less.name}-{order.more.name}")
@pytest.mark.parametrize(
    "times",
    [
        Times(),
        Times(takeover_seconds=1.0),
        Times(takeover_seconds=0.4, heartbeat_seconds=0.1, lost_seconds=20.0),
        Times(heartbeat_seconds=30.0, takeover_seconds=60.0, lost_seconds=60.0),
    ],
    ids=["default", "least", "quick", "slow"],
)
def test_an_order_of_fixed_and_derived_waits_holds_for_every_config(
    order: object, times: Times
) -> None:
    assert order.broken(times) is None  # type: ignore[attr-defined]


def test_an_order_of_settings_is_broken_with_both_values_and_the_reason() -> None:
    wrong = Times.model_construct(
        heartbeat_seconds=0.5, takeover_seconds=0.75, lost_seconds=0.5, orphan_seconds_max=0.25
    )

    assert [order.broken(wrong) for order in SETTINGS] == [
        "takeover_seconds must be at least 2 x heartbeat_seconds: 0.75 s is less than 1 s; one "
        "heartbeat that is late must not end a reign",
        "lost_seconds must be at least takeover_seconds: 0.5 s is less than 0.75 s; while nobody "
        "leads, no learner's silence may count against it",
        "orphan_seconds_max must be at least lost_seconds: 0.25 s is less than 0.5 s; a learner "
        "must not give up before others may give it up",
    ]
