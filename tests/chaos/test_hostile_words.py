"""A running cluster and a liar: every lie is refused, left out or counted, and training goes on.

Real processes: a nats-server, two syncers, two tiny learners. The liar speaks to the inbox and
the store directly, as anybody with their addresses could.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from decodiloco.fragments.schedule import fragment_of
from decodiloco.merge.report import decode_report
from decodiloco.places import open_places
from decodiloco.store.keys import key_of_offer, report_key
from decodiloco.store.small import read_small
from decodiloco.stored_opening import read_opening
from decodiloco.times import REFUSALS_SECONDS
from streams.codec import decode_word, encode_event
from streams.errors import Unreadable
from streams.events import (
    DeltaOffered,
    FragmentMerged,
    LearnerJoined,
    LearnerLeft,
    MessageRefused,
    RunClosed,
    RunClosing,
    SyncerTookOver,
    WindowClosed,
)
from streams.link import Message
from tests.builders import closing, evaluated, hardship, joined
from tests.hostile import STEPS, TOKENS, End, Follower, Liar, following
from tests.lies import LEFT_OUT, REFUSED
from tests.real_cluster import RealCluster, until

NOISE, MUTATIONS, FLOOD = 1000, 300, 5000

pytestmark = pytest.mark.timeout(290)


@asynccontextmanager
async def watched(cluster: RealCluster) -> AsyncGenerator[Follower, None]:
    """The run's places and its tape, from outside."""
    places = await open_places(cluster.config, "liar")
    try:
        first = await places.tape.read(0, 1)
        opening = await asyncio.to_thread(read_opening, places.store, first[0].event)
        async with following(places, opening) as follower:
            yield follower
    finally:
        await places.close()


@pytest.mark.long
def test_every_lie_is_refused_left_out_or_counted_and_training_goes_on(tmp_path: Path) -> None:
    gates = {"strikes": 0, "norm_extreme": "none"}  # else the liar is soon not heard any more
    with RealCluster(tmp_path, gates=gates) as cluster:
        asyncio.run(play(cluster))


async def play(cluster: RealCluster) -> None:
    cluster.start("syncer", "one"), cluster.start("syncer", "two")
    async with watched(cluster) as follower:
        liar = Liar(follower, "mallory")
        await liar.join()
        await nothing_but_a_missing_blob(liar)
        cluster.start("learner", "a"), cluster.start("learner", "b")
        await until(lambda: len(follower.state.learners) == 3, "both learners join")
        await follower.merges(4)
        await lies_about_bytes(liar)
        await lies_about_words(liar)
        await a_clone(cluster, follower)
        await a_missing_blob_holds_up_no_other_fragment(liar)
        await a_thousand_fold_delta_is_clipped(liar)
        await noise(cluster, liar)
        await words_of_others(liar)
        await mutations(liar)
        await flood(follower)
        await close(cluster, follower)
        assert_rate_of_refusals(follower)
    proof = cluster.verified()
    assert proof["ok"] and proof["merges_checked"] == proof["merges"] == follower.state.step
    print(f"verified: {proof['events']} facts, {proof['merges']} merges")


async def nothing_but_a_missing_blob(liar: Liar) -> None:
    """The only contribution is missing: the round is open again, and is answered again."""
    await liar.follower.first(lambda e: e if liar.follower.state.rounds else None)
    end = await liar.offer(stored=False)
    assert (end.kind, end.reason) == ("abandoned", "missing")
    assert all(round_.is_open for round_ in liar.follower.state.rounds.values())
    again = await liar.offer()
    assert again.kind == "merged"
    assert liar.follower.state.step == 1


async def lies_about_bytes(liar: Liar) -> None:
    for reason, made in LEFT_OUT.items():
        end = await liar.offer(made(liar))
        assert end.kind in ("left_out", "abandoned"), (reason, end)
        assert end.reason.startswith(reason), (reason, end.reason)
        print(f"left out: {end.reason[:90]}")


async def lies_about_words(liar: Liar) -> None:
    for reason, fields in REFUSED.items():
        refused(reason, await liar.offer(**fields))
    await overlapping_work(liar)
    old = liar.incarnation
    await liar.join()
    refused(f"old incarnation {old}", await liar.offer(incarnation=old))
    assert (await liar.offer()).kind == "merged"


async def overlapping_work(liar: Liar) -> None:
    """Steps that are merged are offered once more, from the base that they were made on."""
    assert (await liar.offer()).kind == "merged"
    state = liar.follower.state
    learner = state.learners[liar.name]
    (fragment, account) = max(enumerate(learner.accounts), key=lambda pair: pair[1].merged_step)
    begin = learner.anchor_steps[fragment]
    assert begin < account.merged_step
    inner_steps = liar.step + STEPS - begin
    rounds = range(state.next_round - 1, 0, -1)
    end = await liar.offer(
        liar.encoded(liar.arrays(fragment)),
        round=next(n for n in rounds if fragment_of(n, len(state.fragments)) == fragment),
        fragment=fragment,
        base_version=learner.adopted[fragment],
        inner_steps=inner_steps,
        tokens=TOKENS * inner_steps,
        adopted=(),
    )
    refused(f"overlaps: begins at step {begin}; merged or merging up to", end)


