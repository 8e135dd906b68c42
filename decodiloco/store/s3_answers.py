"""What an S3 server's refusals, and the libraries' many exceptions, mean to us.

s3fs turns some of botocore's errors into OSErrors and lets others through, aiohttp's among
them; so every exception is looked at together with its causes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from enum import Enum

from aiohttp import ClientError as HttpError
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
)
from botocore.exceptions import ConnectionError as NoConnection
from botocore.parsers import ResponseParserError

from decodiloco.errors import BlobCorrupt, BlobMissing, StoreDenied, StoreUnreachable
from streams.errors import Failure


class Kind(Enum):
    """What to do about a failed request."""

    THERE_ALREADY = "there already"
    NOT_OFFERED = "not offered"
    MISSING = "missing"
    BUCKET_MISSING = "bucket missing"
    TOO_SHORT = "too short"
    DENIED = "denied"
    LATER = "later"
    REFUSED = "refused"


_CODES = {
    "PreconditionFailed": Kind.THERE_ALREADY,
    "NotImplemented": Kind.NOT_OFFERED,
    "NoSuchKey": Kind.MISSING,
    "NoSuchUpload": Kind.MISSING,
    "NoSuchBucket": Kind.BUCKET_MISSING,
    "InvalidRange": Kind.TOO_SHORT,
    "ExpiredToken": Kind.DENIED,
    "InvalidToken": Kind.DENIED,
    "RequestTimeout": Kind.LATER,
    "XAmzContentSHA256Mismatch": Kind.LATER,
    "BadDigest": Kind.LATER,
    "IncompleteBody": Kind.LATER,
}
_STATUSES = {
    401: Kind.DENIED,
    403: Kind.DENIED,
    404: Kind.MISSING,
    408: Kind.LATER,
    409: Kind.LATER,
    412: Kind.THERE_ALREADY,
    416: Kind.TOO_SHORT,
    429: Kind.LATER,
    501: Kind.NOT_OFFERED,
}
_NO_KEYS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    ProfileNotFound,
)
_NO_ANSWER = (
    NoConnection,
    HTTPClientError,
    ResponseParserError,
    HttpError,
    OSError,
    asyncio.TimeoutError,
)


def kind_of(error: BaseException) -> Kind:
    """What a failed request means; raises `error` again when it is no answer but a bug."""
    for each in _causes(error):
        if isinstance(each, ClientError):
            return _kind_of_answer(each)
        if isinstance(each, _NO_KEYS):
            return Kind.DENIED
        if isinstance(each, ParamValidationError | NoRegionError):
            return Kind.REFUSED
    if any(isinstance(each, _NO_ANSWER) for each in _causes(error)):
        return Kind.LATER
    if isinstance(error, BotoCoreError):
        return Kind.REFUSED
    raise error


def trouble_of(error: BaseException, kind: Kind, where: str) -> Failure:
    """The failure of ours to raise: it names the blob and the place, and what to do next."""
    said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    match kind:
        case Kind.MISSING:
            return BlobMissing(f"{where} is not there")
        case Kind.TOO_SHORT:
            return BlobCorrupt(f"{where} ends before the bytes that were named")
        case Kind.BUCKET_MISSING:
            return StoreUnreachable(
                f"{where}: there is no such bucket. Make it, or correct the store's address"
            )
        case Kind.DENIED:
            return StoreDenied(
                f"{where}: access is denied. Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
                f"the rights on this prefix (without s3:ListBucket, AWS also answers so for a "
                f"blob that is missing). {said}"
            )
        case Kind.LATER:
            return StoreUnreachable(
                f"{where}: no answer in time. Check the endpoint and the network. {said}"
            )
        case _:
            return StoreUnreachable(f"{where}: the request is refused. {said}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what caused it, and so on."""
    seen: BaseException | None = error
    for _ in range(10):
        if seen is None:
            return
        yield seen
        seen = seen.__cause__


def _kind_of_answer(error: ClientError) -> Kind:
    code = error.response.get("Error", {}).get("Code", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    known = _CODES.get(code) or _STATUSES.get(status)
    if known is not None:
        return known
    return Kind.LATER if status >= 500 or status == 0 else Kind.REFUSED
