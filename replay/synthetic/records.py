"""The facts of a synthetic run, as a function of opening, cluster and seed. Knows no files."""

from __future__ import annotations

from decodiloco.errors import ConfigInvalid
from decodiloco.opening import Opening, run_opened
from decodiloco.syncer.state import RULES
from replay.goodput import draws
from replay.goodput.learner import live
from replay.synthetic.cluster import Cluster, check_fits, inner_steps_of
from replay.synthetic.schedule import Schedule, scavenged, under_failures, undisturbed
from replay.synthetic.world import Place, World
from streams.envelope import Envelope

STORE_URL = "memory://synthetic"  # what was made lies beside the tape, wherever that is
TRIES = 7  # each time the run may take twice as long
EXTRA_DRAWS = 1 << 20  # the streams of extra learners are apart from those of the base
SLACK_STEPS = 200.0


def synthetic_records(opening: Opening, cluster: Cluster, seed: int) -> list[Envelope]:
    """The tape of a run on this cluster, from `RunOpened` to the last farewell.

    The same in any process. Learners are `l00`, `l01`, ...; extra ones `x00`, ... Raises
    ConfigInvalid when the run cannot be played on the cluster, has no end, or does not come to it
    in a hundred times the time that it would take undisturbed.
    """
    check_fits(opening.run, cluster)
    steps = inner_steps_of(opening.run, cluster.learners)
    seconds = (1.5 * steps + SLACK_STEPS) * max(cluster.step_seconds)
    for _ in range(TRIES):
        world = World(opening, run_opened(opening, STORE_URL, RULES), cluster, seed)
        for place in _places(cluster, seed, seconds):
            world.seat(place)
        if world.play(seconds):
            return world.tape
        seconds *= 2.0
    raise ConfigInvalid(
        f"run {opening.run.name} does not come to its end on this cluster: after "
        f"{seconds / 2.0:.3g} s {world.state.step} merges and {world.state.tokens:,} tokens are "
        "done; are there ever enough learners at once for its quorum?"
    )


def _places(cluster: Cluster, seed: int, until_seconds: float) -> list[Place]:
    places = [
        Place(
            f"l{number:02}",
            step_seconds,
            _schedule(cluster, seed, number, until_seconds),
            draws.uniforms(seed, draws.TAPE, number),
        )
        for number, step_seconds in enumerate(cluster.step_seconds)
    ]
    if cluster.availability is not None:
        extra = scavenged(cluster.availability, until_seconds)
        places += [
            Place(
                f"x{number:02}",
                cluster.median_step_seconds,
                schedule,
                draws.uniforms(seed, draws.TAPE, EXTRA_DRAWS + number),
            )
            for number, schedule in enumerate(extra)
        ]
    return places


def _schedule(cluster: Cluster, seed: int, number: int, until_seconds: float) -> Schedule:
    """The same life that `replay goodput` gives this learner under this seed."""
    if cluster.failures is None:
        return undisturbed()
    stream = draws.uniforms(seed, draws.LIFE, number)
    return under_failures(live(cluster.failures, number, until_seconds, stream))