def refused(reason: str, end: End) -> None:
    assert end.kind == "refused", (reason, end)
    assert end.reason.startswith(reason), (reason, end.reason)
    print(f"refused: {end.reason[:90]}")


async def a_clone(cluster: RealCluster, follower: Follower) -> None:
    """A second process takes a learner's id: the first one ends, the run goes on with the new."""
    before = follower.state.learners["b"].incarnation
    cluster.start("learner", "b", "clone of b")
    assert await cluster.ended("b") == 3
    assert "a newer life of learner b joined" in cluster.log("b")
    assert follower.state.learners["b"].incarnation > before
    await follower.merges(2)


async def a_missing_blob_holds_up_no_other_fragment(liar: Liar) -> None:
    end = await liar.offer(stored=False)
    assert (end.kind, end.reason) == ("left_out", "missing")
    tape, closed = liar.follower.tape, 0
    for envelope in tape[end.position : end.envelope.position]:
        event = envelope.event
        if isinstance(event, WindowClosed) and end.position in event.offers:
            closed = envelope.position
    between = [
        e.event.fragment
        for e in tape[closed : end.envelope.position - 1]
        if isinstance(e.event, FragmentMerged)
    ]
    waited = end.envelope.time_seconds - tape[closed - 1].time_seconds
    print(f"a missing blob was waited for {waited:.2f} s; merged meanwhile: {between}")
    assert between, "no other fragment was merged meanwhile"


async def a_thousand_fold_delta_is_clipped(liar: Liar) -> None:
    await until(lambda: min(liar.follower.state.versions) > 8, "the history of clips is full")
    end = await liar.offer(liar.encoded(liar.arrays(liar.fragment, scale=1e3)))
    event = end.envelope.event
    assert end.kind == "merged" and isinstance(event, FragmentMerged)
    key = report_key(liar.follower.state.run, event.round, event.report)
    stored = await asyncio.to_thread(read_small, liar.follower.places.store, key, event.report)
    report = decode_report(stored)
    ours = [one.position for one in report.contributors].index(end.position)
    for tensor in report.tensors:
        assert tensor.limit is not None and tensor.clips[ours] < 0.1
        assert tensor.norms[ours] * tensor.clips[ours] == pytest.approx(tensor.limit)
        assert tensor.outer_gradient_norm <= tensor.limit * (1 + 1e-6)
    print(f"clipped to {report.tensors[0].clips[ours]:.2g} of itself")


