"""`replay verify` agrees with a sound run, and names the first thing that is not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from decodiloco.errors import RulesUnknown
from decodiloco.merge.self_test import self_test
from decodiloco.store.keys import global_key, key_of_checkpoint, key_of_offer
from decodiloco.store.open_store import open_store
from decodiloco.syncer.machine import begin, fold
from replay.errors import Differs
from replay.facts_check import FactsCheck
from replay.place import find_place
from replay.tape_file import Header
from replay.tape_writer import open_writer
from replay.verify import Proof, verify_place
from replay.verify_report import report_lines, told_as_json
from streams.codec import seal
from streams.envelope import Envelope, genesis
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    Event,
    FragmentMerged,
    LearnerLeft,
    RoundOpened,
    RunClosed,
    RunOpened,
    SnapshotStored,
    SyncerTookOver,
    WindowClosed,
)
from tests.builders import left, left_out
from tests.real_run import RealRun


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    """A run that nobody touched. Tests copy what they change."""
    folder = tmp_path_factory.mktemp("sound")
    run = RealRun(open_store((folder / "store").as_uri())).play()
    run.save_tape(folder / "run.tape")
    return run


def folder_of(run: RealRun) -> Path:
    return Path(run.store.url.removeprefix("file://")).parent


def verified(path: Path, threads: int = 1, store: str | None = None) -> Proof:
    return verify_place(find_place(path, store), threads, lambda done, total: None)


def chained(run: RealRun, change: Callable[[Envelope], Event]) -> list[Envelope]:
    """The tape with its facts changed, and a chain of its own that holds."""
    tape, previous = [], genesis(run.name)
    for old in run.tape:
        event = change(old)
        fence, writer = old.fence, old.writer
        tape.append(
            seal(old.position, previous, fence, writer, old.source, old.time_seconds, event)
        )
        previous = tape[-1].digest
    return tape


def rewritten(
    run: RealRun, path: Path, change: Callable[[Envelope], Event], then: Sequence[Event] = ()
) -> Path:
    """A tape file with its facts changed by somebody who seals and chains it all anew."""
    writer_of_file = open_writer(path, Header(run.name, run.store.url))
    writer_of_file.append(chained(run, change))
    writer_of_file.seal()
    return path


def first(run: RealRun, kind: type[Event], number: int = 0) -> Envelope:
    return [each for each in run.tape if isinstance(each.event, kind)][number]


def with_fields(kind: type[Event], **fields: object) -> Callable[[Envelope], Event]:
    """Changes these fields in the first fact of a kind."""
    done: list[int] = []

    def change(envelope: Envelope) -> Event:
        if not isinstance(envelope.event, kind) or done:
            return envelope.event
        done.append(envelope.position)
        return envelope.event.model_copy(update=fields)

    return change


def blobs(run: RealRun) -> Iterator[Path]:
    yield from sorted(path for path in (folder_of(run) / "store").rglob("*") if path.is_file())


def flipped(path: Path, whole: bytes, chance: random.Random) -> None:
    at = chance.randrange(len(whole))
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :])


def removed(path: Path, whole: bytes, chance: random.Random) -> None:
    path.unlink()


def cut(path: Path, whole: bytes, chance: random.Random) -> None:
    path.write_bytes(whole[:-1])


def grown(path: Path, whole: bytes, chance: random.Random) -> None:
    path.write_bytes(whole + b"\0")


def test_a_sound_run_agrees_and_every_merge_is_made_again(sound: RealRun) -> None:
    proof = verified(folder_of(sound) / "run.tape")

    assert proof.first_difference is None
    merges = sum(isinstance(each.event, FragmentMerged) for each in sound.tape)
    assert told_as_json(proof) == {
        "ok": True,
        "events": len(sound.tape),
        "merges": merges,
        "merges_checked": merges,
        "bytes_checked": sum(path.stat().st_size for path in blobs(sound)),
        "first_difference": None,
    }


def test_any_number_of_threads_gives_the_same_proof(sound: RealRun) -> None:
    path = folder_of(sound) / "run.tape"

    assert verified(path, threads=1) == verified(path, threads=2) == verified(path, threads=5)


def test_the_fates_of_tokens_add_up_in_the_table(sound: RealRun) -> None:
    proof = verified(folder_of(sound) / "run.tape")

    assert [(row.learner, row.fragment) for row in proof.fates] == [
        (learner, fragment) for learner in "abc" for fragment in range(3)
    ]
    assert all(sum(row.fates.values()) == row.trained for row in proof.fates)
    assert sum(row.fates["left_out"] for row in proof.fates) == 1000
    for by_fragment, lines in ((False, 3), (True, 9)):
        told = list(report_lines(proof, by_fragment))
        assert len(told) == 2 + 2 + lines + 1
        assert told[-1].startswith("agreed")


def test_whatever_happens_to_any_one_blob_is_found_and_named(tmp_path: Path) -> None:
    run = RealRun(open_store((tmp_path / "store").as_uri()), steps=2, fragments=1).play()
    path_of_tape = run.save_tape(tmp_path / "run.tape")
    chance = random.Random(1)
    changes = (flipped, removed, flipped, cut, flipped, grown)

    for number, path in enumerate(blobs(run)):
        whole = path.read_bytes()
        changes[number % len(changes)](path, whole, chance)
        proof = verified(path_of_tape, threads=2)
        assert list(report_lines(proof, True)) == list(report_lines(verified(path_of_tape), True))
        path.write_bytes(whole)
        assert proof.first_difference is not None, path
        assert path.name in str(proof.first_difference.key), proof.first_difference
    assert verified(path_of_tape).ok


@pytest.mark.parametrize("place", ["opening", "snapshot", "checkpoint", "report", "outer/f0"])
def test_a_changed_byte_in_any_kind_of_blob_is_found(sound: RealRun, place: str) -> None:
    path = next(path for path in blobs(sound) if f"/{place}" in str(path))
    whole = path.read_bytes()
    for change in (flipped, removed, cut, grown):
        change(path, whole, random.Random(2))
        proof = verified(folder_of(sound) / "run.tape")
        path.write_bytes(whole)
        assert proof.first_difference is not None, change
        assert path.name in str(proof.first_difference.key), proof.first_difference


def test_a_left_out_delta_is_read_too_unless_the_tape_calls_it_broken(sound: RealRun) -> None:
    left_out = {
        each.position: each.reason
        for envelope in sound.tape
        if isinstance(envelope.event, FragmentMerged)
        for each in envelope.event.left_out
    }
    assert sorted(reason.split(":")[0] for reason in left_out.values()) == ["missing", "not finite"]
    (position,) = [place for place, reason in left_out.items() if reason.startswith("not finite")]
    offer = sound.tape[position - 1].event
    assert isinstance(offer, DeltaOffered)
    path = folder_of(sound) / "store" / key_of_offer(sound.name, offer)
    whole = path.read_bytes()

    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    proof = verified(folder_of(sound) / "run.tape")
    path.write_bytes(whole)

    assert proof.first_difference is not None
    assert proof.first_difference.position == position
    assert proof.first_difference.key == key_of_offer(sound.name, offer)


def test_the_first_difference_on_the_tape_is_named_whatever_the_threads(sound: RealRun) -> None:
    checkpoint = first(sound, CheckpointStored).event
    merge = first(sound, FragmentMerged, 1).event
    assert isinstance(checkpoint, CheckpointStored) and isinstance(merge, FragmentMerged)
    keys = (
        key_of_checkpoint(sound.name, checkpoint),
        global_key(sound.name, merge.fragment, merge.version, merge.parameters),
    )
    paths = [folder_of(sound) / "store" / key for key in keys]
    wholes = [path.read_bytes() for path in paths]
    for path, whole in zip(paths, wholes, strict=True):
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))

    proofs = [verified(folder_of(sound) / "run.tape", threads) for threads in (1, 2, 4)]

    for path, whole in zip(paths, wholes, strict=True):
        path.write_bytes(whole)
    assert proofs[0] == proofs[1] == proofs[2]
    assert proofs[0].first_difference is not None
    assert proofs[0].first_difference.position == first(sound, FragmentMerged, 1).position
    assert proofs[0].first_difference.key == keys[1]


FORGERIES: list[tuple[str, Callable[[RealRun], Callable[[Envelope], Event]], str]] = [
    (
        "a state digest",
        lambda run: with_fields(FragmentMerged, state_digest=bytes(32)),
        "the fold is not what it was",
    ),
    (
        "an outer gradient's norm",
        lambda run: with_fields(FragmentMerged, outer_gradient_norm=1.0),
        "outer gradient's norm",
    ),
    (
        "a manifest",
        lambda run: with_fields(
            FragmentMerged,
            parameters=first(run, FragmentMerged, 1).event.parameters,
        ),
        "made again, the digest of the parameters is",
    ),
    (
        "a contribution left out of the merge",
        lambda run: with_fields(
            FragmentMerged,
            contributions=first(run, FragmentMerged).event.contributions[1:],
        ),
        "took and left out",
    ),
    ("a step", lambda run: with_fields(FragmentMerged, step=2), "makes version 1 at step 2"),
    ("a window below the quorum", lambda run: with_fields(WindowClosed, offers=(8,)), "quorum"),
    (
        "the same offer twice",
        lambda run: with_fields(WindowClosed, offers=(8, 8, 9)),
        "two offers of one learner",
    ),
    ("an offer's tokens", lambda run: with_fields(DeltaOffered, tokens=399), "as another fact"),
    ("a round's version", lambda run: with_fields(RoundOpened, version=2), "the tape says 2"),
    (
        "a known answer",
        lambda run: with_fields(SyncerTookOver, self_test=bytes(32)),
        "arithmetic",
    ),
    (
        "a contribution too few",
        lambda run: with_fields(
            FragmentMerged, contributions=(8,), left_out=(left_out(9), left_out(10))
        ),
        "1 contributions; the quorum is 2",
    ),
    (
        "a merge's round",
        lambda run: with_fields(FragmentMerged, round=2),
        "round 2 was not closed for this merge",
    ),
    (
        "a window with what is no offer",
        lambda run: with_fields(WindowClosed, offers=(3, 9, 10)),
        "holds what is no offer",
    ),
    ("a snapshot of nothing", lambda run: with_fields(SnapshotStored, position=0), "position 0"),
    (
        "a farewell before the end",
        lambda run: (
            lambda envelope: (
                left("a", incarnation=3, said=1) if envelope.position == 7 else envelope.event
            )
        ),
        "finished a run that is not closed",
    ),
    ("a snapshot's position", lambda run: with_fields(SnapshotStored, position=23), "not in"),
    ("the closing digest", lambda run: with_fields(RunClosed, digest=bytes(32)), "closed model"),
    ("the closing tokens", lambda run: with_fields(RunClosed, tokens=1), "closed at step"),
    ("a farewell", lambda run: with_fields(LearnerLeft, digest=bytes(32)), "finished with model"),
    (
        "a config",
        lambda run: with_fields(RunOpened, config_digest=bytes(32)),
        "the stored opening holds config",
    ),
]


@pytest.mark.parametrize(("what", "forge", "told"), FORGERIES, ids=[each[0] for each in FORGERIES])
def test_a_tape_forged_and_chained_anew_is_found_out(
    sound: RealRun,
    tmp_path: Path,
    what: str,
    forge: Callable[[RealRun], Callable[[Envelope], Event]],
    told: str,
) -> None:
    path = rewritten(sound, tmp_path / "run.tape", forge(sound))

    proof = verified(path)

    assert proof.first_difference is not None, what
    assert told in proof.first_difference.what
    assert proof.first_difference.position is not None


def test_a_real_tape_that_calls_itself_synthetic_is_found_out(
    sound: RealRun, tmp_path: Path
) -> None:
    def marked(envelope: Envelope) -> Event:
        if not isinstance(envelope.event, SyncerTookOver):
            return envelope.event
        return envelope.event.model_copy(update={"fingerprint": "synthetic: no byte was made"})

    proof = verified(rewritten(sound, tmp_path / "forged.tape", marked))

    assert proof.first_difference is not None
    assert proof.first_difference.position == first(sound, FragmentMerged).position
    assert "says that it is synthetic, and blob" in proof.first_difference.what


def test_of_a_synthetic_tape_no_more_is_said_than_was_checked() -> None:
    said = "\n".join(report_lines(Proof("trial", "here", synthetic=True, closed=True), False))

    assert "agreed: the facts follow from each other; no merge and no delta" in said
    assert "every digest" not in said


def test_accounts_that_do_not_add_up_are_found_out(sound: RealRun) -> None:
    facts, state = FactsCheck(self_test()), begin(sound.opening)
    for envelope in sound.tape:
        facts.tell(state, envelope)
        state = fold(state, envelope)
    learner = state.learners["b"]

    assert len(facts.fates(state)) == 9
    for changed, told in (
        (replace(learner, tokens_trained=learner.tokens_trained - 2000), "do not add up"),
        (replace(learner, accounts=learner.accounts[::-1]), "accounted as merged"),
    ):
        with pytest.raises(Differs, match=told):
            facts.fates(replace(state, learners={**state.learners, "b": changed}))


def test_rules_that_this_build_does_not_know_are_named(sound: RealRun, tmp_path: Path) -> None:
    path = rewritten(sound, tmp_path / "run.tape", with_fields(SyncerTookOver, rules=9))

    with pytest.raises(RulesUnknown, match=r"rules 9.*knows rules 1.*install") as caught:
        verified(path)
    assert caught.value.exit_code == 2


def test_a_run_that_goes_on_is_proved_as_far_as_it_goes(sound: RealRun, tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "run.tape", Header(sound.name, sound.store.url))
    writer.append(sound.tape[:40])
    writer.seal()

    proof = verified(tmp_path / "run.tape")

    assert proof.ok and not proof.closed
    assert "not closed" in list(report_lines(proof, False))[-1]


def test_a_broken_tape_is_a_difference_at_its_position(sound: RealRun, tmp_path: Path) -> None:
    path = sound.save_tape(tmp_path / "run.tape")
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)

    proof = verified(path)

    assert proof.first_difference is not None and proof.first_difference.position is not None
    assert "replay show" in list(report_lines(proof, False))[-1]
