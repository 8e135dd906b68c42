"""Blobs in an S3 bucket, through s3fs from ordinary threads. Only `keys` lists, and no cache does.

One place retries: botocore's and s3fs's own repetitions are off, since they would multiply. A
PUT carries `If-None-Match`, as a second belt: keys name their content, so a server that ignores
it replaces a blob by itself. Imported only when an s3 address is opened.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from fsspec.asyn import sync
from s3fs import S3FileSystem

from decodiloco.errors import BlobMissing, ConfigInvalid, StoreUnreachable
from decodiloco.store.blobs import (
    Body,
    Part,
    check_range,
    check_same,
    checked_key,
    checked_prefix,
    hide_credentials,
    is_key,
)
from decodiloco.store.s3_answers import Kind, kind_of, trouble_of
from decodiloco.times import (
    S3_CONNECT_SECONDS_MAX,
    S3_LIMIT_SECONDS,
    S3_PAUSE_SECONDS_MAX,
    S3_PAUSE_SECONDS_MIN,
    S3_SILENCE_SECONDS_MAX,
)
from streams.errors import Failure

BYTES_PER_SECOND_MIN = 256 * 1024
"""An attempt slower than this is given up: aiohttp waits for `100 Continue` without a limit."""

PART_BYTES = 16 * 1024 * 1024
SINGLE_BYTES_MAX = 2 * PART_BYTES
PARTS_MAX = 9_000
RANGE_BYTES_MAX = 8 * 1024 * 1024
THREADS = 4

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)*", re.ASCII)
T = TypeVar("T")


class Access(NamedTuple):
    """A key and its secret. Without them botocore's chain finds, and renews, what it can."""

    key: str
    secret: str

    def __repr__(self) -> str:
        return f"Access(key={self.key!r}, secret=...)"


