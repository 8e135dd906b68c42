"""A recording of the world's tape in a file of its own machine, torn and taken up again.

The file is real, as the production writer makes it; where it lies is told to nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from replay.tape_file import Header, read_tape_file
from replay.tape_writer import open_writer
from streams.envelope import Envelope
from streams.errors import Failure

RECORDS_MAX = 200  # of a tape's first ones: each is read twice
TORN_BYTES_MAX = 150  # less than any record has


def torn_and_taken_up(run: str, records: Sequence[Envelope], random: Random) -> str:
    """Records the tape, tears the file within its last record, goes on, seals, reads it back.

    Says what is wrong with what was read; nothing when it is the tape.
    """
    records = records[:RECORDS_MAX]
    header = Header(run, "memory://world")
    with TemporaryDirectory(prefix="world-") as folder:
        path = Path(folder) / "run.tape"
        half = random.randrange(1, len(records) + 1)
        writer = open_writer(path, header)
        writer.append(records[:half])
        writer.close()
        whole = path.read_bytes()
        path.write_bytes(whole[: -random.randrange(1, TORN_BYTES_MAX)])
        try:
            writer = open_writer(path, header)
            writer.append(records[writer.chain.position :])
            writer.seal()
            again = [envelope.digest for envelope in read_tape_file(path)]
        except Failure as failure:
            return f"a torn recording cannot be taken up: {failure}"
    same = again == [envelope.digest for envelope in records]
    return "" if same else f"{len(again)} records are read back; {len(records)} were written"
