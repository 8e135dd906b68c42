"""Bandwidth and compute utilisation (paper section E.4, table 13): closed forms.

CU = T_math / (T_math + T_comm), with T_comm what cannot be hidden behind computing. A ring
over D sites carries 2(D - 1)/D of each payload. Data parallelism sends every gradient in each
step; the decoupled method one fragment in each step (H = P). Both are

    Gbit/s = payload * 2(D - 1)/D / ((hidden + spread * e) * step),   e = (1 - CU)/CU.

`hidden` is the share of a step behind which a payload can be sent; `spread` how many steps share
an exposed second. Both are fitted to the paper's 1 s, 2 sites rows: nothing in it gives them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a method sends in a step, in Gbit, and how it overlaps with computing."""

    name: str
    payload_gigabits: float
    hidden: float
    spread: float


PARAMETERS_BILLIONS = 5.2
FRAGMENTS = 24


def traffics() -> tuple[Traffic, Traffic, Traffic]:
    """Data parallelism in bf16; the decoupled method with bf16 and with int4 deltas."""
    fragment = PARAMETERS_BILLIONS / FRAGMENTS
    return (
        Traffic("data parallel", PARAMETERS_BILLIONS * 16, hidden=0.69, spread=1.0),
        Traffic("decoupled", fragment * 16, hidden=1.526, spread=4.26),
        Traffic("decoupled, int4", fragment * 4, hidden=1.526, spread=4.26),
    )


def ring_factor(sites: int) -> float:
    """2(D - 1)/D."""
    return 2.0 * (sites - 1) / sites


def gigabits_needed(traffic: Traffic, utilisation: float, step_seconds: float, sites: int) -> float:
    """Gbit/s for this compute utilisation, 0 < CU < 1."""
    exposed = (1.0 - utilisation) / utilisation
    window_seconds = (traffic.hidden + traffic.spread * exposed) * step_seconds
    return traffic.payload_gigabits * ring_factor(sites) / window_seconds


def utilisation_at(
    traffic: Traffic, gigabits_per_second: float, step_seconds: float, sites: int
) -> float:
    """The inverse: the compute utilisation that a link allows; 1 when all traffic hides."""
    window = traffic.payload_gigabits * ring_factor(sites) / (gigabits_per_second * step_seconds)
    exposed = max(0.0, window - traffic.hidden) / traffic.spread
    return 1.0 / (1.0 + exposed)
