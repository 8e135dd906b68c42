"""Addresses of NATS servers: the servers, the files in the query, and no secret in a message."""

from __future__ import annotations

import pytest

from streams.address import address_of, parse_address, with_files
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
        "",
    ],
)
def test_what_is_no_address_is_refused_without_telling_its_secret(url: str) -> None:
    with pytest.raises(AskedWrongly) as caught:
        parse_address(url)
    assert "pw" not in str(caught.value) and "p@w" not in str(caught.value)
