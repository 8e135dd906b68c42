"""One socket with one NATS client on it. Ends once, with a reason, and never comes back.

The client's own reconnecting is off: it keeps publishes that have timed out and sends them later,
and a client whose read loop has died calls itself connected for ever. Who opens the next link,
and when, is not known here.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from streams.door import Door, plain
from streams.errors import PermissionDenied, ServerUnreachable, Trouble
from streams.permissions import API, domain_api
from streams.times import API_SECONDS, ASK_AGAIN_SECONDS, CLOSE_SECONDS, OPEN_SECONDS
from streams.tolerant import TolerantClient

PENDING_BYTES_MAX = 256 * 1024
STREAM_NOT_FOUND = 10059
# What a cluster says while a server that it needs is away: nothing of it is a refusal.
AWAY = (10008, 10118, 10119)  # nobody leads; the stream, the consumer is offline
NO_SERVER_FOR_IT = 10023  # "insufficient resources": for a consumer, its stream's servers are away

_NOT_KNOWN = re.compile(r"authorization|nkeys? not supported|nonce")
_DENIED = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]*)\"")


class Silent(ServerUnreachable):
    """No answer came: what was asked may have been done or not."""


class Nobody(Silent):
    """The server answers, but nothing listens on the subject: no such stream or consumer."""


class Declined(Trouble):
    """The JetStream API said no, with its error code."""

    def __init__(self, subject: str, code: int, description: str) -> None:
        super().__init__(f"NATS declined {subject}: {description} (error {code})")
        self.code = code
        self.description = description


@dataclass(frozen=True, slots=True)
class Message:
    """Something to publish."""

    subject: str
    payload: bytes
    headers: Mapping[str, str] | None = None


class Mailbox:
    """What one subscription receives, in order. At most `limit` wait: the oldest give way."""

    def __init__(self, subject: str, limit: int) -> None:
        self.subject = subject
        self._messages: deque[Msg] = deque(maxlen=limit)
        self._bell = asyncio.Event()
        self._over: Trouble | None = None
        self.subscription: Subscription | None = None
        self.waits_for = {subject.lower()}  # without a right to these nothing will come

    async def put(self, message: Msg) -> None:
        self._messages.append(message)
        self._bell.set()

    def end(self, why: Trouble) -> None:
        self._over = self._over or why
        self._bell.set()

    async def take(self, seconds: float | None) -> Msg | None:
        """The next message; None after `seconds` without one.

        Raises Silent with its link, PermissionDenied where nothing may come.
        """
        while not self._messages:
            if self._over is not None:
                raise type(self._over)(str(self._over))
            self._bell.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._bell.wait()
            except TimeoutError:
                return None
        return self._messages.popleft()


class Link:
    """One socket, one client. Ends once, with a reason, and never comes back."""

    def __init__(self, name: str, door: Door, on_end: Callable[[], None]) -> None:
        self.client = TolerantClient()
        self.ended = asyncio.Event()
        self.reason = ""
        self.door = door
        self._name = name
        self._on_end = on_end
        self._inbox = ""
        self._asked: dict[str, tuple[frozenset[str], asyncio.Future[Msg]]] = {}
        self._mailboxes: list[Mailbox] = []
        self._denied: dict[str, str] = {}

    async def open(self, servers: Sequence[str]) -> None:
        """Connects to the first server that takes a link; tried once.

        One that takes it and says nothing uses up all the time, so let another be the first next
        time. Raises ServerUnreachable or PermissionDenied.
        """
        shown = self.door.address.shown
        options: dict[str, Any] = {
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0.05,
            "dont_randomize": True,  # the order is ours
            "connect_timeout": OPEN_SECONDS,
            "ping_interval": 3600,  # the wire pings
            "pending_size": PENDING_BYTES_MAX,
            "error_cb": self._on_error,
            "closed_cb": self._on_closed,
            **self.door.options(),
        }
        task = asyncio.current_task()
        cancels = task.cancelling() if task else 0
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await self.client.connect(servers=list(servers), name=self._name, **options)
                self._inbox = self.client.new_inbox()
                await self.client.subscribe(f"{self._inbox}.*", cb=self._on_reply)
        except (OSError, nats.errors.Error, TimeoutError) as error:
            why = self.reason or _why_not_open(error)
            await self.close()
            if task and task.cancelling() > cancels:  # the client swallows it while it connects
                raise asyncio.CancelledError from None
            if _NOT_KNOWN.search(f"{why} {error}".lower()):
                raise PermissionDenied(self.door.unknown()) from None
            raise ServerUnreachable(
                f"no NATS server answers at {shown} ({why}): start one there, or correct the "
                f"address{_about_tls(error, why)}"
            ) from None

    async def publish(self, message: Message, reply: str = "") -> None:
        """Hands a message to the socket. No answer is promised."""
        task = asyncio.current_task()
        cancels = task.cancelling() if task else 0
        headers = dict(message.headers) if message.headers else None
        try:
            await self.client.publish(message.subject, message.payload, reply, headers)
        except nats.errors.MaxPayloadError:
            raise Trouble(
                f"{len(message.payload)} bytes are more than the NATS server takes in one "
                "message: raise `max_payload` in its configuration"
            ) from None
        except (OSError, nats.errors.Error) as error:
            raise Silent(self.reason or str(error)) from None
        if task and task.cancelling() > cancels:  # the client swallows cancellation in a flush
            raise asyncio.CancelledError

    async def request(
        self,
        *messages: Message,
        seconds: float = API_SECONDS,
        again_seconds: float | None = None,
    ) -> Msg:
        """Publishes the messages in order; the reply to the last.

        With `again_seconds` the last is published anew after each such silence; the first reply
        to any of them counts. Raises Silent without a reply in time, Nobody, and
        PermissionDenied for any of them.
        """
        token = secrets.token_hex(16)  # else who has heard an answer could make up the next one
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._asked[token] = (frozenset(item.subject.lower() for item in messages), answer)
        last = messages[-1]
        try:
            async with asyncio.timeout(seconds):
                for message in messages[:-1]:
                    await self.publish(message)
                while not answer.done():
                    await self.publish(last, f"{self._inbox}.{token}")
                    await asyncio.wait({answer}, timeout=again_seconds)
                reply = answer.result()
        except TimeoutError:
            raise Silent(f"no answer on {last.subject} within {seconds:.0f} s") from None
        finally:
            del self._asked[token]
            if answer.done() and not answer.cancelled():
                answer.exception()  # seen, also where a publish failed first
        if not reply.data and (reply.headers or {}).get("Status") == "503":
            raise Nobody(f"nothing listens on {last.subject}")
        return reply

    def api_of(self, region: str) -> str:
        """What requests to a region's JetStream begin with: to a domain of that name.

        Of a server that is in no domain, or in that one, it is the server's own. Whoever lives
        outside the run's account asks under one name, and the account's border knows the domain.
        """
        is_own = not region or self.client.domain in ("", region)
        if is_own or self.door.api != API:
            return self.door.api
        return domain_api(region)

    async def api(
        self,
        call: str,
        body: Mapping[str, Any] | None = None,
        seconds: float = API_SECONDS,
        again_seconds: float | None = None,
        region: str = "",
    ) -> dict[str, Any]:
        """A JetStream API request and its answer. Raises Declined, Silent, PermissionDenied."""
        subject = f"{self.api_of(region)}.{call}"
        message = Message(subject, b"" if body is None else json.dumps(body).encode())
        try:
            reply = await self.request(message, seconds=seconds, again_seconds=again_seconds)
        except Nobody:
            if not subject.startswith(self.door.api):
                raise Nobody(
                    f"a NATS server answers, but not that of region {region} ({subject}): is its "
                    "leaf server up, and joined to this one?"
                ) from None
            raise Nobody(
                f"a NATS server answers, but no JetStream ({subject}): start nats-server with -js, "
                "or turn JetStream on for this account; a server that has just reloaded new "
                "accounts must be reloaded once more"
            ) from None
        return answer_of(subject, reply)

    async def ask(
        self, call: str, body: Mapping[str, Any] | None = None, region: str = ""
    ) -> dict[str, Any]:
        """An API request that may be made twice. Raises what `api` raises.

        In a cluster the server that should answer may have died, and its successor, some seconds
        later, has not heard the question: so it is asked again until it is answered.
        """
        return await self.api(call, body, again_seconds=ASK_AGAIN_SECONDS, region=region)

    async def listen(self, subject: str, limit: int) -> Mailbox:
        self.check_allowed(subject)
        mailbox = Mailbox(subject, limit)
        self._mailboxes.append(mailbox)
        try:
            mailbox.subscription = await self.client.subscribe(subject, cb=mailbox.put)
        except (OSError, nats.errors.Error) as error:
            self._mailboxes.remove(mailbox)
            raise Silent(self.reason or str(error)) from None
        if self.ended.is_set():
            raise Silent(self.reason)
        return mailbox

    async def hang_up(self, mailbox: Mailbox) -> None:
        """Ends one subscription."""
        if mailbox in self._mailboxes:
            self._mailboxes.remove(mailbox)
        if mailbox.subscription is not None:
            with suppress(OSError, nats.errors.Error):
                await mailbox.subscription.unsubscribe()

    def check_allowed(self, subject: str) -> None:
        """Raises PermissionDenied if the server has refused this subject to us."""
        if subject.lower() in self._denied:
            raise PermissionDenied(self._denied[subject.lower()])

    def end(self, reason: str) -> None:
        if self.ended.is_set():
            return
        self.reason = reason
        self.ended.set()
        self._on_end()
        for _, answer in self._asked.values():
            if not answer.done():
                answer.set_exception(Silent(reason))
        for mailbox in self._mailboxes:
            mailbox.end(Silent(reason))

    async def close(self) -> None:
        """Ends the link and closes its socket, however broken that is."""
        self.end(self.reason or "the connection was closed")
        with suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.client.close()

    async def _on_reply(self, message: Msg) -> None:
        asked = self._asked.get(message.subject.rpartition(".")[2])
        if asked is not None and not asked[1].done():
            asked[1].set_result(message)

    async def _on_error(self, error: Exception) -> None:
        denied = _DENIED.search(str(error).lower())
        if denied is None:
            self.reason = self.reason or plain(error)
            return
        verb = "publish to" if denied[1] == "publish" else "subscribe to"
        subject = denied[2]
        text = self.door.forbidden(self._name, f"{verb} {subject}")
        self._denied[subject] = text
        for mailbox in self._mailboxes:
            if subject in mailbox.waits_for:
                mailbox.end(PermissionDenied(text))
        for subjects, answer in self._asked.values():
            mine = subject in subjects or subject == f"{self._inbox}.*".lower()
            if mine and not answer.done():
                answer.set_exception(PermissionDenied(text))

    async def _on_closed(self) -> None:
        self.end(self.reason or "the server closed the connection")


def answer_of(subject: str, reply: Msg) -> dict[str, Any]:
    """The JSON in a reply of JetStream, or Declined; Silent while a cluster's server is away."""
    try:
        answer = json.loads(reply.data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Trouble(f"the answer to {subject} is no JSON: is this a JetStream server?")
    if "error" in answer:
        error = answer["error"]
        code, description = int(error.get("err_code", 0)), str(error.get("description", ""))
        if code in AWAY or (code == NO_SERVER_FOR_IT and ".CONSUMER.CREATE." in subject):
            raise Silent(f"a server of the cluster is away for {subject}: {description}")
        raise Declined(subject, code, description)
    return cast(dict[str, Any], answer)


def _why_not_open(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {OPEN_SECONDS:.0f} s"
    return plain(error)


def _about_tls(error: Exception, why: str) -> str:
    """What else to look at where a certificate is not trusted, or TLS was not expected."""
    if isinstance(error, ssl.SSLError) or "ssl" in why.lower() or "tls" in why.lower():
        return "; its certificate must be signed by what here.nats_ca names, for this host name"
    return ""
