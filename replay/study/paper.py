"""Figures of the paper (arXiv 2604.21428v1) that the study is shown beside, typed in.

Averages of downstream tasks, higher is better; ours are losses, lower is better. So only orders
and signs can be compared. Nothing here is worked out.
"""

from __future__ import annotations

# Table 11: chips -> learners -> (goodput %, text average, vision average); 0: no failures.
LEARNERS = {
    0: {2: (100, 55.1, 36.8), 4: (100, 55.9, 36.8), 8: (100, 54.4, 37.6), 16: (100, 54.5, 33.6)},
    1_200_000: {
        2: (70, 54.4, 35.8),
        4: (82, 55.0, 35.6),
        8: (88, 55.4, 36.6),
        16: (93, 53.9, 35.1),
    },
    2_400_000: {
        2: (54, 54.4, 37.2),
        4: (73, 54.5, 35.3),
        8: (80, 54.6, 37.3),
        16: (86, 53.4, 34.3),
    },
}

# Table 12, 26 B tokens, and table 1: data parallelism (goodput %, text, vision); the paper has no
# quality of the 2 B model under failures.
DATA_PARALLEL: dict[int, tuple[int, float | None, float | None]] = {
    0: (100, 55.1, 38.2),
    1_200_000: (58, None, None),
    2_400_000: (40, None, None),
}

# Tables 8 and 9: (learners, rule of the model, rule of the embedding) -> (text, vision).
RULES = {
    (8, "mean", "mean"): (54.1, 34.2),
    (8, "mean", "radial"): (53.3, 32.9),
    (8, "radial", "mean"): (54.4, 37.6),
    (8, "radial", "radial"): (55.1, 35.6),
    (16, "mean", "mean"): (52.7, 28.2),
    (16, "mean", "radial"): (49.3, 22.4),
    (16, "radial", "mean"): (54.5, 33.6),
    (16, "radial", "radial"): (52.7, 33.9),
}

# Section D.3: loss of int4 outer gradients against bf16, in percent. There the merged outer
# gradient is coded between shards, here each learner's delta.
CODECS = {"int4": 0.09}

# Table 5: (quorum, grace) -> (goodput %, text, vision).
QUORUM = {(8, False): (84, 54.4, 37.6), (1, False): (100, 51.4, 25.7), (1, True): (100, 55.3, 37.0)}

# Tables 4 and 15: extra % -> (relative time, text, vision, loss against no extra in %).
SCAVENGING = {
    0: (1.00, 60.6, 46.2, 0.0),
    25: (0.90, 60.8, 47.2, 0.09),
    50: (0.83, 61.3, 45.2, -0.01),
    100: (0.75, 60.7, 46.4, 0.08),
    300: (0.62, 60.7, 46.1, 0.23),
}
