"""Merges proved at once: the first difference is the first on the tape; a proof may be ended."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from decodiloco.store.blobs import Part
from decodiloco.store.keys import key_of_offer, named_by
from decodiloco.store.local import LocalStore
from decodiloco.store.open_store import open_store
from replay.place import find_place
from replay.verify import verify_place
from streams.envelope import Envelope
from streams.events import DeltaOffered, FragmentMerged
from tests.real_run import RealRun
from tests.unit.test_replay_verify import folder_of, verified


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    """A run that nobody touched. Tests put back what they change."""
    folder = tmp_path_factory.mktemp("sound")
    run = RealRun(open_store((folder / "store").as_uri()), steps=3).play()
    run.save_tape(folder / "run.tape")
    return run


def test_a_spoilt_delta_comes_before_what_is_found_sooner_behind_it(sound: RealRun) -> None:
    """The chunks of a delta are read by its merge only; a lost delta is missed at once."""
    taken = next(
        each.event.contributions for each in sound.tape if isinstance(each.event, FragmentMerged)
    )
    spoilt, lost = (sound.tape[position - 1].event for position in taken[:2])
    assert isinstance(spoilt, DeltaOffered) and isinstance(lost, DeltaOffered)
    keys = [key_of_offer(sound.name, offer) for offer in (spoilt, lost)]
    paths = [folder_of(sound) / "store" / key for key in keys]
    wholes = [path.read_bytes() for path in paths]

    paths[1].unlink()
    without = verified(folder_of(sound) / "run.tape")
    paths[0].write_bytes(wholes[0][:-1] + bytes([wholes[0][-1] ^ 1]))
    proofs = [verified(folder_of(sound) / "run.tape", threads) for threads in (1, 3)]

    for path, whole in zip(paths, wholes, strict=True):
        path.write_bytes(whole)
    assert proofs[0] == proofs[1]
    assert without.first_difference is not None and proofs[0].first_difference is not None
    assert without.first_difference.position == taken[1]
    assert proofs[0].first_difference.position == taken[0]
    assert proofs[0].first_difference.key == keys[0]


def followed(run: RealRun) -> tuple[Envelope, Envelope]:
    """Two merges of which the second begins with the version that the first made."""
    merges = [each for each in run.tape if isinstance(each.event, FragmentMerged)]
    return next(
        (one, other)
        for one in merges
        for other in merges
        if one.event.fragment == other.event.fragment
        and one.event.version + 1 == other.event.version
    )


@pytest.mark.parametrize("blob", [0, 1], ids=["parameters", "momentum"])
def test_a_spoilt_version_comes_before_what_is_found_sooner_behind_it(
    sound: RealRun, blob: int
) -> None:
    """Its chunks are read by the merge that begins with it, and a delta between the two is lost."""
    made, reader = followed(sound)
    lost = sound.tape[max(reader.event.contributions) - 1]
    assert made.position < lost.position < reader.position
    keys = [named_by(sound.name, made.event)[blob][0], key_of_offer(sound.name, lost.event)]
    paths = [folder_of(sound) / "store" / key for key in keys]
    wholes = [path.read_bytes() for path in paths]

    paths[0].write_bytes(wholes[0][:-1] + bytes([wholes[0][-1] ^ 1]))
    alone = verified(folder_of(sound) / "run.tape")
    paths[1].unlink()
    proofs = [verified(folder_of(sound) / "run.tape", threads) for threads in (1, 3)]

    for path, whole in zip(paths, wholes, strict=True):
        path.write_bytes(whole)
    for proof in (alone, *proofs):
        assert proof.first_difference is not None
        assert proof.first_difference.position == made.position
        assert proof.first_difference.key == keys[0]
    assert proofs[0] == proofs[1]


def test_what_a_merge_reads_is_read_by_nobody_else(
    sound: RealRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: Counter[str] = Counter()
    read = LocalStore.read

    def counted(store: LocalStore, key: str, start: int, stop: int, anew: bool = False) -> Part:
        reads[key] += start > 0  # behind the header
        return read(store, key, start, stop, anew)

    monkeypatch.setattr(LocalStore, "read", counted)
    assert verified(folder_of(sound) / "run.tape").ok

    made, reader = followed(sound)
    parameters, momentum, _ = (key for key, _ in named_by(sound.name, made.event))
    deltas = [
        key_of_offer(sound.name, sound.tape[at - 1].event) for at in reader.event.contributions
    ]
    assert [reads[key] for key in (parameters, momentum, *deltas)] == [1] * (2 + len(deltas))


def test_who_interrupts_a_proof_waits_for_what_runs_and_for_nothing_else(sound: RealRun) -> None:
    def interrupt(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify_place(find_place(folder_of(sound) / "run.tape"), 2, interrupt)
    assert not [each for each in threading.enumerate() if each.name.startswith("verify")]
