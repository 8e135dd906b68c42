"""Merges given away: to whom, what becomes of them, and when a syncer does them itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from decodiloco.config import Times
from decodiloco.merge.carried_out import carry_out
from decodiloco.merge.order import Abandoned, MergeOrder, StoredMerge
from decodiloco.merger.jobs import KEPT_MAX, Jobs
from decodiloco.merger.orders import (
    Done,
    Failed,
    Working,
    decode_answer,
    encode_answer,
    encode_order,
)
from decodiloco.merger.threads import Tell, Threads
from decodiloco.store.blobs import BlobStore
from decodiloco.syncer.errand import UNANSWERED_MAX
from decodiloco.syncer.leadership import Heartbeats
from decodiloco.syncer.mergers import Mergers
from streams.calls import Answerer
from streams.errors import PermissionDenied, Trouble
from streams.memory import MemoryCalls
from streams.pulse import Beat
from tests.merge_orders import RUN, FragmentBench, Stumbling, filled
from tests.real_cluster import until

TIMES = Times(heartbeat_seconds=0.5, takeover_seconds=2.0)


def order_of(bench: FragmentBench) -> MergeOrder:
    return bench.order({"a": filled(1), "b": filled(2)})


class Desk:
    """A leader with its mergers; the clock is in our hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls = MemoryCalls(RUN)
        self.hearts = Heartbeats("s1", TIMES, lambda: self.now)
        self.mergers = Mergers(self.calls, self.hearts, TIMES, lambda: self.now)
        self._tasks: list[asyncio.Task[None]] = []

    def beat(self, *names: str) -> None:
        for name in names:
            self.hearts.take(Beat("merger", name, {}))

    async def has(self, name: str, answerer: Answerer) -> None:
        """A merger of this name that answers so, and beats."""
        self._tasks.append(asyncio.create_task(self.calls.answer(name, answerer)))
        await asyncio.sleep(0)
        self.beat(name)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def tell(story: Callable[[Desk], Awaitable[None]]) -> list[Any]:
    """Runs a story; what was logged."""

    async def whole() -> None:
        async with asyncio.timeout(20):
            desk = Desk()
            try:
                await story(desk)
            finally:
                await desk.close()

    with capture_logs() as logs:
        asyncio.run(whole())
    return logs


class Merger:
    """A merger's jobs and its threads."""

    def __init__(self, store: BlobStore, tell: Tell = lambda *_: None) -> None:
        self.crew = Threads(store, 1, 1, tell)
        self.jobs = Jobs(RUN, self.crew)
        self.answer = self.jobs.answer
        self.close = self.crew.close


def test_a_merger_gives_what_the_syncer_would_have_made() -> None:
    bench = FragmentBench("given")
    order, merger = order_of(bench), Merger(bench.store)
    other = FragmentBench("own")
    own = carry_out(order_of(other), other.store)

    async def story(desk: Desk) -> None:
        await desk.has("m1", merger.answer)
        assert await desk.mergers.carried_out(order) == own

    assert tell(story) == []
    assert isinstance(own, StoredMerge) and merger.crew.done == 1
    stored = set(bench.store.keys(f"{RUN}/")) - {one.key for one in order.contributions}
    assert stored == set(other.store.keys(f"{RUN}/")) - {one.key for one in order.contributions}
    merger.close()


def test_without_mergers_a_merge_is_the_syncers_own() -> None:
    async def story(desk: Desk) -> None:
        order = order_of(FragmentBench("alone"))
        assert await desk.mergers.carried_out(order) is None
        desk.beat("m1")
        desk.now += TIMES.takeover_seconds + 0.1
        assert await desk.mergers.carried_out(order) is None, "who beats no more is not there"

    assert tell(story) == []


def test_the_same_order_is_one_job_however_often_it_is_asked_for() -> None:
    bench = FragmentBench("once")
    order, merger = order_of(bench), Merger(bench.store)
    question = encode_order(order)
    answers = {decode_answer(merger.answer(question)).kind for _ in range(5)}
    while isinstance(answer := decode_answer(merger.answer(question)), Working):
        pass
    assert answers <= {"working", "done"} and isinstance(answer, Done)
    assert decode_answer(merger.answer(question)) == answer
    assert merger.crew.done == 1
    merger.close()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (encode_answer(Failed("no room")), "no room"),
        (b"nothing of the kind", "not msgpack"),
        (encode_answer(Done.of(Abandoned(()))), "a quorum is left"),
        (encode_answer(Done(None, None)), "has no result"),
    ],
)
def test_a_merger_that_fails_is_passed_over_for_another(answer: bytes, told: str) -> None:
    bench = FragmentBench("another")
    order, merger = order_of(bench), Merger(bench.store)

    async def story(desk: Desk) -> None:
        def fails(_: bytes) -> bytes:
            desk.beat("m2")  # which was not heard for long
            return answer

        await desk.has("m2", merger.answer)
        desk.now += TIMES.takeover_seconds + 0.1
        await desk.has("m1", fails)
        assert isinstance(await desk.mergers.carried_out(order), StoredMerge)

    (entry,) = tell(story)
    assert entry["merger"] == "m1" and told in entry["why"]
    merger.close()


