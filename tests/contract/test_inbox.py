"""What every body of the inbox promises."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing

from streams.codec import decode_word, encode_event
from streams.envelope import Source
from streams.events import Word
from streams.inbox import Letter
from streams.jetstream_inbox import JetStreamInbox
from streams.memory import MemoryInbox
from tests.builders import closing, joined, left, offered
from tests.contract.records import Ground, Record


async def take(following: AsyncGenerator[Letter, None], count: int) -> list[Letter]:
    return [await anext(following) for _ in range(count)]


def some_words(count: int) -> list[Word]:
    return [offered("a", said=number) for number in range(1, count + 1)]


def test_words_come_in_the_order_in_which_they_were_said(ground: Ground) -> None:
    async def story(record: Record) -> None:
        words: list[Word] = [joined("a"), offered("a"), offered("b", said=1), closing(), left("a")]
        said = [await record.inbox.say(word) for word in words]
        assert said == [1, 2, 3, 4, 5]
        life = await record.inbox.life()
        async with aclosing(record.inbox.follow(0)) as following:
            letters = await take(following, 5)
        assert letters == [
            Letter(Source("home", life, number), speaker, word.kind, encode_event(word))
            for number, speaker, word in zip(
                said, ["a", "a", "b", "operator", "a"], words, strict=True
            )
        ]
        assert [decode_word(letter.payload) for letter in letters] == words

    ground.tell(story)


def test_an_inbox_is_followed_from_a_cursor_and_as_it_grows(ground: Ground) -> None:
    async def story(record: Record) -> None:
        words = some_words(12)
        for word in words[:6]:
            await record.inbox.say(word)
        async with aclosing(record.inbox.follow(4)) as following:
            assert [one.source.sequence for one in await take(following, 2)] == [5, 6]
            coming = asyncio.create_task(take(following, 6))
            for word in words[6:]:
                await record.inbox.say(word)
            assert [decode_word(one.payload) for one in await coming] == words[6:]

    ground.tell(story)


def test_any_bytes_may_be_left_and_come_as_they_are(ground: Ground) -> None:
    async def story(record: Record) -> None:
        inbox = record.inbox
        assert isinstance(inbox, MemoryInbox | JetStreamInbox)
        payloads = [b"", b"\x00\xff" * 40, b"+OK\r\nMSG a 1 0\r\n", bytes(range(256)), b"x" * 16384]
        for payload in payloads:
            await inbox.say_raw("mallory", "delta_offered", payload)
        async with aclosing(inbox.follow(0)) as following:
            letters = await take(following, len(payloads))
        assert [letter.payload for letter in letters] == payloads
        assert {(letter.speaker, letter.kind) for letter in letters} == {
            ("mallory", "delta_offered")
        }

    ground.tell(story)


def test_the_life_stays_and_another_inbox_has_another(ground: Ground) -> None:
    async def story(record: Record) -> None:
        lives.append(await record.inbox.life())
        assert lives[-1] == await record.inbox.life()

    lives: list[str] = []
    ground.tell(story)
    ground.tell(story)
    assert len(set(lives)) == 2
    assert all(8 <= len(life) <= 64 for life in lives)


def test_many_speak_at_once_and_nothing_is_lost(ground: Ground) -> None:
    async def story(record: Record) -> None:
        words = [offered(speaker, said=n) for speaker in "abcdefgh" for n in range(1, 26)]
        said = await asyncio.gather(*(record.inbox.say(word) for word in words))
        assert sorted(said) == list(range(1, len(words) + 1))
        async with aclosing(record.inbox.follow(0)) as following:
            letters = await take(following, len(words))
        assert [letter.source.sequence for letter in letters] == sorted(said)
        assert {letter.payload for letter in letters} == {encode_event(word) for word in words}

    ground.tell(story)


def test_speakers_in_other_threads_are_heard() -> None:
    """The inbox in memory stands in for a server that all threads of a test share."""

    async def story(record: Record) -> None:
        async def speak(speaker: str) -> None:
            for number in range(1, 51):
                await record.inbox.say(offered(speaker, said=number))

        async with aclosing(record.inbox.follow(0)) as following:
            coming = asyncio.create_task(take(following, 150))
            await asyncio.sleep(0)
            threads = [
                threading.Thread(target=lambda name=speaker: asyncio.run(speak(name)))
                for speaker in "abc"
            ]
            for thread in threads:
                thread.start()
            letters = await coming
            for thread in threads:
                await asyncio.to_thread(thread.join)
        assert [letter.source.sequence for letter in letters] == list(range(1, 151))
        for speaker in "abc":
            said = [decode_word(one.payload).said for one in letters if one.speaker == speaker]
            assert said == list(range(1, 51))

    Ground(None).tell(story)
