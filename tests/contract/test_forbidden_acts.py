"""What a learner may not do, as one list: each act is tried with its key, refused, and named.

Each within a second, by an error of the client and no time-out; and afterwards streams and blobs
stand as they stood. `test_doors` tries every subject, `test_store_doors` every prefix.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from decodiloco.errors import BlobCorrupt
from decodiloco.store.keys import checkpoint_key, delta_key
from decodiloco.store.open_store import open_store
from streams.errors import BadName, Failure, PermissionDenied
from streams.jetstream import Connection
from streams.link import Message
from streams.pulse import Beat
from tests.builders import closing, joined, manifest, offered, opened, round_opened, tape_of
from tests.contract.doors import Doors, shut
from tests.contract.test_doors import standing

AT_ONCE_SECONDS = 1.0
RUN, TAPE, INBOX = "shut", "TAPE_shut", "IN_shut_home"
TRICKS = ("../b", "b.delta_offered", "*", ">", "b/../a", "a b", "a\r\nPUB x", "%2e%2e", "B", "\x00")

Act = Callable[[Connection], Awaitable[object]]


def ask(call: str, body: object = None) -> Act:
    """A call of JetStream's own API, under the name that a learner's account knows it by."""
    return publish(f"api.{RUN}.{call}", json.dumps(body or {}).encode())


def publish(subject: str, payload: bytes = b"anything") -> Act:
    async def act(learner: Connection) -> object:
        link = await learner.wire.link()
        return await link.request(Message(subject, payload), seconds=5)

    return act


def listen(subject: str) -> Act:
    async def act(learner: Connection) -> object:
        mailbox = await (await learner.wire.link()).listen(subject, 10)
        return await mailbox.take(5)

    return act


async def beat_as_syncer(learner: Connection) -> None:
    """A beat waits for no answer: the refusal shows at the next one."""
    while True:
        await learner.pulse(RUN).beat(Beat("syncer", "s1", {"fence": 99, "leading": 1}))
        await asyncio.sleep(0.01)


FORBIDDEN: dict[str, Act] = {
    "say a word as another": lambda a: a.inbox(RUN, "home").say(joined("b")),
    "offer a delta as another": lambda a: a.inbox(RUN, "home").say(offered("b")),
    "say a word in another region": lambda a: a.inbox(RUN, "far").say(joined("a")),
    "close the run": lambda a: a.inbox(RUN, "home").say(closing(speaker="a")),
    "write the tape": lambda a: a.tape(RUN).append(tape_of([opened(RUN), round_opened()], RUN)),
    "write the tape past the client": publish(f"tape.{RUN}.run.round_opened"),
    "pose as the syncer by heartbeat": beat_as_syncer,
    "beat as another": publish(f"pulse.{RUN}.learner.b"),
    "beat as a merger": publish(f"pulse.{RUN}.merger.m1"),
    "ask a merger": publish(f"merge.{RUN}.m1"),
    "hear what a merger is asked": listen(f"merge.{RUN}.m1"),
    "delete the tape": ask(f"STREAM.DELETE.{TAPE}"),
    "purge the tape": ask(f"STREAM.PURGE.{TAPE}"),
    "change the tape": ask(f"STREAM.UPDATE.{TAPE}", {"name": TAPE, "subjects": ["x"]}),
    "delete a fact": ask(f"STREAM.MSG.DELETE.{TAPE}", {"seq": 2}),
    "delete the inbox": ask(f"STREAM.DELETE.{INBOX}"),
    "create a stream": ask("STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["other"]}),
    "read another's part of the tape": ask(f"STREAM.MSG.GET.{TAPE}", {"seq": 3}),
    "read another's words": ask(f"STREAM.MSG.GET.{INBOX}", {"seq": 1}),
    "hear the inbox": listen(f"in.{RUN}.home.>"),
    "hear another's answers": listen("_INBOX_learner_b.>"),
    "use another's reader": ask(f"CONSUMER.MSG.NEXT.{TAPE}.learner_b", {"batch": 1}),
    "set back another's reader": ask(f"CONSUMER.RESET.{TAPE}.learner_b", {"seq": 1}),
    "delete another's reader": ask(f"CONSUMER.DELETE.{TAPE}.learner_b"),
    "make a reader": ask(f"CONSUMER.CREATE.{TAPE}.a", {"stream_name": TAPE, "config": {}}),
    "speak in another run": publish("in.other.home.a.delta_offered"),
    "speak below another's id": publish(f"in.{RUN}.home.a.b.delta_offered"),
    "climb out of its subtree": publish(f"in.{RUN}.home.../b.delta_offered"),
}


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with shut(tmp_path_factory.mktemp("forbidden")) as made:
        asyncio.run(_begin(made))
        yield made


async def _begin(doors: Doors) -> None:
    await doors.open()
    async with doors.enter("syncer-s1", "learner-b") as (syncer, b):
        await syncer.tape(RUN).append(tape_of([opened(RUN), joined("a"), joined("b")], RUN))
        await b.inbox(RUN, "home").say(joined("b"))


def test_a_learner_is_refused_what_is_not_its_own_and_is_told_at_once(doors: Doors) -> None:
    async def story() -> None:
        before, spent = await standing(doors), {}
        for what, act in FORBIDDEN.items():
            async with doors.enter("learner-a") as (learner,):
                await learner.wire.link()
                began = time.monotonic()
                with pytest.raises(PermissionDenied) as caught:
                    await act(learner)
                spent[what] = time.monotonic() - began
            told = str(caught.value)
            assert f"of run {RUN}" in told and "\n" not in told, (what, told)
        slowest = max(spent, key=lambda what: spent[what])
        print(f"{len(spent)} acts refused; the slowest, to {slowest}: {spent[slowest]:.3f} s")
        assert spent[slowest] < AT_ONCE_SECONDS
        assert await standing(doors) == before

    asyncio.run(story())


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_in_an_id_reaches_neither_a_subject_nor_a_key(
    doors: Doors, tmp_path: Path, trick: str
) -> None:
    store, blob = open_store(tmp_path.as_uri()), manifest("delta", codec="bf16")

    async def story() -> None:
        async with doors.enter("learner-a") as (learner,):
            for attempt in (
                lambda: learner.inbox(RUN, trick),
                lambda: learner.tape(trick),
                lambda: delta_key(RUN, trick, 3, 0, 4, blob),
                lambda: checkpoint_key(trick, "a", 4, blob),
                lambda: store.put(f"{RUN}/delta/{trick}/x", [b"x"]),
                lambda: store.read(f"{RUN}/delta/{trick}/x", 0, 1),
            ):
                with pytest.raises(BadName):
                    attempt()
            word = joined("b").model_copy(update={"learner": trick})
            with pytest.raises(Failure):
                await learner.inbox(RUN, "home").say(word)
            with pytest.raises(BadName):
                await learner.pulse(RUN).beat(Beat("learner", trick, {}))

    asyncio.run(story())
    assert list(tmp_path.iterdir()) == []


def test_a_blob_of_another_is_not_overwritten(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    key = delta_key(RUN, "b", 3, 0, 4, manifest("delta", codec="bf16"))
    store.put(key, [b"sound"])
    with pytest.raises(BlobCorrupt, match="one content only"):
        store.put(key, [b"another one"])
    store.put(key, [b"wrong"])  # of the same size: nothing is written
    assert bytes(store.read(key, 0, 5)) == b"sound"
