"""A merge given away: who is asked next, how often, and when it is given up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from decodiloco.merge.carried_out import carry_out
from decodiloco.merge.order import StoredMerge
from decodiloco.merger.orders import Done, Failed, Working, encode_answer
from decodiloco.syncer.errand import UNANSWERED_MAX, AskAgain, Errand
from decodiloco.times import MERGER_ASK_SECONDS, MERGER_ASK_SECONDS_MAX
from tests.merge_orders import FragmentBench, filled

TAKEOVER_SECONDS = 2.0
WORKING = encode_answer(Working())


def errand_of(name: str, burden: Counter[str] | None = None) -> Errand:
    order = FragmentBench(name).order({"a": filled(1), "b": filled(2)})
    return Errand(order, Counter() if burden is None else burden, TAKEOVER_SECONDS)


def test_each_merger_is_tried_once_and_who_has_least_to_do_first() -> None:
    burden = Counter({"m1": 2, "m2": 1, "m3": 1})
    errand = errand_of("least", burden)
    turns = [errand.turn({"m3", "m2", "m1"}, 0.0) for _ in range(4)]
    assert {*turns[:2]} == {"m2", "m3"} and turns[2:] == ["m1", None]
    assert burden == Counter({"m1": 2, "m2": 1, "m3": 1}), "who is asked no more has less to do"


def test_of_equals_the_order_draws_one_and_always_the_same() -> None:
    order = errand_of("lots").order
    orders = [replace(order, round=number) for number in range(200)]
    asked = [
        [Errand(one, Counter(), TAKEOVER_SECONDS).turn({"m1", "m2", "m3"}, 0.0) for one in orders]
        for _ in range(2)
    ]
    assert asked[0] == asked[1]
    assert all(45 < Counter(asked[0])[name] < 90 for name in ("m1", "m2", "m3"))


def test_an_errand_that_ends_takes_its_burden_back_once() -> None:
    burden: Counter[str] = Counter()
    errand = errand_of("ends", burden)
    errand.turn({"m1"}, 0.0)
    assert burden["m1"] == 1
    errand.end()
    errand.end()
    assert burden["m1"] == 0


def test_the_same_is_asked_again_ever_later_and_sooner_of_the_next() -> None:
    errand = errand_of("later")
    errand.turn({"m1"}, 0.0)
    told = [errand.told(WORKING, 0.0) for _ in range(8)]
    assert told[:2] == [AskAgain(MERGER_ASK_SECONDS), AskAgain(2 * MERGER_ASK_SECONDS)]
    assert told[-1] == AskAgain(MERGER_ASK_SECONDS_MAX)
    errand.turn({"m2"}, 0.0)
    assert errand.told(WORKING, 0.0) == AskAgain(MERGER_ASK_SECONDS)


def test_silence_counts_from_the_last_sign_of_work() -> None:
    errand = errand_of("silence")
    errand.turn({"m1"}, 100.0)
    for _ in range(UNANSWERED_MAX):
        assert isinstance(errand.told(None, 100.0), AskAgain)
    assert isinstance(errand.told(WORKING, 109.0), AskAgain)
    for _ in range(UNANSWERED_MAX + 3):
        assert isinstance(errand.told(None, 111.0), AskAgain), "not yet silent for long enough"
    assert errand.told(None, 111.1) == Failed("no answer for 2.1 s")


def test_an_answer_to_another_order_is_a_failure() -> None:
    bench = FragmentBench("another")
    order = bench.order({"a": filled(1), "b": filled(2)})
    result = carry_out(order, bench.store)
    errand = Errand(order, Counter(), TAKEOVER_SECONDS)
    errand.turn({"m1"}, 0.0)
    assert errand.told(encode_answer(Done.of(result)), 0.0) == result

    assert isinstance(result, StoredMerge)
    other = StoredMerge(
        contributions=tuple(position + 1 for position in result.contributions),
        left_out=(),
        parameters=result.parameters,
        momentum=result.momentum,
        report=result.report,
        outer_gradient_norm=result.outer_gradient_norm,
        doubted=(),
    )
    told = errand.told(encode_answer(Done.of(other)), 0.0)
    assert isinstance(told, Failed) and "not those of the order" in told.why