async def noise(cluster: RealCluster, liar: Liar) -> None:
    """Random bytes, each counted once; and subjects that are no text."""
    chance = random.Random(7)
    for _ in range(NOISE // 50):
        payloads = [chance.randbytes(chance.randrange(8, 400)) for _ in range(50)]
        says = (liar.inbox.say_raw(f"noise-{p[0] % 5}", "delta_offered", p) for p in payloads)
        await asyncio.gather(*says)
    for subject in (
        b"in.tiny.home.\xff\xfe.\xc3",
        b"in.tiny.home.a\x0b\x0c.b",
        b"in.tiny.home.\x00.c",
    ):
        publish_raw(cluster, subject)
    await until(lambda: counted(liar.follower, "noise-") == NOISE, "all noise is counted")
    await until(lambda: counted(liar.follower, "") >= NOISE + 3, "odd subjects are counted")
    await liar.follower.merges(2)
    print(f"noise: {counted(liar.follower, 'noise-')} of {NOISE} counted")


def publish_raw(cluster: RealCluster, subject: bytes) -> None:
    """Over a bare socket: no client would send this."""
    host, port = cluster.server.url.removeprefix("nats://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as server:
        server.sendall(b'CONNECT {"verbose":false}\r\nPUB ' + subject + b" 4\r\nboom\r\nPING\r\n")
        while b"PONG" not in server.recv(65536):
            pass


def counted(follower: Follower, speaker: str) -> int:
    """How many messages of speakers that begin so were counted."""
    return sum(
        fact.count
        for fact in follower.facts(MessageRefused)
        if fact.source.startswith(f"in.tiny.home.{speaker}")
    )


async def words_of_others(liar: Liar) -> None:
    """A word in another's name, a joiner from nowhere: counted, and no fact comes of it."""
    sound = liar.word(liar.encoded(liar.arrays(liar.fragment)))
    before = len(liar.follower.tape)
    await liar.inbox.say_raw("a", sound.kind, encode_event(sound))
    in_anothers_name = sound.model_copy(update={"learner": "a"})
    await liar.inbox.say_raw("thief", sound.kind, encode_event(in_anothers_name))
    await liar.inbox.say_raw("ghost", "learner_joined", encode_event(joined("ghost")))
    await liar.inbox.say(evaluated(speaker="gossip", step=2**53))
    for speaker in ("a", "thief", "ghost", "gossip"):
        await until(lambda s=speaker: counted(liar.follower, s) >= 1, f"{speaker} is counted")
    later = liar.follower.tape[before:]
    assert not [e for e in later if e.event.kind == "delta_offered" and e.event.learner == "thief"]
    assert "ghost" not in liar.follower.state.learners


async def mutations(liar: Liar) -> None:
    """Sound words with a few bytes changed, unless they would name bytes that are not there."""
    chance = random.Random(11)
    delta = liar.encoded(liar.arrays(liar.fragment))
    sound = liar.word(delta)
    key = key_of_offer(liar.follower.state.run, sound)
    await asyncio.to_thread(liar.follower.places.store.put, key, delta.parts)
    words = [sound, hardship(speaker="mallory"), evaluated(speaker="mallory")]
    outcomes: Counter[str] = Counter()
    for number in range(MUTATIONS):
        word = words[number % len(words)]
        payload = bytearray(encode_event(word))
        for _ in range(chance.randrange(1, 4)):
            payload[chance.randrange(len(payload))] = chance.randrange(256)
        try:
            read = decode_word(bytes(payload))
        except Unreadable:
            outcomes["no word"] += 1
        else:
            if isinstance(read, DeltaOffered) and key_of_offer("tiny", read) != key:
                continue
            outcomes[read.kind] += 1
        await liar.inbox.say_raw("mallory", word.kind, bytes(payload))
    print(f"mutations said: {dict(outcomes)}")
    no_words = outcomes["no word"]
    await until(lambda: counted(liar.follower, "mallory") >= no_words, "mutations are counted")


async def flood(follower: Follower) -> None:
    """Five thousand letters as fast as they go: the leader is not taken for dead."""
    beats: list[float] = []
    listening = asyncio.create_task(leading(follower, beats))
    fences = len(follower.facts(SyncerTookOver))
    at, began = len(follower.tape), time.monotonic()
    wire = follower.places.held[0].wire
    costly = encode_event(joined("flood", versions=tuple(range(256))))
    for number in range(FLOOD):
        link = await wire.link()
        payload = costly[:-1] + bytes([number % 128])
        await link.publish(Message(f"in.tiny.home.flood.{number}", payload))
    await until(lambda: counted(follower, "flood") == FLOOD, "the flood is counted", 90)
    merges = [e for e in follower.tape[at:] if isinstance(e.event, FragmentMerged)]
    seconds = time.monotonic() - began
    listening.cancel()
    silence = max(later - earlier for earlier, later in pairwise(beats))
    print(f"flood: {FLOOD} letters in {seconds:.1f} s, {len(merges)} merges meanwhile")
    print(f"flood: the leader's longest silence was {silence:.2f} s")
    assert len(follower.facts(SyncerTookOver)) == fences
    assert merges


async def leading(follower: Follower, beats: list[float]) -> None:
    """When the leader was heard."""
    async with aclosing(follower.places.pulse.listen()) as heard:
        async for beat in heard:
            if beat.values.get("leading") == 1:
                beats.append(time.monotonic())


async def close(cluster: RealCluster, follower: Follower) -> None:
    """The run ends in good order, and both learners hold the run's model."""
    await follower.merges(2)
    await follower.places.inboxes["home"].say(closing())
    for name in ("a", "clone of b", "one", "two"):
        assert await cluster.ended(name, 90) == 0, cluster.log(name)[-2000:]
        assert "Traceback" not in cluster.log(name)
    state = follower.state
    (closed,) = follower.facts(RunClosed)
    ends = {left.learner: left.digest for left in follower.facts(LearnerLeft)}
    assert ends["a"] == ends["b"] == closed.digest
    assert len(follower.facts(RunClosing)) == 1 and state.closed is not None
    for learner in state.learners.values():
        for fragment in range(len(state.fragments)):
            assert sum(learner.fates(fragment).values()) == learner.tokens_trained
    joins = [e.position for e in follower.tape if isinstance(e.event, LearnerJoined)]
    training = follower.tape[sorted(joins)[2] :]
    merges = [e.time_seconds for e in training if isinstance(e.event, FragmentMerged)]
    gaps = [later - earlier for earlier, later in pairwise(merges)]
    print(f"{len(merges)} merges; the longest gap {max(gaps):.1f} s")


def assert_rate_of_refusals(follower: Follower) -> None:
    """At most one record a subject and ten seconds."""
    last: dict[str, float] = {}
    for envelope in follower.tape:
        if isinstance(envelope.event, MessageRefused):
            source = envelope.event.source
            since = envelope.time_seconds - last.get(source, 0.0)
            assert since > REFUSALS_SECONDS - 1.0, (source, since)
            last[source] = envelope.time_seconds
