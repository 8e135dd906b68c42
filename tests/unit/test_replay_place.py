"""Places: a run folder, a run.toml, an address, a tape file; never one taken for another."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from decodiloco.config import load_config
from decodiloco.errors import ConfigInvalid
from decodiloco.store.open_store import open_store
from replay.errors import PlaceSilent, PlaceUnknown, TapeCorrupt
from replay.place import find_live, find_place
from streams.errors import BadName, Failure, ServerUnreachable
from streams.events import RunOpened
from tests.real_run import RealRun

NOBODY = "nats://127.0.0.1:9"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run folder whose server has stopped."""
    run = RealRun(open_store((tmp_path / "store").as_uri()), steps=1, fragments=1).play()
    run.save_tape(tmp_path / "run.tape")
    write_config(tmp_path, store=run.store.url)
    return tmp_path


def write_config(folder: Path, store: str, name: str = "real") -> None:
    (folder / "run.toml").write_text(
        f'[run]\nname = "{name}"\n[here]\nnats = "{NOBODY}"\nstore = "{store}"\n'
    )
    load_config(folder / "run.toml")


def opened_in(place: object) -> RunOpened:
    event = next(place.envelopes()).event
    assert isinstance(event, RunOpened)
    return event


@pytest.mark.parametrize("name", ["", "run.toml"])
def test_a_run_folder_without_its_server_is_read_from_its_tape_and_says_so(
    folder: Path, name: str
) -> None:
    place = find_place(folder / name)

    assert (place.run, place.url, place.path) == ("real", None, folder / "run.tape")
    assert f"no server answers at {NOBODY}" in place.note
    assert "run.tape" in place.note
    assert opened_in(place).run == "real"


def test_a_tape_file_is_a_place_of_its_own(folder: Path) -> None:
    place = find_place(folder / "run.tape")

    assert (place.run, place.path, place.note) == ("real", folder / "run.tape", "")


def test_a_folder_with_a_tape_alone_is_enough(folder: Path) -> None:
    (folder / "run.toml").unlink()

    assert find_place(folder).path == folder / "run.tape"


def test_a_folder_that_was_moved_is_read_with_the_blobs_inside_it(folder: Path) -> None:
    moved = folder.parent / f"{folder.name}-moved"
    shutil.copytree(folder, moved)

    for name in ("", "run.tape"):
        place = find_place(moved / name)
        store = place.open_store(opened_in(place))
        assert store.url == (moved / "store").as_uri()


def test_blobs_elsewhere_are_found_by_the_config_the_tape_or_by_asking(folder: Path) -> None:
    elsewhere = folder.parent / f"{folder.name}-elsewhere"
    (folder / "store").rename(elsewhere)
    place = find_place(folder)
    opened = opened_in(place)

    with pytest.raises(PlaceSilent, match="--store URL"):
        place.open_store(opened)
    write_config(folder, store=elsewhere.as_uri())
    assert find_place(folder).open_store(opened).url == elsewhere.as_uri()
    asked = find_place(folder / "run.tape", store=elsewhere.as_uri())
    assert asked.open_store(opened).url == elsewhere.as_uri()


def test_a_run_that_is_nowhere_names_all_that_was_tried(folder: Path) -> None:
    (folder / "run.tape").unlink()

    with pytest.raises(PlaceSilent) as caught:
        find_place(folder)

    assert caught.value.exit_code == 3
    for tried in (NOBODY, str(folder / "run.tape"), "run real"):
        assert tried in str(caught.value)


def test_a_tape_of_another_run_is_not_taken_for_this_one(folder: Path) -> None:
    write_config(folder, store=(folder / "store").as_uri(), name="other")

    with pytest.raises(PlaceUnknown, match=r"holds run real, but .* describes run other"):
        find_place(folder)


@pytest.mark.parametrize(
    ("name", "kind", "exit_code"),
    [
        ("none", PlaceUnknown, 2),
        ("empty", PlaceUnknown, 2),
        ("notes.txt", PlaceUnknown, 2),
        ("bad.toml", ConfigInvalid, 2),
        ("changed.tape", TapeCorrupt, 1),
        ("changed", TapeCorrupt, 1),
    ],
)
def test_what_is_no_place_is_told_with_its_exit_code(
    folder: Path, name: str, kind: type[Failure], exit_code: int
) -> None:
    (folder / "empty").mkdir()
    (folder / "notes.txt").write_text("what I did today")
    (folder / "bad.toml").write_text("[run]\nnam = 'x'")
    whole = (folder / "run.tape").read_bytes()
    (folder / "changed.tape").write_bytes(b"\0" + whole[1:])
    (folder / "changed").write_bytes(b"\0" + whole[1:])

    with pytest.raises(kind) as caught:
        find_place(folder / name)

    assert caught.value.exit_code == exit_code
    assert name in str(caught.value)


@pytest.mark.parametrize("text", ["nats://127.0.0.1:9", "http://127.0.0.1/run", "nats:///run"])
def test_an_address_without_a_server_or_a_run_is_refused(text: str) -> None:
    with pytest.raises(PlaceUnknown, match="nats://host:port/run"):
        find_place(text)


def test_an_address_names_a_run_that_may_exist() -> None:
    with pytest.raises(BadName):
        find_place(f"{NOBODY}/Demo Run")


def test_an_address_where_nobody_answers_is_trouble() -> None:
    with pytest.raises(ServerUnreachable):
        next(find_place(f"{NOBODY}/demo").envelopes())


def test_a_tape_file_is_no_live_run(folder: Path) -> None:
    with pytest.raises(PlaceUnknown, match="a live run is"):
        find_live(folder / "run.tape")
    assert find_live(folder).url == NOBODY
