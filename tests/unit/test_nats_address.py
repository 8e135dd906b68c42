"""Addresses of NATS servers: the servers, the files in the query, and no secret in a message."""

from __future__ import annotations

import pytest

from decodiloco import visit
from replay.place import find_live, find_place
from streams.address import address_of, parse_address, parse_run_address, with_files, without_user
from streams.errors import AskedWrongly


def test_an_address_may_name_key_and_authority() -> None:
    parsed = parse_address("nats://u:pw@a:1,tls://b?key=keys/x%20y.nk&ca=/etc/ca.pem")
    assert parsed.servers == ("nats://u:pw@a:1", "tls://b")
    assert parsed.shown == "nats://a:1,tls://b:4222"
    assert (parsed.key, parsed.ca) == ("keys/x y.nk", "/etc/ca.pem")
    assert "pw" not in repr(parsed)
    assert address_of("nats://[::1]:7") == "nats://[::1]:7"


def test_files_are_added_where_the_address_names_none() -> None:
    assert with_files("nats://a", None, None) == "nats://a"
    assert (
        with_files("nats://a,nats://b", "k&=.nk", "ca") == "nats://a,nats://b?key=k%26%3D.nk&ca=ca"
    )
    assert parse_address(with_files("nats://a", "k&=.nk", None)).key == "k&=.nk"
    assert with_files("nats://a?key=mine", "theirs", "ca") == "nats://a?key=mine&ca=ca"


@pytest.mark.parametrize(
    "url",
    [
        "http://u:pw@a",
        "nats://u:pw@",
        "nats://u:pw@a:port",
        "nats://u:pw@a/path",
        "nats://u:pw@a?password=x",
        "nats://u:pw@a?key=",
        "nats://u:pw@a?key=a&key=b",
        "nats://u:p@w@",
        "nats://u:x@pw@a/path",
        "nats://u:x@pw@a?password=x",
        "nats://u:pw@[",
        "nats://u:pw,x@a",
        "nats://u:x,pw@a",
        "",
    ],
)
def test_what_is_no_address_is_refused_without_telling_its_secret(url: str) -> None:
    with pytest.raises(AskedWrongly) as caught:
        parse_address(url)
    assert "pw" not in str(caught.value) and "p@w" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "url"),
    [
        ("nats://127.0.0.1:4222/demo", "nats://127.0.0.1:4222"),
        ("tls://nats.example/demo/", "tls://nats.example"),
        ("nats://a:1,nats://b:2/demo?key=k.nk", "nats://a:1,nats://b:2?key=k.nk"),
        ("nats://u:p/w@host:1/demo", None),
        ("nats://u:p@[::1]:1/demo?ca=x.pem", "nats://u:p@[::1]:1?ca=x.pem"),
    ],
)
def test_a_runs_address_means_the_same_to_every_command(place: str, url: str | None) -> None:
    doors = (lambda: find_place(place), lambda: find_live(place), lambda: visit.address_of(place))
    if url is None:
        for door in doors:
            with pytest.raises(AskedWrongly, match="write a live run as") as caught:
                door()
            assert "p/w" not in str(caught.value)
        return
    assert parse_run_address(place) == (url, "demo")
    found, live, visited = (door() for door in doors)
    assert {found.url, live.url, visited.nats} == {url}
    assert {found.run, live.run, visited.run} == {"demo"}


@pytest.mark.parametrize(
    "place",
    ["ws://127.0.0.1:80/demo", "wss://nats.example/demo", "http://x/demo", "nats://host:1",
     "nats:///demo", "nats://host:1//", "nats://host:port/demo", "nats://[::1/demo",
     "nats://host:1/a/b"],
)  # fmt: skip
def test_what_no_client_of_ours_can_reach_is_refused_by_every_command(place: str) -> None:
    for door in (find_place, find_live, visit.address_of):
        with pytest.raises(AskedWrongly, match=r"write a live run as nats://host:port/run"):
            door(place)


def test_a_password_is_hidden_also_where_no_address_is_meant() -> None:
    for text, told in (
        ("nats://u:p/w@d@h:1/x", "nats://h:1/x"),
        ("tls:/u:s3cret@n/x", "n/x"),
        ("here.nats=nats://u:p@h", "here.nats=nats://h"),
        ("runs/a@b", "runs/a@b"),
        ("nats://h:1/run", "nats://h:1/run"),
    ):
        assert without_user(text) == told
