"""What our NATS client makes of headers: it reads those of a status, and no record's."""

from __future__ import annotations

import asyncio

from streams.tolerant import TolerantClient


async def headers_of(raw: bytes) -> dict[str, str] | None:
    return await TolerantClient()._process_headers(raw)


def test_a_status_is_read_with_what_it_tells() -> None:
    raw = b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 5\r\n\r\n"
    assert asyncio.run(headers_of(raw)) == {
        "Status": "408",
        "Description": "Request Timeout",
        "Nats-Pending-Messages": "5",
    }


def test_a_record_s_headers_are_not_parsed_and_cannot_pass_for_a_status() -> None:
    assert asyncio.run(headers_of(b"NATS/1.0\r\nStatus: 408\r\nNats-Msg-Id: a\r\n\r\n")) is None
    assert asyncio.run(headers_of(b"")) is None
