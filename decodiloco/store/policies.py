"""What each role needs of the object store, as policies in the language of AWS IAM.

From the prefixes of `decodiloco.store.keys` alone. Blobs are made once and never overwritten: a
put must say that it makes something new. Besides the operator only a syncer may delete, what a
sweep may: whoever steals its key can empty the run, but for its opening and its archive.
"""

from __future__ import annotations

from typing import Any

from decodiloco.store.keys import prefixes_of
from streams.permissions import Identity

READ = ["s3:GetObject"]
WRITE = ["s3:PutObject", "s3:AbortMultipartUpload"]
DELETE = ["s3:DeleteObject"]
SWEPT = ("delta", "global", "outer", "report", "checkpoint", "snapshot")


def policy_of(identity: Identity, bucket: str, folder: str = "") -> dict[str, Any]:
    """The policy for one who has a key, on a bucket and the folder that the store's URL names.

    `s3:ListBucket` is there because without it S3 answers "denied" for a blob that is missing.
    It shows names, which the tape tells anyway, and no bytes.
    """
    reads, writes = _prefixes(identity)
    arn = f"arn:aws:s3:::{bucket}"
    root = f"{arn}/{folder}/" if folder else f"{arn}/"
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [arn]},
        {"Effect": "Allow", "Action": READ, "Resource": [f"{root}{one}*" for one in reads]},
    ]
    if writes:
        whole = [f"{root}{one}*" for one in writes]
        statements.append({"Effect": "Allow", "Action": WRITE, "Resource": whole})
    deletes = _deleted_by(identity)
    if deletes:
        swept = [f"{root}{one}*" for one in deletes]
        statements.append({"Effect": "Allow", "Action": DELETE, "Resource": swept})
    return {"Version": "2012-10-17", "Statement": statements}


def only_new(bucket: str, folder: str = "") -> dict[str, Any]:
    """A bucket policy by which AWS refuses every put that might overwrite."""
    root = f"arn:aws:s3:::{bucket}/{folder}/*" if folder else f"arn:aws:s3:::{bucket}/*"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:PutObject",
                "Resource": root,
                "Condition": {
                    "Null": {"s3:if-none-match": "true"},
                    "Bool": {"s3:ObjectCreationOperation": "true"},
                },
            }
        ],
    }


def _deleted_by(identity: Identity) -> tuple[str, ...]:
    """What may be taken away, each ending in a slash; the operator's is all there is."""
    of = prefixes_of(identity.run)
    match identity.role:
        case "syncer":
            return tuple(of[kind] for kind in SWEPT)
        case "operator":
            return ("",)
        case _:
            return ()


def _prefixes(identity: Identity) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is read and what is written, each ending in a slash."""
    of = prefixes_of(identity.run)
    match identity.role:
        case "learner":
            own = (f"{of['delta']}{identity.id}/", f"{of['checkpoint']}{identity.id}/")
            # Checkpoints of others: a joiner may borrow moments.
            return (of["opening"], of["global"], of["checkpoint"], own[0]), own
        case "evaluator":
            return (of["opening"], of["global"]), ()
        case "viewer":
            return (of["run"],), ()
        case "merger":
            merged = (of["global"], of["outer"], of["report"])
            return (of["delta"], *merged), merged
        case "syncer":
            made = ("global", "outer", "report", "snapshot", "archive")
            return (of["run"],), tuple(of[kind] for kind in made)
        case "operator":
            return (of["run"],), (of["run"],)
        case "leaf":
            raise AssertionError("a NATS server has no policy")
