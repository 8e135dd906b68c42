"""Where the uniform draws come from: a counter-based stream for each learner and purpose.

Only the raw words of Philox are used, which numpy keeps the same from version to version; so the
same seed gives the same numbers in any process, on any machine, in any order of learners.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BLOCK = 4096
LIFE, ROUNDS, SYNCER, BARRIER, CHECKPOINTS, TAPE = range(6)


def uniforms(seed: int, purpose: int, learner: int = 0) -> Iterator[float]:
    """An endless stream of multiples of 2^-53 in [0, 1)."""
    philox = np.random.Philox(key=[seed, (purpose << 32) + learner])
    while True:
        words = np.asarray(philox.random_raw(BLOCK), dtype=np.uint64)
        yield from ((words >> np.uint64(11)) * 2.0**-53).tolist()
