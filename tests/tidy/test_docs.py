"""The docs: links lead somewhere, and the reference pages are what the code says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.tidy.house import ROOT, text_of, tracked

PAGES = tuple(path for path in tracked() if path.endswith(".md"))
LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = generator()


def anchors_of(text: str) -> set[str]:
    """The anchors of a page's headings, as they are made on a forge."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in HEADING.findall(text)
    }


@pytest.mark.parametrize("path", PAGES)
def test_every_link_leads_somewhere(path: str) -> None:
    for target in LINK.findall(text_of(path)):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        page = (ROOT / path).parent / place if place else ROOT / path
        assert page.exists(), f"{path}: {target}"
        if anchor:
            assert anchor in anchors_of(page.read_text(encoding="utf-8")), f"{path}: {target}"


@pytest.mark.parametrize("name", sorted(GENERATE.PAGES))
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    page = ROOT / "docs" / "reference" / f"{name}.md"
    assert page.read_text(encoding="utf-8") == GENERATE.PAGES[name](), "run: make docs"


def test_every_decision_is_numbered_once_and_says_what_was_tried() -> None:
    decisions = sorted(Path(path).name for path in PAGES if path.startswith("docs/decisions/0"))
    assert [name[:4] for name in decisions] == [
        f"{number:04}" for number in range(1, len(decisions) + 1)
    ]
    for name in decisions:
        headings = HEADING.findall(text_of(f"docs/decisions/{name}"))
        assert {"Decision", "Why", "What it costs"} <= set(headings), name


def test_every_decision_and_how_to_is_linked_from_the_docs_page() -> None:
    linked = set(LINK.findall(text_of("docs/README.md")))
    for path in PAGES:
        if path.startswith("docs/") and path != "docs/README.md":
            assert path.removeprefix("docs/") in linked, path
