"""deploy/slurm, systemd and skypilot: the commands and options that they type exist."""

from __future__ import annotations

import configparser
import importlib
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from tests.tidy.house import ROOT, text_of

SBATCH = "deploy/slurm/learners.sbatch"
UNITS = sorted(path.name for path in (ROOT / "deploy" / "systemd").glob("*.service"))
SKYPILOT = "deploy/skypilot/learner.yaml"


def parsed(line: str) -> Any:
    """What our command line makes of a line that types it, variables taken for ids."""
    words = shlex.split(line.split("decodiloco ", 1)[1])
    plain = [re.sub(r"\$\{?\w+\}?|%i", "7", word) for word in words]
    app: Any = get_command(importlib.import_module("decodiloco.cli").app)
    return app.commands[plain[0]].make_context(plain[0], plain[1:])


def test_slurm_types_a_command_that_there_is() -> None:
    text = text_of(SBATCH).replace("\\\n", " ")
    (line,) = re.findall(r"srun (.*) & early", text)
    told = parsed(line)
    assert told.info_name == "learner"
    assert told.params["id_"] == "learner-7"
    assert told.params["settings"] == ["here.threads=7"]
    subprocess.run(["bash", "-n", str(ROOT / SBATCH)], check=True)


SRUN = """#!/bin/sh
trap 'exit 0' TERM
echo begun
[ -n "$ENDS" ] && exit "$ENDS"
while :; do sleep 0.01; done
"""


@pytest.mark.parametrize(
    ("ends", "is_queued_again"), [("0", False), ("2", False), ("3", True), ("", True)]
)
def test_a_task_is_queued_again_unless_the_run_is_closed(
    tmp_path: Path, ends: str, is_queued_again: bool
) -> None:
    for name, text in (("srun", SRUN), ("scontrol", '#!/bin/sh\necho "$@"\n')):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    task = subprocess.Popen(
        ["bash", str(ROOT / SBATCH), "run.toml"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "ENDS": ends,
             "SLURM_ARRAY_TASK_ID": "3", "SLURM_JOB_ID": "71"},
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert task.stdout is not None and task.stdout.readline() == "begun\n"
    if not ends:
        task.send_signal(signal.SIGTERM)  # the time limit comes
    said = task.stdout.read()  # communicate() would miss what readline() has buffered
    task.wait(20)
    assert said == ("requeue 71\n" if is_queued_again else "")


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_types_a_command_that_there_is(unit: str) -> None:
    settings = configparser.ConfigParser(interpolation=None, strict=False)
    settings.optionxform = str  # type: ignore[assignment, method-assign]
    settings.read(ROOT / "deploy" / "systemd" / unit)
    service = settings["Service"]
    told = parsed(service["ExecStart"].replace("/opt/decodiloco/bin/", ""))
    assert told.info_name in unit and told.params["id_"] == "7"
    assert str(told.params["config"]) == "/etc/decodiloco/run.toml"
    assert service["RestartPreventExitStatus"] == "2"
    assert int(service["TimeoutStopSec"]) >= 30


def test_there_is_a_unit_for_learners_for_mergers_and_for_syncers() -> None:
    assert UNITS == [
        "decodiloco-learner@.service",
        "decodiloco-merger@.service",
        "decodiloco-syncer@.service",
    ]


def test_skypilot_types_a_command_that_there_is() -> None:
    task = yaml.safe_load(text_of(SKYPILOT))
    lines = task["run"].replace("\\\n", " ").splitlines()
    (line,) = [line for line in lines if "bin/decodiloco" in line]
    told = parsed(line.split("bin/", 1)[1])
    assert told.info_name == "learner"
    assert told.params["settings"] == ["here.device=cuda", "here.threads=8"]
    assert "LEARNER" in task["envs"] and '"$LEARNER"' in line
    assert task["workdir"] == "." and task["resources"]["use_spot"] is True
    assert 143 in task["resources"]["job_recovery"]["recover_on_exit_codes"]


SPOT = """#!/bin/sh
trap 'exit 0' TERM
echo begun
[ -n "$ENDS" ] && exit "$ENDS"
while :; do sleep 0.01; done
"""


@pytest.mark.parametrize(("ends", "code"), [("0", 0), ("3", 3), ("", 143)])
def test_a_learner_whose_machine_goes_has_not_succeeded(
    tmp_path: Path, ends: str, code: int
) -> None:
    program = tmp_path / "decodiloco" / "bin" / "decodiloco"
    program.parent.mkdir(parents=True)
    program.write_text(SPOT, encoding="utf-8")
    program.chmod(0o755)
    task = subprocess.Popen(
        ["bash", "-c", yaml.safe_load(text_of(SKYPILOT))["run"]],
        env={**os.environ, "HOME": str(tmp_path), "LEARNER": "a", "ENDS": ends},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert task.stdout is not None and task.stdout.readline() == "begun\n"
    if not ends:
        os.killpg(task.pid, signal.SIGTERM)  # the machine is shut down: all are told
    task.communicate(timeout=20)
    assert task.returncode == code
