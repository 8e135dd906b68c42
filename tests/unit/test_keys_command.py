"""`decodiloco keys`: files that are secret, files that are not, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from decodiloco.cli import app
from decodiloco.config import Config, parse_config
from decodiloco.errors import ConfigInvalid
from decodiloco.keys import (
    ACCOUNTS,
    ROSTER,
    Wanted,
    apply_keys,
    make_keys,
    read_roster,
    store_policies,
)
from decodiloco.places import check_key, check_places
from streams.errors import AskedWrongly, BadName, PermissionDenied
from streams.key_file import read_key

FIRST = ["operator.nk", "syncer-s1.nk", "syncer-s2.nk", "evaluator.nk", "viewer.nk"]


def config_of(store: str = "file:///nowhere", **here: object) -> Config:
    run = {"name": "r1", "regions": ["home", "east"]}
    return parse_config({"run": run, "here": {"store": store, **here}})


def learners(*texts: str) -> list[Wanted]:
    return [Wanted("learner", text) for text in texts]


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def test_everybody_gets_a_key_that_only_its_owner_reads(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    made = make_keys(config_of(), folder, learners("a", "b@east"))
    assert [Path(path).name for path in made] == [*FIRST, "learner-a.nk", "learner-b.nk"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in made:
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    keys = [read_key(path) for path in made]
    assert len({key.seed for key in keys}) == len({key.public for key in keys}) == len(keys)
    assert keys[-2].identity.regions == ("home",) and keys[-1].identity.regions == ("east",)
    for key in keys:
        assert key.seed not in repr(key) and key.seed not in str(key)
        for public in (ROSTER, ACCOUNTS):
            assert key.seed not in (folder / public).read_text()
            assert key.public in (folder / public).read_text()
    assert read_roster(folder, "r1") == {key.public: key.identity for key in keys}


def test_a_mergers_key_is_asked_for_as_a_syncers_is(tmp_path: Path) -> None:
    config, keys = tmp_path / "run.toml", tmp_path / "keys"
    config.write_text('[run]\nname = "r1"\n[here]\nstore = "file:///nowhere"\n')
    words = ["keys", str(config), "--out", str(keys), "--merger", "m1", "--merger", "m2"]
    assert CliRunner().invoke(app, words).exit_code == 0
    for id_ in ("m1", "m2"):
        place = {"nats_key": str(keys / f"merger-{id_}.nk")}
        check_key(config_of(**place), "merger", id_)
        with pytest.raises(PermissionDenied, match="syncer s1 of run r1 may not use the key"):
            check_key(config_of(**place), "syncer", "s1")
    with pytest.raises(AskedWrongly, match="only a learner has a region"):
        make_keys(config_of(), keys, [Wanted("merger", "m3@home")])


def test_a_second_time_adds_and_changes_no_key(tmp_path: Path) -> None:
    make_keys(config_of(), tmp_path, learners("a"))
    before = files_in(tmp_path)
    made = make_keys(config_of(), tmp_path, learners("c"))
    assert [Path(path).name for path in made] == ["learner-c.nk"]
    after = files_in(tmp_path)
    assert {name for name in after if after[name] != before.get(name)} == {
        "learner-c.nk",
        ROSTER,
        ACCOUNTS,
    }


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        ("a", AskedWrongly, "never overwritten"),
        ("new", AskedWrongly, "never overwritten"),
        ("evaluator", AskedWrongly, "under one id"),
        ("d@west", AskedWrongly, "no region 'west'; it has home, east"),
        ("../d", BadName, "use 1 to 48"),
        ("*", BadName, "use 1 to 48"),
        ("", BadName, "use 1 to 48"),
    ],
)
def test_what_is_refused_leaves_everything_as_it_was(
    tmp_path: Path, text: str, error: type[Exception], why: str
) -> None:
    make_keys(config_of(), tmp_path, learners("a"))
    (tmp_path / "learner-new.nk").write_text("somebody's")
    before = files_in(tmp_path)
    with pytest.raises(error, match=why):
        make_keys(config_of(), tmp_path, learners("good", text))
    with pytest.raises(AskedWrongly, match="only a learner has a region"):
        make_keys(config_of(), tmp_path, [Wanted("syncer", "s3@home")])
    assert files_in(tmp_path) == before


def test_keys_of_another_run_or_a_broken_roster_are_told(tmp_path: Path) -> None:
    make_keys(config_of(), tmp_path, ())
    with pytest.raises(AskedWrongly, match="the keys of run r1, not of other"):
        read_roster(tmp_path, "other")
    for broken in ("{", "[]", '{"run": "r1", "keys": [{}]}', '{"run": "r1", "keys": 3}'):
        (tmp_path / ROSTER).write_text(broken)
        with pytest.raises(AskedWrongly, match="is no roster of keys"):
            read_roster(tmp_path, "r1")


def test_a_key_that_others_may_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    make_keys(config_of(), tmp_path, learners("a"))
    path = tmp_path / "learner-a.nk"
    text, seed = path.read_text(), read_key(str(path)).seed
    broken = seed[:20] + ("A" if seed[20] != "A" else "B") + seed[21:]
    faults = {
        text.replace(seed, ""): "is no key",
        text.replace("# role", "# rule"): "is no key",
        text.replace(seed, broken): "holds a broken key",
        text.replace("role: learner", "role: king"): "its run, role, id or regions",
        "": "is no key",
    }
    for fault, why in faults.items():
        path.write_text(fault)
        with pytest.raises(AskedWrongly, match=why) as caught:
            check_places(config_of(nats_key=str(path)))
        assert seed[:20] not in str(caught.value)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(AskedWrongly, match="is no key"):
        read_key(str(path))
    path.write_text(text)
    path.chmod(0o640)
    with pytest.raises(AskedWrongly, match="chmod 600"):
        check_places(config_of(nats_key=str(path)))
    with pytest.raises(AskedWrongly, match="No such file"):
        read_key(str(tmp_path / "nowhere.nk"))


def test_a_key_that_the_address_names_is_looked_at_like_that_of_a_setting(tmp_path: Path) -> None:
    make_keys(config_of(), tmp_path, learners("a"))
    for here in (
        {"nats_key": str(tmp_path / "learner-a.nk")},
        {"nats": f"nats://h:1?key={tmp_path / 'learner-a.nk'}"},
        {"nats": f"nats://h:1?key={tmp_path / 'learner-a.nk'}", "nats_key": "nowhere.nk"},
    ):
        check_key(config_of(**here), "learner", "a")
        with pytest.raises(PermissionDenied, match="learner b of run r1 may not use the key"):
            check_key(config_of(**here), "learner", "b")
    check_key(config_of(), "learner", "b")
    check_key(config_of(nats_key=str(tmp_path / "operator.nk")), "learner", "b")


def test_a_folder_without_keys_and_one_that_cannot_be_made_are_told(tmp_path: Path) -> None:
    with pytest.raises(AskedWrongly, match="holds no keys yet: make them"):
        store_policies(config_of(store="s3://bucket"), tmp_path)
    with pytest.raises(AskedWrongly, match="holds no keys yet: make them"):
        asyncio.run(apply_keys(config_of(), tmp_path))
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(AskedWrongly, match="choose another one with --out"):
        make_keys(config_of(), tmp_path / "link", ())
    assert not (tmp_path / "nowhere").exists()


def test_store_policies_follow_the_prefixes_of_the_keys(tmp_path: Path) -> None:
    config = config_of(store="s3://bucket/some/folder")
    make_keys(config, tmp_path, [*learners("a"), Wanted("merger", "m1")])
    policies = json.loads(json.dumps(store_policies(config, tmp_path)))
    root = "arn:aws:s3:::bucket/some/folder/r1"
    who = [Path(name).stem for name in FIRST]
    assert sorted(policies) == sorted([*who, "learner-a", "merger-m1", "bucket"])

    def may(name: str, action: str) -> list[str]:
        return [
            resource
            for statement in policies[name]["Statement"]
            if f"s3:{action}" in statement["Action"]
            for resource in statement["Resource"]
        ]

    own = [f"{root}/delta/a/*", f"{root}/checkpoint/a/*"]
    assert may("learner-a", "PutObject") == own
    assert f"{root}/checkpoint/*" in may("learner-a", "GetObject")
    assert f"{root}/delta/*" not in may("learner-a", "GetObject")
    assert may("viewer", "GetObject") == [f"{root}/*"]
    assert may("viewer", "PutObject") == may("evaluator", "PutObject") == []
    assert f"{root}/delta/*" not in may("syncer-s1", "PutObject")
    made = [f"{root}/{kind}/*" for kind in ("global", "outer", "report")]
    assert may("merger-m1", "PutObject") == made
    assert may("merger-m1", "GetObject") == [f"{root}/delta/*", *made]
    assert may("merger-m1", "DeleteObject") == []
    sweeping = ["operator", "syncer-s1", "syncer-s2"]
    assert [name for name in who if may(name, "DeleteObject")] == sweeping
    swept = ("delta", "global", "outer", "report", "checkpoint", "snapshot")
    assert may("syncer-s1", "DeleteObject") == [f"{root}/{kind}/*" for kind in swept]
    with pytest.raises(ConfigInvalid, match="no S3 place"):
        store_policies(config_of(), tmp_path)
    with pytest.raises(ConfigInvalid, match="is no bucket"):
        store_policies(config_of(store="s3://No_Bucket"), tmp_path)
    bare = store_policies(config_of(store="s3://bucket"), tmp_path)
    assert bare["bucket"]["Statement"][0]["Resource"] == "arn:aws:s3:::bucket/*"
    assert bare["viewer"]["Statement"][1]["Resource"] == ["arn:aws:s3:::bucket/r1/*"]


def test_config_names_key_and_authority_and_shows_no_password() -> None:
    config = config_of(nats="nats://u:s3cret@h:1", nats_key="k.nk", nats_ca="ca.pem")
    assert config.here.nats_door == "nats://u:s3cret@h:1?key=k.nk&ca=ca.pem"
    assert "s3cret" not in repr(config)
    with pytest.raises(ConfigInvalid) as caught:
        config_of(nats=["nats://u:s3cret@h"])
    assert "s3cret" not in str(caught.value)
