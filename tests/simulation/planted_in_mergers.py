"""Faults that only mergers can show. See `planted_bugs`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from blake3 import blake3

from decodiloco.merger import jobs, orders
from decodiloco.syncer import errand
from tests.simulation.planting import Bug, Change


def _another_orders_answer() -> list[Change]:
    def of_its_fragment(question: bytes) -> Any:
        return blake3(str(orders.decode_order(question).fragment).encode())

    return [(jobs, "blake3", of_its_fragment), (errand, "fault_of", lambda order, result: None)]


def _own_settings() -> list[Change]:
    right = jobs.decode_order

    def wrong(question: bytes) -> Any:
        order = right(question)
        return replace(order, settings=replace(order.settings, lr=1.0))

    return [(jobs, "decode_order", wrong)]


BUGS: dict[str, Bug] = {
    "another order's answer": Bug(
        "A merger knows a job by its fragment alone, and a leader records any answer.",
        "no machine stumbles", _another_orders_answer, 12,
    ),
    "settings of its own": Bug(
        "A merger takes the outer step at a rate of its own, not the order's.",
        "merged from these bytes", _own_settings, 12,
    ),
}  # fmt: skip
