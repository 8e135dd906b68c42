"""Ten thousand bent messages into the inbox of a running cluster: it stays up, and merges go on.

Real processes, as in `test_hostile_words`; the messages are those of `tests/fuzz`, said as fast as
the server takes them. A thousand without --long.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from streams.codec import decode_word
from streams.errors import Unreadable
from streams.events import (
    FragmentMerged,
    MessageRefused,
    RunClosed,
    SyncerTookOver,
    Word,
)
from streams.link import Message
from tests.builders import closing
from tests.chaos.test_hostile_words import assert_rate_of_refusals, counted, watched
from tests.fuzz.bending import Bender
from tests.fuzz.messages import bent, sound_words
from tests.hostile import Follower
from tests.real_cluster import RealCluster, until

SEED = 3
SPEAKERS = tuple(f"fuzz-{number}" for number in range(20))
KINDS = (
    "delta_offered",
    "learner_joined",
    "learner_left",
    "checkpoint_stored",
    "hardship_injected",
)
ENDING = ("run_closing", "retention_asked")  # sound ones would end the story, as they should

pytestmark = pytest.mark.timeout(600)


@pytest.mark.long
def test_a_cluster_trains_on_through_ten_thousand_bent_messages(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    count = 10_000 if request.config.getoption("--long") else 1_000
    with RealCluster(tmp_path) as cluster:
        asyncio.run(play(cluster, count))
        proof = cluster.verified()
    assert proof["ok"] and proof["merges_checked"] == proof["merges"]


async def play(cluster: RealCluster, count: int) -> None:
    cluster.start("syncer", "one"), cluster.start("learner", "a"), cluster.start("learner", "b")
    async with watched(cluster) as follower:
        await until(lambda: len(follower.state.learners) == 2, "both learners join", 120)
        await follower.merges(4)
        before, began = len(follower.tape), time.monotonic()
        outcomes = await say_all(follower, count)
        no_words = outcomes["no word"]
        await until(
            lambda: counted(follower, "fuzz-") >= no_words, "what is no word is counted", 90
        )
        seconds = time.monotonic() - began
        meanwhile = [e for e in follower.tape[before:] if isinstance(e.event, FragmentMerged)]
        print(f"{count} messages ({dict(outcomes)}) counted in {seconds:.1f} s")
        print(f"{len(meanwhile)} merges meanwhile")
        assert meanwhile and no_words > count / 2
        await follower.merges(4)
        assert len(follower.facts(SyncerTookOver)) == 1
        await follower.places.inboxes["home"].say(closing())
        for name in ("a", "b", "one"):
            assert await cluster.ended(name, 90) == 0, cluster.log(name)[-2000:]
            assert "Traceback" not in cluster.log(name)
        assert len(follower.facts(RunClosed)) == 1
        assert_rate_of_refusals(follower)
        recorded = [each.reason for each in follower.facts(MessageRefused)]
        assert all(reason.isprintable() for reason in recorded)


async def say_all(follower: Follower, count: int) -> Counter[str]:
    """Says bent messages; how many of them are no word, or words of which kind."""
    outcomes: Counter[str] = Counter()
    wire = follower.places.held[0].wire
    for number in range(count):
        bender = Bender(f"{SEED} live {number}")
        speaker = bender.chance.choice(SPEAKERS)
        payload = bent(bender, bender.chance.choice(sound_words()).payload)
        word = word_in(payload)
        if word is not None and word.kind in ENDING:
            payload, word = b"\xc1" + payload, None
        outcomes["no word" if word is None else word.kind] += 1
        kind = bender.chance.choice(KINDS)
        link = await wire.link()
        await link.publish(Message(f"in.tiny.home.{speaker}.{kind}", payload))
        await link.publish(Message(f"pulse.tiny.learner.{speaker}", payload))
        if number % 100 == 0:
            await asyncio.sleep(0)  # the tape is followed on this loop, too
    return outcomes


def word_in(payload: bytes) -> Word | None:
    try:
        return decode_word(payload)
    except Unreadable:
        return None
