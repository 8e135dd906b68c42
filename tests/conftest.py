"""How the rooms are run: long tests only when asked for, servers and processes last.

Tests are handed out one at a time, so two of them may run servers or processes beside each other:
each has its own folder, ports and processes, and must bear the other's load.
"""

from __future__ import annotations

import pytest

LAST_ROOMS = ("contract", "chaos", "containers", "geo")
UNMEASURED_ROOMS = ("simulation", "fuzz", *LAST_ROOMS, "tidy")  # too slow under coverage


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests that take minutes, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes minutes; runs with --long (make chaos)")


def room_of(item: pytest.Item) -> str:
    return item.path.relative_to(item.config.rootpath / "tests").parts[0]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    for item in items:
        if room_of(item) in UNMEASURED_ROOMS:
            item.add_marker(pytest.mark.no_cover)
    items.sort(
        key=lambda item: LAST_ROOMS.index(room_of(item)) if room_of(item) in LAST_ROOMS else -1
    )
