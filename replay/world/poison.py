"""What a broken or hostile speaker leaves behind: deltas that are not sound, words that are none.

Knows how bytes and words are made, and how to make them wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np
from blake3 import blake3

from decodiloco.store.header import parse_header, render_header
from decodiloco.store.tensors import Encoded
from replay.world.model import Arrays
from streams.codec import encode_event, pack
from streams.events import CheckpointStored, DeltaOffered, LearnerJoined, LearnerLeft, Word
from streams.manifest import Manifest
from streams.parts import Moments

if TYPE_CHECKING:
    from replay.world.world import World

WAYS = (
    "nan", "infinite", "huge", "zero", "flipped", "tiny", "strange tensor", "wrong shape",
    "lying header", "other codec",
)  # fmt: skip

Message = tuple[str, str, bytes]
Messages = Callable[[Random, "World"], Iterator[Message]]


def spoilt(how: str, delta: Arrays) -> Arrays:
    """A delta that is not what was trained."""
    name = sorted(delta)[0]
    array = delta[name]
    match how:
        case "nan":
            array.flat[-1] = np.nan
        case "infinite":
            array.flat[0] = np.inf
        case "huge":
            return {key: value * np.float32(1000) for key, value in delta.items()}
        case "zero":
            return {key: np.zeros_like(value) for key, value in delta.items()}
        case "flipped":
            return {key: -value for key, value in delta.items()}
        case "tiny":
            return {key: value * np.float32(1e-42) for key, value in delta.items()}
        case "strange tensor":
            return {**delta, "zz.strange": array}
        case "wrong shape":
            return {**delta, name: array.reshape(-1)[:-1].copy()}
        case _:
            pass
    return delta


def forged(how: str, blob: Encoded) -> Encoded:
    """A blob whose header lies, or that is named as another codec's."""
    match how:
        case "lying header":
            header = parse_header(bytes(blob.parts[0]), "forged")
            assert header.squares is not None
            squares = tuple(2.0 * value for value in header.squares)
            first = render_header(replace(header, squares=squares))
            digest = blake3(first).digest()
            size_bytes = len(first) + header.payload_bytes
            named = Manifest(bytes=size_bytes, digest=digest, codec=blob.manifest.codec)
            return Encoded((first, *blob.parts[1:]), named)
        case "other codec":
            other = "fp32" if blob.manifest.codec == "bf16" else "bf16"
            return replace(blob, manifest=blob.manifest.model_copy(update={"codec": other}))
        case _:
            return blob


def malformed(random: Random, world: World) -> Iterator[Message]:
    """What is no word at all, or is said under another's name."""
    names = [learner.id for learner in world.case.learners] + ["stranger"]
    sound = encode_event(_checkpoint("stranger", 1, 1))
    for payload in (
        b"",
        b"\xc1",
        random.randbytes(40),
        sound[: len(sound) // 2],
        sound + b"\x00",
        pack([9, "checkpoint_stored", {}]),
        pack([1, "fragment_merged", {}]),
        pack([1, "checkpoint_stored", {"learner": "stranger"}]),
        b"\x91" * 200,
        b"\x00" * 20_000,
        sound,
    ):
        yield random.choice(names), "checkpoint_stored", payload


def lies(random: Random, world: World) -> Iterator[Message]:
    """Words of a sound form, by one who may speak and says what cannot be."""
    name = "liar"
    layout = world.case.opening.layout.digest
    versions = (0,) * world.case.opening.run.fragments
    region = world.case.opening.run.regions[0]
    far = 2**53
    words: list[Word] = [
        _join(name, layout, region, (far,) * len(versions)),
        _join(name, bytes(32), region, versions),
        _join(name, layout, "nowhere", versions),
        _join(name, layout, region, versions).model_copy(update={"learner_step": 7}),
        _join(name, layout, region, (*versions, 0)),
        _offer(name, 1, random),
        _checkpoint(name, 1, 1),
        LearnerLeft(
            learner=name,
            incarnation=1,
            said=1,
            seen=0,
            reason="asked",
            learner_step=far,
            tokens_trained=far,
            cursor=b"",
            adopted=(),
            digest=b"",
        ),
    ]
    for word in words:
        yield name, word.kind, encode_event(word)


def _join(name: str, layout: bytes, region: str, versions: tuple[int, ...]) -> LearnerJoined:
    return LearnerJoined(
        learner=name,
        slot=3,
        nonce=bytes(16),
        seen=0,
        region=region,
        layout_digest=layout,
        fingerprint="liar",
        cursor=b"",
        learner_step=0,
        tokens_trained=0,
        versions=versions,
        moments=Moments(source="zero", age_steps=0),
    )


def _checkpoint(name: str, incarnation: int, said: int) -> CheckpointStored:
    manifest = Manifest(bytes=1, digest=bytes(32), codec="raw")
    return CheckpointStored(
        learner=name,
        incarnation=incarnation,
        said=said,
        learner_step=0,
        step=0,
        manifest=manifest,
    )


def _offer(name: str, incarnation: int, random: Random) -> DeltaOffered:
    return DeltaOffered(
        learner=name,
        incarnation=incarnation,
        said=1,
        seen=0,
        round=random.choice((0, 1, 2**53)),
        fragment=random.choice((0, 2**53)),
        base_version=random.choice((0, 2**53)),
        learner_step=random.choice((-1, 1, 2**60)),
        inner_steps=random.choice((-1, 0, 1, 2**60)),
        tokens=random.choice((-1, 0, 1, 2**60)),
        tokens_trained=random.choice((-1, 0, 2**60)),
        step_seconds=0.0,
        upload_seconds=0.0,
        loss=random.choice((float("nan"), 1.0)),
        cursor=b"",
        adopted=(),
        manifest=Manifest(bytes=1, digest=bytes(32), codec="bf16"),
    )
