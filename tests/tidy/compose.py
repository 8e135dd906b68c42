"""deploy/compose.yaml as Python sees it: services merged, and the argv of each of our roles."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import yaml

from tests.tidy.house import ROOT

VARIABLE = re.compile(r"\$\{([A-Z_]+)(?::-([^}]*))?\}")
RUN_TOML = "/etc/decodiloco/run.toml"


@cache
def compose() -> dict[str, Any]:
    """The whole file, with anchors and merges resolved."""
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text("utf-8"))
    return loaded


def services() -> dict[str, dict[str, Any]]:
    """Each service by its name."""
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


def roles() -> dict[str, list[str]]:
    """Service name -> argv, for the services that run our image."""
    return {
        name: [*service.get("entrypoint", ["decodiloco"]), *service["command"]]
        for name, service in services().items()
        if "DECODILOCO_IMAGE" in service["image"]
    }


def variables() -> dict[str, str | None]:
    """Each variable of the file and its default."""
    return dict(VARIABLE.findall((ROOT / "deploy/compose.yaml").read_text("utf-8")))
