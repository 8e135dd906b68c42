"""What a demo runs and when it is hurt, its settings, and whether a folder can be continued."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path

import pytest

from decodiloco import cli
from decodiloco.config import Config, load_config, parse_config
from decodiloco.errors import ConfigDiffers, ConfigInvalid
from decodiloco.local.demo import Asked, demo_config, run_name
from decodiloco.local.folder import (
    answers,
    check_same_run,
    held,
    summary_there,
    wants_server,
    write_config,
    write_summary,
)
from decodiloco.local.plan import (
    Kill,
    archive_role,
    evaluator_role,
    kills_of,
    learner_ids,
    learner_roles,
    merger_ids,
    merger_roles,
    recorder_role,
    still_to_come,
    syncer_ids,
    syncer_roles,
    victim,
)
from decodiloco.local.settings import LEARNERS, STEPS, as_toml, asked_settings, differences
from streams.errors import AskedWrongly, Trouble
from streams.events import HardshipInjected
from tests.builders import hardship

IDS = ("a", "b", "c", "syncer-1", "syncer-2")


def config_in(folder: Path, **fields: object) -> Config:
    asked = Asked(folder, **fields)
    return demo_config(asked)


def struck(target: str, step: int) -> HardshipInjected:
    fact = hardship("kill", target, seed=step)
    assert isinstance(fact, HardshipInjected)
    return fact


def test_by_default_a_learner_dies_at_a_quarter_and_the_syncer_at_a_half() -> None:
    assert kills_of((), 90, IDS) == (Kill("learner", 22), Kill("syncer", 45))


def test_kills_are_struck_in_the_order_of_their_steps() -> None:
    assert kills_of(("syncer@60", "b@40"), 90, IDS) == (Kill("b", 40), Kill("syncer", 60))


def test_none_asks_for_no_kill() -> None:
    assert kills_of(("none",), 90, IDS) == ()


@pytest.mark.parametrize("text", ["learner", "learner@", "@4", "learner@-1", "LEARNER@4", "x@4"])
def test_a_kill_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="--kill"):
        kills_of((text,), 90, IDS)


def test_a_kill_after_the_end_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="ends at step 90"):
        kills_of(("learner@90",), 90, IDS)


def test_a_kill_strikes_the_last_living_learner_or_the_leader() -> None:
    assert victim(Kill("learner", 1), ("a", "c"), "syncer-2") == "c"
    assert victim(Kill("syncer", 1), ("a", "c"), "syncer-2") == "syncer-2"
    assert victim(Kill("a", 1), ("a", "c"), "syncer-2") == "a"
    assert victim(Kill("b", 1), ("a", "c"), "syncer-2") is None
    assert victim(Kill("syncer", 1), ("a", "c"), None) is None


def test_a_kill_that_stands_on_the_tape_is_not_struck_again() -> None:
    kills = (Kill("learner", 22), Kill("syncer", 45))
    assert still_to_come(kills, [struck("c", 22)], syncer_ids(2)) == (Kill("syncer", 45),)
    assert still_to_come(kills, [struck("syncer-1", 22)], syncer_ids(2)) == kills
    assert still_to_come((Kill("b", 3),), [struck("b", 3)], syncer_ids(2)) == ()


def test_learners_are_named_by_letters_while_they_last() -> None:
    assert learner_ids(3) == ("a", "b", "c")
    assert learner_ids(27)[-1] == "l027"
    with pytest.raises(ConfigInvalid):
        learner_ids(0)


def test_there_are_as_many_mergers_as_were_asked_for_and_none_unasked() -> None:
    assert (merger_ids(0), merger_ids(2)) == ((), ("m1", "m2"))
    for count in (-1, 17):
        with pytest.raises(ConfigInvalid, match=f"--mergers {count}: one machine runs 0 to 16"):
            merger_ids(count)


def test_every_role_runs_a_command_on_the_run_folder() -> None:
    roles = [*syncer_roles("r", 1), *merger_roles("r", 1), *learner_roles("r", 1)]
    roles.append(evaluator_role("r"))
    roles += [recorder_role("r"), archive_role("r"), archive_role("r", follow=False)]
    assert [(role.name, role.module, " ".join(role.arguments)) for role in roles] == [
        ("syncer-1", "decodiloco.cli", "syncer --config r/run.toml --id syncer-1"),
        ("merger-m1", "decodiloco.cli", "merger --config r/run.toml --id m1"),
        ("learner-a", "decodiloco.cli", "learner --config r/run.toml --id a"),
        ("evaluator", "decodiloco.cli", "evaluator --config r/run.toml"),
        ("recorder", "replay.cli", "record r -o r/run.tape --follow"),
        ("archive", "decodiloco.cli", "archive r"),
        ("archive", "decodiloco.cli", "archive r --once"),
    ]


def test_what_is_written_as_toml_reads_back_the_same() -> None:
    tables = {
        "run": {"name": "x", "regions": ["home", "away"], "outer": {"lr": 0.5}, "fragments": 3},
        "here": {"store": 'file:///a "quoted"\\path\n', "threads": 2},
        "flag": {"on": True, "off": False, "small": 1e-06},
    }
    assert tomllib.loads(as_toml(tables)) == tables


def test_a_written_config_is_the_config_that_was_asked_for(tmp_path: Path) -> None:
    asked = config_in(tmp_path, data="/texts/**/*.txt")
    assert write_config(tmp_path, asked_settings(asked)) == asked
    assert load_config(tmp_path / "run.toml").run.digest == asked.run.digest


def test_a_demo_is_named_after_its_folder(tmp_path: Path) -> None:
    assert run_name(tmp_path / "My Runs.7") == "my-runs-7"
    assert run_name(tmp_path / "---") == "demo"


def test_the_same_settings_continue_a_run_wherever_its_server_is(tmp_path: Path) -> None:
    write_config(tmp_path, asked_settings(config_in(tmp_path)))
    check_same_run(tmp_path, config_in(tmp_path, nats="nats://127.0.0.1:4999"))


def test_other_settings_for_a_run_that_exists_are_refused_by_name(tmp_path: Path) -> None:
    write_config(tmp_path, asked_settings(config_in(tmp_path)))
    with pytest.raises(ConfigDiffers) as refusal:
        check_same_run(tmp_path, config_in(tmp_path, steps=90, learners=2))
    told = str(refusal.value)
    assert "run.end.steps: 150 there, 90 asked" in told
    assert "run.learners_min: 3 there, 2 asked" in told
    assert refusal.value.exit_code == 2


def test_the_command_has_the_defaults_of_the_settings() -> None:
    defaults = inspect.signature(cli.demo).parameters
    assert (defaults["learners"].default, defaults["steps"].default) == (LEARNERS, STEPS)


def test_another_store_is_a_difference() -> None:
    tables = {"run": {"name": "x"}, "here": {"store": "file:///one"}}
    other = {"run": {"name": "x"}, "here": {"store": "file:///two"}}
    assert differences(parse_config(tables), parse_config(other)) == [
        "here.store: 'file:///one' there, 'file:///two' asked"
    ]


def test_a_folder_is_held_by_one_start_at_a_time(tmp_path: Path) -> None:
    with held(tmp_path), pytest.raises(AskedWrongly, match="another demo"), held(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(Trouble, match="--dir"), held(tmp_path / "file" / "run"):
        pass


def test_a_summary_is_kept(tmp_path: Path) -> None:
    assert summary_there(tmp_path) is None
    write_summary(tmp_path, {"merges": 3})
    assert summary_there(tmp_path) == {"merges": 3}


def test_a_server_is_embedded_only_here_and_only_where_nobody_answers() -> None:
    assert wants_server("nats://127.0.0.1:0")
    assert not wants_server("nats://nats.example:4222")
    assert not answers("nats://127.0.0.1:0")
