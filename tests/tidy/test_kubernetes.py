"""deploy/kubernetes: the manifests obey the API's schemas and name only what there is."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

from decodiloco.config import load_config
from streams.nats_server import find_binary as nats_binary
from tests.tidy.house import ROOT, text_of

FOLDER = ROOT / "deploy" / "kubernetes"
VERSIONS = ("1.31.0", kubernetes_validate.latest_version())
KUSTOMIZATIONS = sorted(path.parent for path in FOLDER.rglob("kustomization.yaml"))
RUN_TOML = "/etc/decodiloco/run.toml"
TWO = "deploy/kubernetes/overlays/two-regions"

with_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on the path")


def manifests() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every object of every file that a kustomization names as a resource."""
    for folder in KUSTOMIZATIONS:
        for resource in kustomization(folder)["resources"]:
            path = folder / resource
            if path.is_file():
                for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
                    yield path, document


def kustomization(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
    return loaded


def name_of(case: tuple[Path, dict[str, Any]]) -> str:
    path, document = case
    return f"{path.relative_to(FOLDER)}:{document['kind']}/{document['metadata']['name']}"


MANIFESTS = list(manifests())
PODS = [
    (name_of(case), case[1]["spec"]["template"]["spec"], case[1])
    for case in MANIFESTS
    if "template" in case[1]["spec"]
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", MANIFESTS, ids=name_of)
def test_a_manifest_obeys_the_schema(case: tuple[Path, dict[str, Any]], version: str) -> None:
    kubernetes_validate.validate(case[1], version, strict=True)


def test_a_kustomization_names_files_that_are_there() -> None:
    assert len(KUSTOMIZATIONS) >= 2
    for folder in KUSTOMIZATIONS:
        told = kustomization(folder)
        named = list(told["resources"])
        for generator in told.get("configMapGenerator", ()):
            named += generator["files"]
        for one in named:
            assert (folder / one).exists(), f"{folder.name}: {one}"


@with_kubectl
@pytest.mark.parametrize("folder", KUSTOMIZATIONS, ids=lambda path: path.name)
def test_what_kustomize_makes_of_it_obeys_the_schema_and_names_what_is_there(folder: Path) -> None:
    made = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60
    )
    assert made.returncode == 0, made.stderr
    objects = list(yaml.safe_load_all(made.stdout))
    configs = {one["metadata"]["name"] for one in objects if one["kind"] == "ConfigMap"}
    for one in objects:
        kubernetes_validate.validate(one, VERSIONS[-1], strict=True)
        pod = one.get("spec", {}).get("template", {}).get("spec", {})
        mounted = {
            each["configMap"]["name"] for each in pod.get("volumes", ()) if "configMap" in each
        }
        assert mounted <= configs, one["metadata"]["name"]


def test_every_file_is_named_by_a_kustomization() -> None:
    for path in FOLDER.rglob("*"):
        if path.is_file() and path.name != "kustomization.yaml":
            assert path.name in (path.parent / "kustomization.yaml").read_text("utf-8"), path


@pytest.mark.parametrize(("name", "pod", "owner"), PODS, ids=[pod[0] for pod in PODS])
def test_a_pod_runs_a_command_that_there_is(
    name: str, pod: dict[str, Any], owner: dict[str, Any]
) -> None:
    app: Any = get_command(importlib.import_module("decodiloco.cli").app)
    for container in pod["containers"]:
        if container["image"] != "decodiloco:local":
            continue
        command, *words = container["args"]
        words = [word.replace("$(JOB_COMPLETION_INDEX)", "0") for word in words]
        parsed = app.commands[command].make_context(command, words)
        assert RUN_TOML in (str(parsed.params.get("config")), parsed.params.get("run"))
        if "$(JOB_COMPLETION_INDEX)" in " ".join(container["args"]):
            assert owner["spec"]["completionMode"] == "Indexed"


@pytest.mark.parametrize(("name", "pod", "owner"), PODS, ids=[pod[0] for pod in PODS])
def test_a_pod_is_locked_up_and_has_its_volumes_ports_and_limits(
    name: str, pod: dict[str, Any], owner: dict[str, Any]
) -> None:
    claims = owner["spec"].get("volumeClaimTemplates", ())
    volumes = {volume["name"] for volume in pod.get("volumes", ())}
    volumes |= {claim["metadata"]["name"] for claim in claims}
    for container in pod["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        assert container["resources"]["requests"] and container["resources"]["limits"]
        ports = {port["name"] for port in container.get("ports", ())}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe in container:
                assert container[probe]["httpGet"]["port"] in ports
        if container["image"] == "decodiloco:local":
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


ROLES = [
    (name, pod["containers"][0]["command"])
    for name, pod, owner in PODS
    if owner["kind"] == "Job" and "command" in pod["containers"][0]
]
ENDS = """#!/bin/sh
trap 'exit 0' TERM
echo "$@"
[ "$1" = ends ] && exit "$2"
while :; do sleep 0.01; done
"""


def test_whoever_leaves_when_told_runs_in_the_same_shell() -> None:
    assert [name.split("/")[-1] for name, _ in ROLES] == [
        "syncers", "learners", "evaluator", "archive", "mergers",
    ]  # fmt: skip
    assert all(command == ROLES[0][1] for _, command in ROLES)


@pytest.mark.parametrize(
    ("words", "is_told", "code"),
    [(["ends", "0"], False, 0), (["ends", "2"], False, 2), (["stays"], True, 143)],
)
def test_a_role_that_was_told_to_stop_is_not_taken_for_done(
    tmp_path: Path, words: list[str], is_told: bool, code: int
) -> None:
    program = tmp_path / "decodiloco"
    program.write_text(ENDS, encoding="utf-8")
    program.chmod(0o755)
    role = subprocess.Popen(
        [*ROLES[0][1], *words],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert role.stdout is not None and role.stdout.readline().split() == words
    if is_told:
        role.send_signal(signal.SIGTERM)
    assert role.wait(20) == code
    role.stdout.close()


def test_services_and_budgets_select_pods_that_there_are() -> None:
    labels = [
        document["spec"]["template"]["metadata"]["labels"]
        for _, document in MANIFESTS
        if "template" in document["spec"]
    ]
    for case in MANIFESTS:
        spec = case[1]["spec"]
        if case[1]["kind"] == "Service":
            assert spec["selector"] in labels, name_of(case)
        if case[1]["kind"] == "PodDisruptionBudget":
            assert spec["selector"]["matchLabels"] in labels, name_of(case)


RUNS = sorted(FOLDER.rglob("run.toml"))


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.parent.name)
def test_a_run_reaches_the_servers_that_the_manifests_start(path: Path) -> None:
    config = load_config(path)
    (nats,) = [
        document
        for _, document in MANIFESTS
        if document["kind"] == "StatefulSet" and document["metadata"]["name"] == "nats"
    ]
    names = [f"nats-{index}.nats" for index in range(nats["spec"]["replicas"])]
    assert config.run.tape_replicas == len(names)
    routes = re.findall(
        r'"nats://([^:"]+):6222"', text_of("deploy/kubernetes/cluster/cluster.conf")
    )
    assert routes == names
    if path.parent.name == "region":  # of its one server
        del names[1:]
    assert config.here.nats.split(",") == [f"nats://{name}:4222" for name in names]
    if config.here.store_endpoint is not None:
        assert config.here.store_endpoint == "http://object-store:8333"


def test_learners_and_rounds_agree() -> None:
    (learners,) = [
        document
        for _, document in MANIFESTS
        if document["kind"] == "Job" and document["metadata"]["name"] == "learners"
    ]
    for path in FOLDER.rglob("run.toml"):
        assert load_config(path).run.learners_min <= learners["spec"]["parallelism"]


def test_the_servers_are_set_as_everywhere() -> None:
    base = text_of("deploy/kubernetes/cluster/server.conf")
    assert base == text_of("deploy/nats/server.conf")
    assert "sync_interval: always" in base


REGIONS = ROOT / TWO
NAMES = sorted(path.name for path in REGIONS.iterdir() if path.name not in ("hub", "region"))


def made_of(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What kustomize makes of the hub or a region, by kind and name without its hash."""
    made = subprocess.run(
        ["kubectl", "kustomize", str(REGIONS / name)], capture_output=True, text=True, timeout=60
    )
    assert made.returncode == 0, made.stderr
    objects = yaml.safe_load_all(made.stdout)
    return {
        (one["kind"], re.sub(r"-[0-9a-z]{10}$", "", one["metadata"]["name"])): one
        for one in objects
    }


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in pod["containers"][0]["env"] if "value" in one}


def test_hub_and_regions_run_one_run() -> None:
    hub, region = (load_config(REGIONS / name / "run.toml") for name in ("hub", "region"))
    assert hub.run == region.run
    assert hub.here.store == region.here.store
    assert sorted(hub.run.regions) == sorted([*NAMES, hub.here.region]) and len(NAMES) == 2


@with_kubectl
@pytest.mark.parametrize("name", NAMES)
def test_a_region_has_a_server_of_its_domain_and_learners_of_its_own(name: str) -> None:
    made = made_of(name)
    assert {kind for kind, _ in made} == {
        "ConfigMap", "Service", "StatefulSet", "PodDisruptionBudget", "Job",
    }  # fmt: skip
    nats = made["StatefulSet", "nats"]["spec"]
    told = environment(nats["template"]["spec"])
    assert (nats["replicas"], told["SERVER_NAME"], told["REGION"]) == (1, name, name)
    (learners,) = made["Job", "learners"]["spec"]["template"]["spec"]["containers"]
    command, *words = [word.replace("$(JOB_COMPLETION_INDEX)", "0") for word in learners["args"]]
    app: Any = get_command(importlib.import_module("decodiloco.cli").app)
    asked = app.commands[command].make_context(command, words).params
    assert asked["id_"] == f"{name}-0"
    config = load_config(REGIONS / "region" / "run.toml", asked["settings"])
    assert config.here.region == name


@with_kubectl
def test_the_hub_listens_where_the_regions_join() -> None:
    made = made_of("hub")
    jobs = {name for kind, name in made if kind == "Job"}
    assert jobs == {"open", "syncers", "evaluator", "archive"}
    (server,) = made["StatefulSet", "nats"]["spec"]["template"]["spec"]["containers"]
    (port,) = [each["containerPort"] for each in server["ports"] if each["name"] == "leafnodes"]
    assert made["Service", "leafnodes"]["spec"]["ports"] == [{"name": "leafnodes", "port": port}]
    assert f'leafnodes {{ listen: "0.0.0.0:{port}" }}' in text_of(f"{TWO}/hub/hub.conf")
    for name in NAMES:
        pod = made_of(name)["StatefulSet", "nats"]["spec"]["template"]["spec"]
        assert environment(pod)["HUB"].endswith(f":{port}")


@pytest.mark.parametrize(("place", "file"), [("hub", "hub.conf"), ("region", "leaf.conf")])
def test_a_nats_server_takes_the_configuration(tmp_path: Path, place: str, file: str) -> None:
    for path in (*(FOLDER / "cluster").glob("*.conf"), REGIONS / place / file):
        text = path.read_text("utf-8").replace('"/data"', f'"{tmp_path}"')
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    told = {"SERVER_NAME": "one", "REGION": "east", "HUB": "nats://hub.example:7422"}
    checked = subprocess.run(
        [str(nats_binary()), "-t", "-c", str(tmp_path / file)],
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert checked.returncode == 0, checked.stderr
