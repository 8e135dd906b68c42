"""The page on growth: its tables are those of its measurements, and laws are what points follow."""

from __future__ import annotations

import json

import pytest

from replay.study.page import filled
from tests.bench.growth_laws import Point, exponent_of, law_of
from tests.bench.growth_page import pictures_of, tables_of
from tests.tidy.house import ROOT

PAGE = ROOT / "docs" / "explanation" / "growth.md"
FOLDER = PAGE.with_suffix("")


def points(figure: str, of: dict[str, float]) -> list[Point]:
    """Points that follow `of["1"] + of["M"] M + of["M P"] M P` exactly."""
    return [
        {
            "learners": float(m),
            "fragments": float(p),
            figure: of["1"] + of["M"] * m + of["M P"] * m * p,
        }
        for m in (2, 8, 32)
        for p in (4, 8, 24)
    ]


def test_the_page_and_its_picture_are_made_of_what_was_measured() -> None:
    taken, text = json.loads((FOLDER / "growth.json").read_text()), PAGE.read_text()

    assert filled(text, tables_of(taken), "growth") == text, "run: python -m tests.bench.growth"
    for name, picture in pictures_of(taken).items():
        assert (FOLDER / f"{name}.svg").read_text() == picture


def test_a_law_that_points_follow_is_found() -> None:
    law = law_of(points("x", {"1": 5.0, "M": 2.0, "M P": 0.5}), "x", ("1", "M", "M P"))

    assert law({"learners": 64.0, "fragments": 24.0}) == pytest.approx(5 + 128 + 768)
    assert law.residual < 1e-9


def test_a_term_that_would_pay_back_is_left_out() -> None:
    law = law_of(points("x", {"1": 40.0, "M": 3.0, "M P": -0.01}), "x", ("1", "M", "M P"))

    assert sorted(law.factors) == ["1", "M"]
    assert 0.0 < law.residual < 0.1


def test_the_residual_is_the_worst_miss_as_a_share() -> None:
    told: list[Point] = [{"learners": m, "x": x} for m, x in ((1.0, 1.0), (2.0, 1.0), (4.0, 1.5))]

    law = law_of(told, "x", ("1",))

    assert law.residual == pytest.approx(max(abs(law(one) / one["x"] - 1) for one in told))


def test_an_exponent_is_that_of_the_power_law() -> None:
    told: list[Point] = [{"n": n, "x": 3.0 * n**1.5} for n in (10.0, 100.0, 1000.0)]

    assert exponent_of(told, "n", lambda p: p["x"]) == pytest.approx(1.5)
