"""Figures of the paper (arXiv 2604.21428v1), typed in: what ours are shown beside.

Works nothing out, and the model must not know it: nothing here is fitted by the code.
"""

from __future__ import annotations

from dataclasses import dataclass

CHIPS = (150_000, 300_000, 600_000, 1_200_000, 2_400_000)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of table 1: percent by number of chips."""

    learners: int
    elastic: bool
    goodput: tuple[int, int, int, int, int]
    uptime: tuple[int, int, int, int, int]

    @property
    def name(self) -> str:
        """How people call this line."""
        if self.learners > 1:
            return f"{self.learners} learners"
        return "1 learner, elastic" if self.elastic else "1 learner, not elastic"


TABLE_1 = (
    Row(1, False, (72, 57, 38, 27, 18), (72, 57, 38, 27, 18)),
    Row(1, True, (88, 80, 69, 58, 40), (88, 81, 69, 59, 42)),
    Row(2, True, (94, 88, 80, 70, 54), (100, 97, 96, 90, 80)),
    Row(4, True, (96, 93, 89, 82, 73), (100, 100, 99, 99, 99)),
    Row(8, True, (98, 96, 94, 88, 80), (100, 100, 100, 100, 99)),
    Row(16, True, (99, 98, 96, 93, 86), (100, 100, 100, 100, 99)),
)

# Table 4: time to 128 B tokens against no extra, by extra capacity during half of the work.
SCAVENGING_EXTRA = (0.0, 0.25, 0.5, 1.0, 3.0)
SCAVENGING_DECOUPLED = (1.00, 0.90, 0.83, 0.75, 0.62)
SCAVENGING_DATA_PARALLEL = (1.00, 1.07, 1.09, 1.02, 0.80)

# Table 5: slowest 18 % behind the fastest, 10 % variance on all; percent.
QUORUM_ALL_GOODPUT = 84
QUORUM_ONE_GOODPUT = 100

# Table 13: (step seconds, sites) -> Gbit/s by method for each compute utilisation.
UTILISATIONS = (0.50, 0.75, 0.90, 0.95, 0.99)
TABLE_13 = {
    (1.0, 2): ((49, 81, 104, 113, 195), (0.58, 1.2, 1.7, 1.9, 2.2), (0.15, 0.29, 0.43, 0.49, 0.53)),
    (5.0, 2): (
        (9.5, 16, 21, 23, 49),
        (0.12, 0.23, 0.34, 0.39, 0.43),
        (0.03, 0.06, 0.08, 0.10, 0.11),
    ),
    (1.0, 8): ((85, 140, 183, 198, 391), (1.0, 2.0, 3.0, 3.3, 3.8), (0.26, 0.51, 0.75, 0.84, 0.94)),
    (5.0, 8): (
        (17, 28, 37, 40, 49),
        (0.21, 0.40, 0.59, 0.68, 0.75),
        (0.05, 0.10, 0.15, 0.17, 0.19),
    ),
}
