"""The engine and the images of this room: found and made once."""

from __future__ import annotations

import pytest

from tests.containers.engine import Engine, find_engine
from tests.containers.images import made


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The container engine; skips, with the reason, where none answers."""
    found = find_engine()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="session")
def images(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The images of the compose file's variables, on this machine now."""
    return made(engine, tmp_path_factory.mktemp("images"))
