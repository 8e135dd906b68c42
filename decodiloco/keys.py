"""`decodiloco keys`: keys for those who take part in a run, and what its servers must know of them.

Writes a folder: one key file each, `roster.json` with the public keys, and `accounts.conf` for
the NATS servers. Only the key files are secret.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decodiloco.config import Config
from decodiloco.errors import ConfigInvalid
from decodiloco.local.folder import write_whole
from decodiloco.store.blobs import hide_credentials
from decodiloco.store.policies import only_new, policy_of
from streams.accounts import accounts_text
from streams.address import with_files
from streams.errors import AskedWrongly
from streams.key_file import key_path, make_key
from streams.permissions import ROLES, Identity, Role, check_roster

ROSTER = "roster.json"
ACCOUNTS = "accounts.conf"
FIRST: tuple[tuple[Role, str], ...] = (
    ("operator", "operator"),
    ("syncer", "s1"),
    ("syncer", "s2"),
    ("evaluator", "evaluator"),
    ("viewer", "viewer"),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Somebody to make a key for: a role, and an id or `id@region`."""

    role: Role
    text: str

    def identity(self, config: Config) -> Identity:
        """A learner speaks to one region, its own; a leaf server is one; the others to any."""
        id_, at, region = self.text.partition("@")
        if at and self.role != "learner":
            raise AskedWrongly(f"{self.text!r}: only a learner has a region")
        regions = config.run.regions
        if self.role in ("learner", "leaf"):
            own = id_ if self.role == "leaf" else config.here.region
            regions = (region,) if at else (own,)
            if regions[0] not in config.run.regions:
                raise AskedWrongly(
                    f"{self.text!r}: run {config.run.name} has no region {regions[0]!r}; it has "
                    f"{', '.join(config.run.regions)}"
                )
        return Identity(config.run.name, self.role, id_, regions)


def make_keys(config: Config, folder: Path, wanted: Sequence[Wanted]) -> list[str]:
    """Makes the keys that are wanted, and at first those that every run needs; their files.

    Nothing is written when one of them is there already, or two would speak under one id.
    """
    roster = read_roster(folder, config.run.name)
    first = [Wanted(role, id_) for role, id_ in FIRST] if not roster else []
    new = [each.identity(config) for each in (*first, *wanted)]
    _check_new(folder, list(roster.values()), new)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise AskedWrongly(
            f"folder {folder} cannot be made: {error.strerror}; choose another one with --out"
        ) from None
    paths = []
    for identity in new:
        key = make_key(folder, identity)
        roster[key.public] = identity
        write_whole(folder / ROSTER, _roster_text(config.run.name, roster))
        paths.append(key.path)
    write_whole(folder / ACCOUNTS, accounts_text(config.run.name, roster))
    return paths


def read_roster(folder: Path, run: str) -> dict[str, Identity]:
    """Who has a key in this folder, by public key; empty if there is no roster yet."""
    path = folder / ROSTER
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        roster = {
            str(each["public"]): Identity(
                told["run"], each["role"], each["id"], tuple(each["regions"])
            )
            for each in told["keys"]
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise AskedWrongly(
            f"{path} is no roster of keys: {error}; `decodiloco keys` writes it: put back a copy, "
            "or choose another folder"
        ) from None
    if told["run"] != run:
        raise AskedWrongly(
            f"{folder} holds the keys of run {told['run']}, not of {run}: use another folder"
        )
    return roster


async def apply_keys(config: Config, folder: Path) -> list[str]:
    """Makes on the server the readers of every learner in the roster; their ids.

    Needs the operator's key, which it takes from the folder. Raises StreamMissing for a run that
    is not open.
    """
    from streams.jetstream import connect  # the NATS client loads only where it is used
    from streams.provision import provision_readers

    learners = learners_in(folder, config.run.name)
    connection = await connect(operators_door(config, folder), "keys")
    try:
        await connection.tape(config.run.name).last()
        for identity in learners:
            await provision_readers(connection, identity)
    finally:
        await connection.close()
    return sorted(each.id for each in learners)


def learners_in(folder: Path, run: str) -> list[Identity]:
    """The learners that have a key in this folder. Raises AskedWrongly if nobody at all has."""
    return [each for each in _made(folder, run) if each.role == "learner"]


def operators_door(config: Config, folder: Path) -> str:
    """The servers' address with the config's key, or with the operator's from this folder."""
    key = config.here.nats_key or str(folder / "operator.nk")
    return with_files(config.here.nats, key, config.here.nats_ca)


def store_policies(config: Config, folder: Path) -> dict[str, Any]:
    """A policy for each in the roster, by role and id, and one for the bucket."""
    from decodiloco.store.s3 import place_of  # s3fs loads only where it is used

    store = config.here.store
    if not store.startswith("s3://"):
        raise ConfigInvalid(
            f"here.store {hide_credentials(store)} is no S3 place: policies need s3://bucket/prefix"
        )
    bucket, prefix = place_of(store)
    policies = {
        key_path(folder, identity).stem: policy_of(identity, bucket, prefix)
        for identity in _made(folder, config.run.name)
        if identity.role != "leaf"  # a NATS server: it touches no store
    }
    return {**policies, "bucket": only_new(bucket, prefix)}


def _made(folder: Path, run: str) -> list[Identity]:
    """Who has a key in this folder; AskedWrongly if nobody has."""
    roster = read_roster(folder, run)
    if not roster:
        raise AskedWrongly(
            f"{folder} holds no keys yet: make them with `decodiloco keys RUN.toml --out {folder}`"
        )
    return list(roster.values())


def _check_new(folder: Path, old: Sequence[Identity], new: Sequence[Identity]) -> None:
    check_roster([*old, *new])
    names = [identity.name for identity in old]
    for identity in new:
        path = key_path(folder, identity)
        if identity.name in names or path.exists():
            raise AskedWrongly(
                f"{identity} has a key already, {path}: it is never overwritten; to change it, "
                f"take it out of {ROSTER} and away, and make it again"
            )
        names.append(identity.name)


def _roster_text(run: str, roster: dict[str, Identity]) -> str:
    everybody = sorted(roster.items(), key=lambda one: (ROLES.index(one[1].role), one[1].id))
    keys = [
        {"public": public, "role": each.role, "id": each.id, "regions": list(each.regions)}
        for public, each in everybody
    ]
    return json.dumps({"run": run, "keys": keys}, indent=1) + "\n"