def test_where_all_fail_the_merge_is_the_syncers_own_and_that_is_told() -> None:
    async def story(desk: Desk) -> None:
        for name in ("m1", "m2"):
            await desk.has(name, lambda _: encode_answer(Failed("no room")))
        assert await desk.mergers.carried_out(order_of(FragmentBench("all"))) is None

    *_, last = tell(story)
    assert last["event"] == "no merger does it; merging here" and last["asked"] == ["m1", "m2"]


def test_one_that_falls_silent_in_a_merge_is_given_up() -> None:
    asked: list[str] = []

    class Silent(MemoryCalls):
        async def call(self, name: str, question: bytes) -> bytes | None:
            asked.append(name)
            return encode_answer(Working()) if len(asked) == 1 else None

    async def story(desk: Desk) -> None:
        mergers = Mergers(Silent(RUN), desk.hearts, TIMES, lambda: desk.now)
        desk.beat("m1")
        asking = asyncio.create_task(mergers.carried_out(order_of(FragmentBench("silent"))))
        await until(lambda: len(asked) > 1, "its first answer was heard")
        desk.now += TIMES.takeover_seconds + 0.1
        desk.beat("m1")
        assert await asking is None

    first, _ = tell(story)
    assert "no answer for 2.1 s" in first["why"]


def test_a_leader_that_was_held_up_asks_again_before_it_gives_a_merger_up() -> None:
    asked = []

    async def story(desk: Desk) -> None:
        class Deaf(MemoryCalls):
            async def call(self, name: str, question: bytes) -> bytes | None:
                asked.append(name)
                desk.now += 10.0
                return None

        mergers = Mergers(Deaf(RUN), desk.hearts, TIMES, lambda: desk.now)
        desk.beat("m1")
        assert await mergers.carried_out(order_of(FragmentBench("held-up"))) is None

    tell(story)
    assert len(asked) == UNANSWERED_MAX + 1


def test_whoever_has_least_to_do_is_asked() -> None:
    asked: list[str] = []

    def busy(name: str) -> Answerer:
        def answer(_: bytes) -> bytes:
            asked.append(name)
            return encode_answer(Working())

        return answer

    async def story(desk: Desk) -> None:
        for name in ("m1", "m2", "m3"):
            await desk.has(name, busy(name))
        order = order_of(FragmentBench("least"))
        orders = [replace(order, round=number) for number in range(3)]
        asking = [asyncio.create_task(desk.mergers.carried_out(one)) for one in orders]
        await until(lambda: len(set(asked)) == 3, "all of them are asked")
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    tell(story)
    assert set(asked[:3]) == {"m1", "m2", "m3"}


@pytest.mark.parametrize(
    "trouble",
    [
        PermissionDenied("s1 may not publish to merge.trial.m1"),
        Trouble("90000 bytes are more than the NATS server takes in one message"),
    ],
)
def test_a_syncer_that_cannot_ask_merges_itself(trouble: Trouble) -> None:
    class Forbidden(MemoryCalls):
        async def call(self, name: str, question: bytes) -> bytes | None:
            raise trouble

    async def story(desk: Desk) -> None:
        mergers = Mergers(Forbidden(RUN), desk.hearts, TIMES, lambda: desk.now)
        desk.beat("m1")
        assert await mergers.carried_out(order_of(FragmentBench("forbidden"))) is None

    first, _ = tell(story)
    assert first["why"] == str(trouble)


def answered(merger: Merger, order: MergeOrder) -> Done | Failed:
    """The answer of a job, once it has one."""
    while isinstance(answer := decode_answer(merger.answer(encode_order(order))), Working):
        pass
    return answer


def test_a_job_that_failed_is_told_once_and_begins_anew() -> None:
    bench = FragmentBench("anew")
    order = order_of(bench)
    own = carry_out(order, bench.store)
    fails = iter([True])
    told: list[object] = []
    stumbling = Stumbling(
        bench.store, lambda key, _: ConnectionError(key) if next(fails, False) else None
    )
    merger = Merger(stumbling, lambda _, came: told.append(came))

    first = answered(merger, order)

    assert isinstance(first, Failed) and "ConnectionError" in first.why
    assert answered(merger, order) == Done.of(own)
    merger.close()


def test_a_merger_refuses_an_order_of_another_run_and_one_too_many() -> None:
    bench = FragmentBench("refuses")
    order, merger = order_of(bench), Merger(bench.store)
    answer = answered(merger, replace(order, run="other"))
    assert isinstance(answer, Failed) and "of run other" in answer.why
    merger.close()


def test_the_oldest_answers_are_let_go_of() -> None:
    bench = FragmentBench("many")
    order, merger = order_of(bench), Merger(bench.store)
    small = replace(order, contributions=(), quorum=1)
    for number in range(KEPT_MAX + 10):
        assert isinstance(answered(merger, replace(small, round=number)), Done)
    assert len(merger.jobs._jobs) <= KEPT_MAX
    merger.close()
