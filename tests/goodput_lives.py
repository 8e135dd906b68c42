"""Lives and scenarios for the tests of the goodput model, from seeds."""

from __future__ import annotations

from blake3 import blake3

from replay.goodput import draws
from replay.goodput.cluster import Outcome, lives_of, outcome_of
from replay.goodput.learner import Lived
from replay.goodput.settings import Scenario, scenario_of

SAFE = "failures.mtbi_years=1e9"


def scenario(*settings: str) -> Scenario:
    """The default scenario with some settings."""
    return scenario_of(settings, {})


def lives(told: Scenario, seconds: float, seed: int = 0) -> list[Lived]:
    """The lives of all its learners."""
    learners = range(told.cluster.learners)
    return lives_of(told, seconds, [draws.uniforms(seed, draws.LIFE, m) for m in learners])


def outcome(told: Scenario, seconds: float, seed: int = 0) -> Outcome:
    """What those lives come to."""
    return outcome_of(lives(told, seconds, seed), seconds)


def digest() -> str:
    """Of some lives, to the last bit: equal in every process."""
    told = lives(scenario("cluster.chips=600000"), 20_000.0, seed=5)
    return blake3(
        repr([(one.seconds, one.stretches, one.failures) for one in told]).encode()
    ).hexdigest()
