"""The method: decoupled DiLoCo.

    decodiloco.open_run("run.toml", model)     opens a run with your model
    decodiloco.join("run.toml", ...)           joins it from any training loop
    decodiloco.merge                           the arithmetic, on numpy arrays

These load when they are first used: importing the package loads neither torch nor NATS.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decodiloco import merge as merge
    from decodiloco.learner.session import join as join
    from decodiloco.open_run import open_run as open_run

__all__ = ["join", "merge", "open_run"]

_FUNCTIONS = {"join": "decodiloco.learner.session", "open_run": "decodiloco.open_run"}


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(_FUNCTIONS[name]), name)
    if name == "merge":
        return importlib.import_module("decodiloco.merge")
    raise AttributeError(f"module 'decodiloco' has no attribute {name!r}")


class _Package(ModuleType):
    """Keeps `decodiloco.open_run` the function when the module of that name is imported.

    The import system binds a module to its package's attribute of the same name.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "open_run" and isinstance(value, ModuleType):
            value = value.open_run
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
