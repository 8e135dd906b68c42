"""An account of tokens keeps apart only what may still come to different ends."""

from __future__ import annotations

from decodiloco.syncer.fates import Account


def test_a_learner_that_is_refused_for_ever_leaves_no_span_behind_for_each_refusal() -> None:
    account = Account()
    for number in range(1, 1000):
        account = account.refused(10 * number - 10, 10 * number, position=number)
    assert len(account.spans) == 1
    assert account.adopted(9990).totals()["refused"] == 9990


def test_a_refusal_after_an_offer_in_flight_is_the_last_word_about_its_tokens() -> None:
    account = Account().offered(0, 10, position=5).refused(0, 10, position=6)
    assert account.settle(5, "left_out").adopted(10).totals()["refused"] == 10


def test_an_offer_after_a_refusal_is_the_last_word_about_its_tokens() -> None:
    account = Account().refused(0, 10, position=5).offered(0, 10, position=6)
    assert account.settle(6, "left_out").adopted(10).totals()["left_out"] == 10
