"""The S3 policies that `decodiloco keys` prints, tried on a real server that enforces them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import botocore.session
import pytest
from botocore.config import Config as ClientConfig
from botocore.exceptions import ClientError

from decodiloco.errors import StoreDenied
from decodiloco.local.s3_server import S3Server
from decodiloco.store.open_store import open_store
from decodiloco.store.policies import policy_of
from streams.permissions import Identity, Role

FOLDER = "some/folder"
WHO: tuple[tuple[Role, str], ...] = (
    ("learner", "a"),
    ("syncer", "s1"),
    ("merger", "m1"),
    ("evaluator", "e"),
    ("viewer", "v"),
)
THERE = ("delta/a/1/x", "delta/b/1/x", "global/f0/0", "opening/1", "checkpoint/b/1")


@dataclass(frozen=True)
class Bucket:
    """A bucket with some blobs of two runs, and a client of it for each role."""

    server: S3Server
    clients: dict[str, Any]
    keys: dict[str, tuple[str, str]]

    def tries(self, who: str, method: str, key: str, **request: Any) -> str | None:
        """None when it is allowed, else what the server says."""
        name = self.server.bucket
        try:
            getattr(self.clients[who], method)(Bucket=name, Key=f"{FOLDER}/{key}", **request)
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return None


def client_of(server: S3Server, kind: str, key: str, secret: str) -> Any:
    return botocore.session.Session().create_client(
        kind,
        region_name="us-east-1",
        endpoint_url=server.endpoint,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=ClientConfig(
            s3={"addressing_style": "path"}, request_checksum_calculation="when_required"
        ),
    )


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    options = ("-s3.iam.readOnly=false",)
    with S3Server.start(tmp_path_factory.mktemp("s3"), options=options) as server:
        iam = client_of(server, "iam", server.key, server.secret)
        root = client_of(server, "s3", server.key, server.secret)
        clients, keys = {}, {}
        for role, id_ in WHO:
            identity = Identity("r1", role, id_, ("home",))
            iam.create_user(UserName=identity.name)
            policy = json.dumps(policy_of(identity, server.bucket, FOLDER))
            iam.put_user_policy(
                UserName=identity.name, PolicyName="decodiloco", PolicyDocument=policy
            )
            made = iam.create_access_key(UserName=identity.name)["AccessKey"]
            keys[role] = (made["AccessKeyId"], made["SecretAccessKey"])
            clients[role] = client_of(server, "s3", *keys[role])
        for key in (*(f"r1/{each}" for each in THERE), "r2/opening/1"):
            root.put_object(Bucket=server.bucket, Key=f"{FOLDER}/{key}", Body=b"x")
        yield Bucket(server, clients, keys)


PUT, GET, DELETE = "put_object", "get_object", "delete_object"

ALLOWED = [
    ("learner", PUT, "r1/delta/a/1/new"),
    ("learner", PUT, "r1/checkpoint/a/1"),
    ("learner", GET, "r1/delta/a/1/x"),
    ("learner", GET, "r1/checkpoint/b/1"),
    ("learner", GET, "r1/global/f0/0"),
    ("learner", GET, "r1/opening/1"),
    ("learner", "create_multipart_upload", "r1/delta/a/1/large"),
    ("syncer", PUT, "r1/global/f0/1"),
    ("syncer", PUT, "r1/snapshot/1"),
    ("syncer", GET, "r1/delta/b/1/x"),
    ("syncer", DELETE, "r1/delta/a/1/none"),
    ("syncer", DELETE, "r1/snapshot/none"),
    ("merger", PUT, "r1/global/f0/1-m"),
    ("merger", PUT, "r1/outer/f0/1-m"),
    ("merger", PUT, "r1/report/0-m"),
    ("merger", GET, "r1/delta/b/1/x"),
    ("merger", GET, "r1/global/f0/0"),
    ("evaluator", GET, "r1/global/f0/0"),
    ("viewer", GET, "r1/delta/a/1/x"),
]

FORBIDDEN = [
    ("learner", PUT, "r1/delta/b/1/new"),
    ("learner", PUT, "r1/delta/b/1/x"),
    ("learner", PUT, "r1/delta/ab/1/x"),
    ("learner", PUT, "r1/checkpoint/b/1"),
    ("learner", PUT, "r1/global/f0/0"),
    ("learner", PUT, "r1/opening/1"),
    ("learner", PUT, "r2/delta/a/1/x"),
    ("learner", "create_multipart_upload", "r1/delta/b/1/large"),
    ("learner", GET, "r1/delta/b/1/x"),
    ("learner", GET, "r2/opening/1"),
    ("learner", DELETE, "r1/delta/b/1/x"),
    ("learner", DELETE, "r1/delta/a/1/x"),
    ("syncer", PUT, "r1/delta/a/1/new"),
    ("syncer", DELETE, "r1/opening/1"),
    ("syncer", DELETE, "r1/archive/1"),
    ("syncer", DELETE, "r2/delta/a/1/x"),
    ("merger", PUT, "r1/delta/a/1/new"),
    ("merger", PUT, "r1/snapshot/1-m"),
    ("merger", PUT, "r1/archive/1-m"),
    ("merger", PUT, "r2/global/f0/1"),
    ("merger", GET, "r1/checkpoint/b/1"),
    ("merger", GET, "r1/opening/1"),
    ("merger", DELETE, "r1/global/f0/0"),
    ("evaluator", GET, "r1/delta/a/1/x"),
    ("evaluator", PUT, "r1/global/f0/0"),
    ("viewer", PUT, "r1/delta/v/1/x"),
    ("viewer", DELETE, "r1/opening/1"),
]


@pytest.mark.parametrize(("who", "method", "key"), ALLOWED)
def test_each_role_may_do_what_it_needs(bucket: Bucket, who: str, method: str, key: str) -> None:
    assert bucket.tries(who, method, key) is None


@pytest.mark.parametrize(("who", "method", "key"), FORBIDDEN)
def test_what_is_not_its_own_is_denied(bucket: Bucket, who: str, method: str, key: str) -> None:
    assert bucket.tries(who, method, key) == "AccessDenied"


def test_ways_around_a_prefix_are_denied_too(bucket: Bucket) -> None:
    name, learner = bucket.server.bucket, bucket.clients["learner"]
    aim = f"{FOLDER}/r1/delta/b/1/x"
    source = f"{name}/{FOLDER}/r1/opening/1"
    assert bucket.tries("learner", PUT, "r1/delta/a/../b/1/x") in ("AccessDenied", "InvalidRequest")
    assert bucket.tries("learner", "copy_object", "r1/delta/b/1/x", CopySource=source) == (
        "AccessDenied"
    )
    told = learner.delete_objects(Bucket=name, Delete={"Objects": [{"Key": aim}]})
    assert [each["Code"] for each in told["Errors"]] == ["AccessDenied"]
    attempts: tuple[Callable[[], object], ...] = (
        lambda: learner.delete_bucket(Bucket=name),
        lambda: learner.put_bucket_policy(Bucket=name, Policy="{}"),
    )
    for attempt in attempts:
        with pytest.raises(ClientError, match="AccessDenied"):
            attempt()


def test_our_store_names_what_is_denied(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    key, secret = bucket.keys["learner"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    store = open_store(f"s3://{bucket.server.bucket}/{FOLDER}", bucket.server.endpoint)
    try:
        store.put("r1/delta/a/2/own", [b"bytes"])
        assert store.size("r1/delta/a/2/none") is None
        with pytest.raises(StoreDenied, match=r"blob r1/delta/b/2/x .* access is denied") as caught:
            store.put("r1/delta/b/2/x", [b"bytes"])
        assert secret not in str(caught.value)
    finally:
        store.close()
