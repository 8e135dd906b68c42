"""The compiled loops give the numpy definition, bit for bit, on any finite numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodiloco.merge import adding, definition
from decodiloco.merge.compiled import Coded, step_piece
from decodiloco.merge.crew import Crew
from decodiloco.merge.direction import Heard
from decodiloco.merge.exact import BLOCK_ELEMENTS, CHUNK_ELEMENTS, Floats, rounded
from decodiloco.merge.places import Whole, pieces
from decodiloco.merge.rules import Plan, Sums
from decodiloco.merge.self_test import KNOWN_ANSWER
from decodiloco.store.codecs import decode

SIZES = (
    1, 2, 15, 16, 17, 1000, BLOCK_ELEMENTS - 1, BLOCK_ELEMENTS, BLOCK_ELEMENTS + 1,
    3 * BLOCK_ELEMENTS + 4097, CHUNK_ELEMENTS, CHUNK_ELEMENTS + 1,
)  # fmt: skip
EXPONENTS = ((0, 1), (0, 255), (100, 140), (120, 128), (254, 255), (0, 160))
LIMITS = st.sampled_from(EXPONENTS)
EDGES = np.array([0x80000000, 0, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x7F7F0000], np.uint32)


def drawn(size: int, seed: int, exponents: tuple[int, int]) -> Floats:
    """Finite float32 values of both signs: their exponents between these, and edges among them."""
    draw = np.random.default_rng(seed)
    sign, mantissa = draw.integers(0, 2, size) << 31, draw.integers(0, 1 << 23, size)
    words = (sign | draw.integers(*exponents, size) << 23 | mantissa).astype(np.uint32)
    at = draw.integers(0, 16, size) == 0
    return np.where(at, EDGES[draw.integers(0, len(EDGES), size)], words).view(np.float32)


def coded(delta: Floats, codec: str) -> tuple[Coded, Floats]:
    """A delta as the loops take it, and as the definition does."""
    if codec == "fp32":
        return delta, delta
    payload = (delta.view(np.uint32) >> 16).astype(np.uint16).tobytes()  # cut off: none overflows
    return np.frombuffer(payload, np.uint16), decode(payload, "bf16")


def bits(gradient: Floats, of: Sums, heard: Heard | None) -> tuple[object, ...]:
    """All that came of it. The sign of a zero sum says nothing, and NaN equals itself here."""
    sums = [of.squares, *of.found]
    if heard is not None:
        sums += [*heard.cohort, heard.squares, *heard.histories, heard.history]
    told = np.array(sums) + 0.0
    return gradient.tobytes(), np.where(np.isnan(told), -1.0, told).tobytes()


def both(
    deltas: list[Floats], codec: str, plan: Plan, voices: tuple[float, ...], history: Floats | None
) -> list[tuple[object, ...]]:
    size = len(deltas[0])
    forms = [coded(delta, codec) for delta in deltas]
    past = None if history is None else pieces(history)
    with np.errstate(all="ignore"):
        total, heard = definition.add_up(
            [pieces(flat) for _, flat in forms], plan, size, voices, past
        )
    found = [bits(total.gradient, total.sums, heard)]
    with ThreadPoolExecutor(3) as pool:
        for crew in (Crew(), Crew(pool, 3)):
            past = None if history is None else pieces(history)
            streams = [pieces(words) for words, _ in forms]
            gradient = np.empty(size, np.float32)
            made = adding.add_up(streams, plan, Whole(gradient), crew, voices, past)
            found.append(bits(gradient, *made))
    return found


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(SIZES),
    st.integers(1, 5),
    st.sampled_from(["fp32", "bf16"]),
    LIMITS,
    st.sampled_from(["silent", "heard", "with history"]),
    st.integers(0, 2**32),
)
def test_a_sum_of_deltas_has_the_bits_of_the_definition(
    size: int, count: int, codec: str, exponents: tuple[int, int], cohort: str, seed: int
) -> None:
    deltas = [drawn(size, seed + place, exponents) for place in range(count)]
    draw = np.random.default_rng(seed)
    scales = tuple(rounded(value) for value in draw.standard_normal(count))
    voices = () if cohort == "silent" else tuple(rounded(v) for v in draw.random(count))
    history = drawn(size, seed + 99, exponents) if cohort == "with history" else None
    plan = Plan(scales, scales, None, scales, scales, None)

    plain, *compiled = both(deltas, codec, plan, voices, history)

    assert compiled == [plain, plain]


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(SIZES), LIMITS, st.booleans(), st.sampled_from([0.0, 1.0, 0.3, 2.0**-90]),
    st.sampled_from([(0.7, 0.9), (1.0, 0.0)]), st.integers(0, 2**32),
)  # fmt: skip
def test_a_step_has_the_bits_of_the_definition(
    size: int,
    exponents: tuple[int, int],
    first: bool,
    factor: float,
    rates: tuple[float, float],
    seed: int,
) -> None:
    parameter, momentum, gradient = (
        drawn(size, seed + place, limits)
        for place, limits in enumerate([(100, 130), exponents, exponents])
    )
    gradient = np.where(np.abs(gradient) < 2.0**100, gradient, np.float32(1.0))
    momentum = np.where(np.abs(momentum) < 2.0**100, momentum, np.float32(-1.0))
    factor = rounded(factor)

    def before() -> object:
        return None if first else pieces(momentum)

    plain = definition.step(pieces(parameter), before(), gradient, factor, rates)
    compiled = np.empty_like(parameter), gradient.copy()
    places = Whole(compiled[0]), Whole(compiled[1])
    adding.step(pieces(parameter), before(), places, factor, rates, Crew())

    assert [flat.tobytes() for flat in compiled] == [flat.tobytes() for flat in plain]


@pytest.mark.parametrize("codec", ["fp32", "bf16"])
@pytest.mark.parametrize("at", [0, 1023, BLOCK_ELEMENTS + 5, 2 * BLOCK_ELEMENTS + 76])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_shows_in_its_sum_of_squares(codec: str, at: int, value: float) -> None:
    size = 2 * BLOCK_ELEMENTS + 77
    deltas = [np.ones(size, np.float32), np.ones(size, np.float32)]
    deltas[1][at] = value
    plan = Plan((1.0, 1.0), (1.0, 1.0), None, (1.0, 1.0), (1.0, 1.0), None)

    streams = [pieces(coded(delta, codec)[0]) for delta in deltas]
    total, _ = adding.add_up(streams, plan, Whole(np.empty(size, np.float32)), Crew())

    assert total.found[0] == size and not np.isfinite(total.found[1])


@pytest.mark.parametrize("at", [0, 15, 16, 31, 32, 38])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_parameter_that_is_not_finite_after_a_step_is_told(at: int, value: float) -> None:
    momentum, gradient, stepped = np.ones((3, 39), np.float32)  # two vectors of lanes, and a rest
    parameter = np.ones(39, np.float32)
    rates = (rounded(0.7), rounded(0.9))
    assert step_piece(parameter, momentum, gradient, 1.0, rates, stepped)

    parameter[at] = value

    assert not step_piece(parameter, momentum, gradient, 1.0, rates, stepped)


@pytest.mark.long
def test_a_cpu_without_wide_vectors_gives_the_same_bits(tmp_path: Path) -> None:
    plain = {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    program = "from decodiloco.merge import compiled, self_test; print(self_test.self_test().hex())"

    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | plain, capture_output=True, text=True
    )

    assert done.stdout.strip() == KNOWN_ANSWER, done.stderr


def test_each_pair_of_a_block_meets_where_the_definition_says() -> None:
    # One number so much longer than the rest that each sum it is in is rounded: who meets whom,
    # and when, then shows in the last bits. Sums of like numbers are exact, and would show nothing.
    draw = np.random.default_rng(5)
    size = 64 * BLOCK_ELEMENTS
    delta = np.ldexp(draw.random(size) + 0.5, draw.integers(-30, -23, size)).astype(np.float32)
    for block in range(64):
        delta[block * BLOCK_ELEMENTS + block % 16 * (BLOCK_ELEMENTS // 16) + 13 * block] = 1.0
    plan = Plan((1.0,), (1.0,), None, (1.0,), (1.0,), None)

    plain = [
        definition.add_up([pieces(part)], plan, BLOCK_ELEMENTS)[0].sums.found
        for part in np.split(delta, 64)
    ]
    out = Whole(np.empty(BLOCK_ELEMENTS, np.float32))
    compiled = [
        adding.add_up([pieces(part)], plan, out, Crew())[0].found for part in np.split(delta, 64)
    ]

    assert compiled == plain
