"""One TOML, checked once: what is wrong is named, with the nearest thing that is right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from decodiloco.config import Codecs, Config, load_config, parse_config
from decodiloco.errors import ConfigInvalid

RUN: dict[str, Any] = {"name": "trial"}
HERE: dict[str, Any] = {"store": "memory://trial"}


def config(run: dict[str, Any] | None = None, here: dict[str, Any] | None = None) -> Config:
    return parse_config({"run": {**RUN, **(run or {})}, "here": {**HERE, **(here or {})}})


def refusal(run: dict[str, Any] | None = None, here: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigInvalid) as told:
        config(run, here)
    return str(told.value)


def test_the_defaults_are_those_of_the_design() -> None:
    run = config().run
    assert (run.fragments, run.inner_steps, run.quorum, run.learners_min) == (24, 24, 1, 1)
    assert (run.window.gamma, run.window.overlap, run.window.pace_quantile) == (0.8, "auto", 0.5)
    assert (run.outer.lr, run.outer.momentum, run.merge.norm_clip) == (0.7, 0.9, 2.0)
    assert (run.adoption.alpha, run.merge.staleness_versions_max) == (0.0, 1)
    assert run.adoption.carry is False
    assert (run.codecs.delta, run.codecs.fragment) == ("bf16", "fp32")
    assert not run.codecs.feeds_back
    times = run.times
    assert (times.takeover_seconds, times.heartbeat_seconds, times.lost_seconds) == (2, 0.5, 10)
    assert (times.orphan_seconds_max, times.fetch_seconds_max) == (600, 30)


def test_cadences_follow_from_h_and_p_unless_they_are_set() -> None:
    run = config({"fragments": 6, "inner_steps": 12}).run
    assert (run.checkpoint_steps, run.snapshot_every_merges, run.evaluate_every_merges) == (
        12,
        6,
        6,
    )
    run = config(
        {
            "snapshot_merges": 5,
            "training": {"checkpoint_steps": 7, "evaluate_merges": 3},
        }
    ).run
    assert (run.checkpoint_steps, run.snapshot_every_merges, run.evaluate_every_merges) == (7, 5, 3)


def test_the_digest_covers_the_run_and_nothing_of_the_place() -> None:
    one = config().run
    assert config(here={"store": "file:///elsewhere", "threads": 2}).run.digest == one.digest
    assert config({"outer": {"lr": 0.7}}).run.digest == one.digest
    assert config({"outer": {"lr": 0.6}}).run.digest != one.digest
    assert config({"merge": {"norm_clip": "none"}}).run.digest != one.digest


@pytest.mark.parametrize(
    ("run", "told"),
    [
        ({"fragmets": 3}, "config: run.fragmets: no such setting; did you mean fragments?"),
        ({"outer": {"momentun": 0.5}}, "run.outer.momentun: no such setting; did you mean momen"),
        ({"outer": {"zzz": 1}}, "run.outer.zzz: no such setting; known are lr, momentum"),
        ({"quorum": 0}, "run.quorum: 0 should be greater than or equal to 1"),
        ({"name": "No Good"}, "run.name: 'No Good': use 1 to 48 of a-z"),
        ({"outer": {"lr": float("inf")}}, "run.outer.lr"),
        ({"model": {"width": 100, "heads": 3}}, r"heads \(3\) must divide width \(100\)"),
        (
            {"times": {"takeover_seconds": 0.6}},
            "takeover_seconds must be at least 2 x heartbeat_seconds: 0.6 s is less than 1 s",
        ),
        ({"times": {"lost_seconds": 1.5}}, "lost_seconds must be at least takeover_seconds"),
        ({"times": {"orphan_seconds_max": 9}}, "orphan_seconds_max must be at least lost_seconds"),
        ({"window": {"overlap": "most"}}, "run.window.overlap"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_named(run: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigInvalid, match=told):
        config(run)


def test_every_fault_is_told_one_a_line() -> None:
    told = refusal({"quorum": 0, "fragmets": 3}).splitlines()
    assert len(told) == 2
    assert all(line.startswith("config: run.") for line in told)


def test_a_region_that_the_run_does_not_have_is_refused() -> None:
    assert refusal(here={"region": "mars"}) == (
        "config: here.region 'mars' is none of run.regions (home)"
    )


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


GOOD = '[run]\nname = "trial"\n[here]\nstore = "memory://trial"\n'


def test_a_file_is_read_and_overridden_at_the_door(tmp_path: Path) -> None:
    settings = ["outer.lr=0.4", "run.quorum=2", "here.id=a", "end.steps=9", "name=other"]
    one = load_config(write(tmp_path, GOOD), settings)
    assert (one.run.outer.lr, one.run.quorum, one.here.id) == (0.4, 2, "a")
    assert (one.run.end.steps, one.run.name) == (9, "other")


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("outer.lr", "write it as key=value"),
        ("=1", "write it as key=value"),
        ("name.first=a", "name is a value, not a table"),
        ("outer.rate=1", "run.outer.rate: no such setting; known are lr, momentum"),
        ("nowhere.to=1", "run.nowhere: no such setting"),
    ],
)
def test_an_override_that_cannot_be_meant_is_named(tmp_path: Path, setting: str, told: str) -> None:
    with pytest.raises(ConfigInvalid, match=told):
        load_config(write(tmp_path, GOOD), [setting])


def test_a_file_that_is_not_there_or_no_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"config .*none\.toml: No such file"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(ConfigInvalid, match="not TOML"):
        load_config(write(tmp_path, "[run"))


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        config().run.quorum = 2


def test_to_carry_and_to_blend_are_not_set_together() -> None:
    told = "run.adoption: carry = true keeps all work of a learner, alpha = 0.5 a share of it"
    with pytest.raises(ConfigInvalid, match=re.escape(told)):
        config({"adoption": {"carry": True, "alpha": 0.5}})


def test_int4_feeds_back_unless_told_otherwise_and_fp32_has_nothing_to_feed_back() -> None:
    assert Codecs(delta="int4").feeds_back
    assert not Codecs(delta="int4", feedback=False).feeds_back
    assert not Codecs(delta="int8").feeds_back
    assert Codecs(delta="bf16", feedback=True).feeds_back
    with pytest.raises(ValueError, match="fp32 loses nothing"):
        Codecs(delta="fp32", feedback=True)
