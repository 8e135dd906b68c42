"""Alerts, dashboard, runbooks and the table of metrics name the same things."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from decodiloco.metrics.families import BY_NAME, FAMILIES, PREFIX, Family
from tests.tidy.house import text_of

ALERTS = "deploy/grafana/alerts.yml"
DASHBOARD = "deploy/grafana/dashboard.json"
RUNBOOK = "docs/how-to/alerts.md"
NAME = re.compile(rf"{PREFIX}[a-z_]+")
LABELS = re.compile(rf"({PREFIX}[a-z_]+)\{{([^}}]*)\}}")


def series_of(family: Family) -> tuple[str, ...]:
    """The names under which a query finds a family."""
    if family.kind == "histogram":
        return tuple(f"{family.full_name}_{part}" for part in ("bucket", "sum", "count"))
    return (family.full_name,)


SERIES = {name: family for family in FAMILIES for name in series_of(family)}


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(text_of(ALERTS))["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def shown() -> str:
    """Every expression of the dashboard."""
    board = json.loads(text_of(DASHBOARD))
    panels = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    marks = [mark["expr"] for mark in board["annotations"]["list"]]
    asked = [each.get("definition", "") for each in board["templating"]["list"]]
    return "\n".join(panels + marks + asked)


def test_alerts_and_dashboard_name_only_metrics_that_there_are() -> None:
    for text in (*(rule["expr"] for rule in alerts()), shown()):
        assert set(NAME.findall(text)) - set(SERIES) == set()


def test_the_dashboard_shows_every_metric() -> None:
    named = {SERIES[name].name for name in NAME.findall(shown())}
    assert set(BY_NAME) - named == set()


def test_a_selector_uses_labels_that_its_metric_has() -> None:
    text = "\n".join((*(rule["expr"] for rule in alerts()), shown()))
    for name, matchers in LABELS.findall(text):
        used = {matcher.split("=")[0].strip("~! ") for matcher in matchers.split(",")}
        assert used <= {"run", *SERIES[name].labels}, (name, used)


def test_every_alert_has_its_page() -> None:
    headings = re.findall(r"^## (\w+)$", text_of(RUNBOOK), re.MULTILINE)
    assert headings == [rule["alert"] for rule in alerts()]
    for rule in alerts():
        assert rule["annotations"]["runbook"] == f"{RUNBOOK}#{rule['alert'].lower()}"


def test_metric_names_end_in_their_units() -> None:
    for family in FAMILIES:
        assert "milli" not in family.name and not family.name.endswith("_ms")
        if family.kind == "histogram":
            assert family.name.endswith("_seconds") and family.bounds == tuple(
                sorted(family.bounds)
            )
