"""When a failed slice is back: the exponentiated Weibull law, by inversion. Draws nothing itself.

    F(x) = (1 - exp(-(x / scale)^c))^a

with the scale such that the mean is the one asked for (paper section E.1 names the law and gives
no numbers).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

GRID = 20_001
TAIL = 1e-13


@dataclass(frozen=True, slots=True)
class Returns:
    """The law of the return delay; a mean of 0 seconds means at once."""

    scale_seconds: float
    a: float
    c: float

    def delay_seconds(self, uniform: float) -> float:
        """The delay at this quantile, 0 <= uniform < 1."""
        below = uniform if self.a == 1.0 else uniform ** (1.0 / self.a)
        if below >= 1.0:  # a large exponent rounds up to one
            below = math.nextafter(1.0, 0.0)
        return float(self.scale_seconds * (-math.log1p(-below)) ** (1.0 / self.c))


def returns_of(mean_seconds: float, a: float, c: float) -> Returns:
    """The law with this mean: mean = scale * integral of the survival function of scale 1."""
    if mean_seconds == 0.0:
        return Returns(0.0, a, c)
    return Returns(mean_seconds / _mean_of_scale_one(a, c), a, c)


def _mean_of_scale_one(a: float, c: float) -> float:
    """Gamma(1 + 1/c) where a = 1, else the quantile function summed by Simpson's rule.

    mean = integral of x(u) du over 0 <= u < 1; u = 1 - v^4 flattens the logarithm at u = 1.
    """
    if a == 1.0:
        return math.gamma(1.0 + 1.0 / c)
    law = Returns(1.0, a, c)
    total = 0.0
    for index in range(1, GRID):  # the integrand is 0 at v = 0
        v = index / (GRID - 1)
        weight = 1.0 if index == GRID - 1 else (4.0 if index % 2 else 2.0)
        total += weight * law.delay_seconds(min(1.0 - v**4, 1.0 - TAIL)) * 4.0 * v**3
    return total / (3.0 * (GRID - 1))
