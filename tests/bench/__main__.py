"""`make bench`: one line a figure. Compare only figures of one machine and one run."""

from __future__ import annotations

from tests.bench import bench_bytes, bench_goodput, bench_merge, bench_record


def main() -> None:
    """Takes and prints every figure."""
    for room in (bench_record, bench_merge, bench_goodput, bench_bytes):
        for figure in room.figures():
            print(figure, flush=True)


if __name__ == "__main__":
    main()
