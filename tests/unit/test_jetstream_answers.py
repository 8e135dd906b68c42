"""What an answer of JetStream's API means: the answer, a refusal, or a server that is away."""

from __future__ import annotations

import json

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from streams.errors import Trouble
from streams.link import Declined, Silent, answer_of

INFO = "$JS.API.STREAM.INFO.IN_demo_home"
CONSUMER = "$JS.API.CONSUMER.CREATE.IN_demo_home.reader"


def reply(**told: object) -> Msg:
    return Msg(_client=Client(), data=json.dumps(told).encode())


def refused(code: int) -> Msg:
    return reply(error={"code": 500, "err_code": code, "description": "no"})


@pytest.mark.parametrize(
    ("subject", "code"), [(INFO, 10008), (INFO, 10118), (CONSUMER, 10119), (CONSUMER, 10023)]
)
def test_a_server_that_is_away_is_silence_that_may_be_waited_out(subject: str, code: int) -> None:
    with pytest.raises(Silent, match="away"):
        answer_of(subject, refused(code))


@pytest.mark.parametrize(
    ("subject", "code"), [(INFO, 10059), ("$JS.API.STREAM.CREATE.TAPE_demo", 10023)]
)
def test_any_other_no_is_a_refusal_with_its_code(subject: str, code: int) -> None:
    with pytest.raises(Declined) as no:
        answer_of(subject, refused(code))
    assert no.value.code == code


def test_an_answer_is_its_json_and_nothing_else_is_an_answer() -> None:
    assert answer_of(INFO, reply(state={"last_seq": 3})) == {"state": {"last_seq": 3}}
    with pytest.raises(Trouble, match="no JSON"):
        answer_of(INFO, Msg(_client=Client(), data=b"[]"))
