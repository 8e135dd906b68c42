"""deploy/geo: the servers' files are taken by the server, and say what the pages say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from decodiloco.config import load_config
from decodiloco.keys import ACCOUNTS, FIRST, Wanted, make_keys
from streams.nats_server import find_binary
from tests.tidy.compose import VARIABLE
from tests.tidy.house import ROOT, text_of

GEO = ROOT / "deploy" / "geo"
FILES = sorted(path.name for path in GEO.glob("*.conf"))
VARIABLES = {
    "LISTEN": "127.0.0.1:4222",
    "LEAF_LISTEN": "127.0.0.1:7422",
    "STORE_DIR": "/nowhere",
    "REGION": "east",
    "HUB_LEAF": "nats://hub.example:7422",
    "RUN": "geo",
}
CACHE_VARIABLES = {
    *("LISTEN", "STORE", "STORE_SCHEME", "STORE_CA", "CACHE_DIR", "CACHE_SIZE"),
    *("NGINX_IMAGE", "CACHE_PORT"),
}


@pytest.mark.parametrize("name", FILES)
def test_nats_server_accepts_it_and_syncs_always(name: str, tmp_path: Path) -> None:
    config = load_config(GEO / "run.toml")
    make_keys(config, tmp_path, [Wanted("leaf", "east"), Wanted("learner", "a@east")])
    seed = (tmp_path / "leaf-east.nk").read_text().splitlines()[-1]
    shutil.copy(GEO / name, tmp_path)
    text = text_of(f"deploy/geo/{name}")
    if "server.pem" in text:
        certificate = ("-nodes", "-subj", "/CN=x", "-keyout", "server.key", "-out", "server.pem")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
             "ec_paramgen_curve:P-256", *certificate],
            cwd=tmp_path, check=True, capture_output=True,
        )  # fmt: skip
        shutil.copy(tmp_path / "server.pem", tmp_path / "ca.pem")
    variables = {**VARIABLES, "LEAF_SEED": seed}
    told = subprocess.run(
        [find_binary(), "-t", "-c", str(tmp_path / name)],
        env={**os.environ, **{each: f'"{value}"' for each, value in variables.items()}},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert told.returncode == 0, told.stderr
    assert "sync_interval: always" in text
    used = set(re.findall(r"\$([A-Z_]+)", text))
    told_of = set(re.findall(r"`([A-Z_]+)`", text_of("deploy/geo/README.md")))
    assert used <= told_of <= variables.keys() | CACHE_VARIABLES
    assert (ACCOUNTS in text) == name.endswith("-secure.conf")


def test_the_cache_takes_the_variables_that_are_told_of_wherever_it_runs() -> None:
    used = set(re.findall(r"\$\{([A-Z_]+)\}", text_of("deploy/geo/store-cache.conf.template")))
    page = text_of("deploy/geo/README.md")
    (filled,) = re.findall(r"envsubst '(.*?)'", page)
    (given,) = re.findall(r"export (.*?)\nenvsubst", page, re.DOTALL)
    service = yaml.safe_load(text_of("deploy/geo/store-cache.yaml"))["services"]["store-cache"]
    asked = set(VARIABLE.findall(text_of("deploy/geo/store-cache.yaml")))

    assert used | {name for name, _ in asked} == CACHE_VARIABLES
    assert used == set(re.findall(r"[A-Z_]+", filled)) == set(re.findall(r"([A-Z_]+)=", given))
    assert used == service["environment"].keys()
    assert ("NGINX_IMAGE", "nginx:1.28-alpine") in asked
    assert "./store-cache.conf.template:" in service["volumes"][0]


def test_the_run_has_a_region_for_the_hub_and_the_pages_name_the_others() -> None:
    config = load_config(GEO / "run.toml")
    assert config.here.region == "hub" == config.run.regions[0]
    assert "domain: hub" in text_of("deploy/geo/hub.conf")
    page = text_of("docs/how-to/regions.md")
    for region in config.run.regions[1:]:
        assert f"--leaf {region}" in page
    assert all(role != "leaf" for role, _ in FIRST)


def test_four_files_for_two_places_with_and_without_keys() -> None:
    assert FILES == ["hub-secure.conf", "hub.conf", "region-secure.conf", "region.conf"]
    for place in ("hub", "region"):
        plain, secure = (text_of(f"deploy/geo/{place}{kind}.conf") for kind in ("", "-secure"))
        kept = re.search(r"max_payload.*?js_ack_fc_v2: false }", plain, re.DOTALL)
        assert kept and kept[0] in secure