class S3Store:
    """A store under a prefix of a bucket.

    `limit_seconds`: how long a request is repeated while the server does not answer, or asks us
    to slow down. The attempt under way is still finished, so a call may last one attempt longer:
    the silence that is borne, and the time that the slowest line we serve needs for the bytes.
    """

    def __init__(
        self,
        url: str,
        endpoint: str | None = None,
        access: Access | None = None,
        limit_seconds: float = S3_LIMIT_SECONDS,
    ) -> None:
        self.bucket, self._prefix = place_of(url)
        self.url = f"s3://{self.bucket}/{self._prefix}".rstrip("/")
        self._endpoint = _checked_endpoint(endpoint)
        self._limit_seconds = limit_seconds
        self._silence_seconds = max(1.0, min(S3_SILENCE_SECONDS_MAX, limit_seconds))
        self._conditional = True
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="s3")
        self._files = S3FileSystem(
            key=access.key if access else None,
            secret=access.secret if access else None,
            endpoint_url=endpoint,
            use_listings_cache=False,
            skip_instance_cache=True,
            default_cache_type="none",
            max_concurrency=1,
            fixed_upload_size=True,
            config_kwargs={
                "connect_timeout": S3_CONNECT_SECONDS_MAX,
                "read_timeout": self._silence_seconds,
                "max_pool_connections": 32,
                "tcp_keepalive": True,
                "retries": {"mode": "standard", "total_max_attempts": 1},
                "s3": {"addressing_style": "path" if endpoint else "auto"},
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
            },
        )
        self._files.retries = 1

    def put(self, key: str, parts: Sequence[Part]) -> None:
        path = self._path(key)
        body = Body(parts)
        if body.nbytes <= SINGLE_BYTES_MAX:
            whole = body.cut(0, body.nbytes)
            created = self._create(key, "put_object", Key=path, Body=whole)
            if not created and whole and self.size(key) == 0:
                # Of a PUT whose line was cut some servers keep the name, and nothing in it.
                self._call(key, "put_object", Key=path, Body=whole)
        else:
            # Asked first, since a merge made again after a takeover need not be sent again.
            created = self.size(key) is None and self._put_parts(key, path, body)
        if not created:
            held_bytes = self.size(key)
            if held_bytes is None:
                raise StoreUnreachable(f"{self._where(key)}: said to be there, but not found")
            check_same(key, held_bytes, body.nbytes)

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        path = self._path(key)
        if start == stop:
            held_bytes = self.size(key)
            if held_bytes is None:
                raise BlobMissing(f"blob {key} is not in {self.url}")
            check_range(key, start, stop, held_bytes)
            return b""
        assert 0 <= start < stop, (start, stop)
        if stop - start <= RANGE_BYTES_MAX:
            return self._range(key, path, start, stop, anew)
        whole = memoryview(bytearray(stop - start))

        def fill(begin: int) -> None:
            end = min(begin + RANGE_BYTES_MAX, stop)
            whole[begin - start : end - start] = self._range(key, path, begin, end, anew)

        self._in_threads(fill, range(start, stop, RANGE_BYTES_MAX))
        return whole.toreadonly()

    def size(self, key: str) -> int | None:
        path = self._path(key)
        try:
            answer = self._call(key, "head_object", Key=path)
        except BlobMissing:
            # The answer to HEAD has no body, so it cannot say that the bucket is what is missing.
            with suppress(BlobMissing):
                self._range(key, path, 0, 1)
            return None
        return int(answer["ContentLength"])

    def keys(self, prefix: str) -> list[str]:
        whole = self._path(checked_prefix(prefix)[:-1]) + "/"
        start = len(whole) - len(prefix)
        named: dict[str, str] = {"Prefix": whole}
        found: list[str] = []
        while True:
            answer = self._call(prefix, "list_objects_v2", **named)
            names = (str(each["Key"])[start:] for each in answer.get("Contents", ()))
            found += [name for name in names if is_key(name)]
            if not answer.get("IsTruncated"):
                return sorted(found)
            named["ContinuationToken"] = answer["NextContinuationToken"]

    def delete(self, key: str) -> None:
        with suppress(BlobMissing):  # S3 itself says that it is done, also to what is not there
            self._call(key, "delete_object", Key=self._path(key))

    def close(self) -> None:
        self._threads.shutdown()
        client = getattr(self._files, "_s3", None)  # the public attribute would connect first
        if client is not None:
            self._files.close_session(self._files.loop, client)

    def _put_parts(self, key: str, path: str, body: Body) -> bool:
        """Sends equal parts; an upload that fails is taken back, and nothing of it is visible."""
        part_bytes, size_bytes = PART_BYTES, body.nbytes
        while part_bytes * PARTS_MAX < size_bytes:
            part_bytes *= 2
        upload = self._call(key, "create_multipart_upload", Key=path)["UploadId"]
        named = {"Key": path, "UploadId": upload}

        def send(start: int) -> dict[str, Any]:
            part = body.cut(start, min(start + part_bytes, size_bytes))
            number = start // part_bytes + 1
            answer = self._call(key, "upload_part", PartNumber=number, Body=part, **named)
            return {"PartNumber": number, "ETag": answer["ETag"]}

        try:
            sent = self._in_threads(send, range(0, size_bytes, part_bytes))
            try:
                complete = {"MultipartUpload": {"Parts": sent}, **named}
                created = self._create(key, "complete_multipart_upload", **complete)
            except BlobMissing:
                # The upload is gone: our own request, whose answer was lost, completed it.
                return False
        except BaseException:
            with suppress(Failure):
                self._call(key, "abort_multipart_upload", **named)
            raise
        if not created:
            with suppress(Failure):
                self._call(key, "abort_multipart_upload", **named)
        return created

    def _create(self, key: str, method: str, **request: Any) -> bool:
        """Sends a request that makes an object; False when one of this name is there."""
        condition = {"IfNoneMatch": "*"} if self._conditional else {}
        try:
            self._call(key, method, **request, **condition)
        except _ThereAlready:
            return False
        except _NotOffered:
            self._conditional = False
            self._call(key, method, **request)
        return True

    def _range(self, key: str, path: str, start: int, stop: int, anew: bool = False) -> bytes:
        seconds = self._attempt_seconds(stop - start)
        if anew:
            attempt = partial(sync, self._files.loop, self._anew, path, start, stop)
        else:
            place = f"{self.bucket}/{path}"
            attempt = partial(self._files.cat_file, place, start=start, end=stop)
        got: bytes = self._until_answered(key, partial(attempt, timeout=seconds))
        if len(got) > stop - start:
            raise StoreUnreachable(f"{self._where(key)}: this server does not read ranges")
        check_range(key, start, stop, start + len(got))
        return got

    async def _anew(self, path: str, start: int, stop: int) -> bytes:
        """Asks, in words of S3's own, that the answer say `no-cache`: a cache can look for that."""
        answer = await self._files._call_s3(
            "get_object",
            Bucket=self.bucket,
            Key=path,
            Range=f"bytes={start}-{stop - 1}",
            ResponseCacheControl="no-cache",
        )
        async with answer["Body"] as body:
            whole: bytes = await body.read()
        return whole

    def _call(self, key: str, method: str, **request: Any) -> Any:
        timeout = self._attempt_seconds(len(request.get("Body", b"")))
        call = partial(self._files.call_s3, method, Bucket=self.bucket, **request)
        return self._until_answered(key, partial(call, timeout=timeout))

    def _attempt_seconds(self, size_bytes: int) -> float:
        return self._silence_seconds + size_bytes / BYTES_PER_SECOND_MIN

    def _until_answered(self, key: str, attempt: Callable[[], T]) -> T:
        """Repeats what may succeed later, with growing random waits, until the limit."""
        deadline = time.monotonic() + self._limit_seconds
        wait_seconds: float = S3_PAUSE_SECONDS_MIN
        while True:
            try:
                return attempt()
            except Exception as error:
                kind = kind_of(error)
                if kind is Kind.THERE_ALREADY:
                    raise _ThereAlready from error
                if kind is Kind.NOT_OFFERED:
                    raise _NotOffered from error
                pause_seconds = random.uniform(0.5, 1.0) * wait_seconds
                late = time.monotonic() + pause_seconds > deadline
                if kind is not Kind.LATER or late:
                    raise trouble_of(error, kind, self._where(key)) from error
            time.sleep(pause_seconds)
            wait_seconds = min(2 * wait_seconds, S3_PAUSE_SECONDS_MAX)

    def _in_threads(self, work: Callable[[int], T], starts: Iterable[int]) -> list[T]:
        """Does all pieces, in order of their starts; after a failure no further one is begun."""
        futures = [self._threads.submit(work, start) for start in starts]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
            for future in futures:
                if not future.cancelled():
                    future.exception()

    def _path(self, key: str) -> str:
        return f"{self._prefix}/{checked_key(key)}" if self._prefix else checked_key(key)

    def _where(self, key: str) -> str:
        return f"blob {key} of {self.url} at {self._endpoint}"


class _ThereAlready(Exception):
    """An object of this name is there."""


class _NotOffered(Exception):
    """The server does not know conditional requests."""


def place_of(url: str) -> tuple[str, str]:
    """Bucket and prefix of an s3 address; raises ConfigInvalid."""
    _, at, place = url.removeprefix("s3://").rpartition("@")  # a secret may hold slashes
    if at:
        raise ConfigInvalid(
            f"store {'s3://' + place!r}: keep credentials out of the address; "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ConfigInvalid(f"store {url!r}: {bucket!r} is no bucket; use s3://bucket/prefix")
    prefix = prefix.strip("/")
    if prefix and not _PREFIX.fullmatch(prefix):
        raise ConfigInvalid(
            f"store s3://{bucket}/...: use letters, digits, ., - and _ between single slashes in "
            "its prefix"
        )
    return bucket, prefix


def _checked_endpoint(endpoint: str | None) -> str:
    if endpoint is None:
        return "AWS"
    try:
        parts = urlsplit(endpoint)
    except ValueError:  # an unclosed bracket
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise ConfigInvalid(
            f"store endpoint {hide_credentials(endpoint)!r}: use http://host:port or https://host"
        )
    return endpoint
