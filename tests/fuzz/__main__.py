"""`make fuzz`: the counts that a release must stand, or any part of them.

`python -m tests.fuzz --room words --seed 1 --first 77 --count 1` is one case again.
"""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.blobs import Checkpoints, Deltas, Small, Tensors
from tests.fuzz.campaign import Findings, Room, campaign
from tests.fuzz.files import Addresses, Configs, Keys, Tapes
from tests.fuzz.messages import Beats, Words

ROOMS: dict[str, tuple[type[Room], int]] = {
    "words": (Words, 1_000_000),
    "beats": (Beats, 20_000),
    "tensors": (Tensors, 30_000),
    "deltas": (Deltas, 20_000),
    "small": (Small, 30_000),
    "checkpoints": (Checkpoints, 10_000),
    "tapes": (Tapes, 20_000),
    "keys": (Keys, 10_000),
    "configs": (Configs, 10_000),
    "addresses": (Addresses, 20_000),
}


def main() -> int:
    """Runs the rooms that are asked for; 1 if anything broke."""
    asked = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    asked.add_argument("--room", choices=ROOMS, action="append", help="one room; all if not given")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--first", type=int, default=0, help="the number of the first case")
    asked.add_argument("--count", type=int, help="cases in each room; a release's if not given")
    asked.add_argument("--seconds", type=float, default=1e9, help="at most so long in each room")
    given = asked.parse_args()
    faults = 0
    for name in given.room or ROOMS:
        room, count = ROOMS[name]
        found: Findings = campaign(
            room(), given.seed, given.count or count, given.first, given.seconds
        )
        print("\n".join(found.told()), flush=True)
        faults += len(found.faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
