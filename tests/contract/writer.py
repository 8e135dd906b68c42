"""A process that puts blob after blob until it is killed: `python -m tests.contract.writer`.

Says `put N` before and `held N` after each, so that its killer knows what must be there.
"""

from __future__ import annotations

import sys
from itertools import count

from decodiloco.store.open_store import open_store


def content_of(number: int, size_bytes: int) -> bytes:
    return number.to_bytes(4, "big") * (size_bytes // 4)


def key_of(number: int) -> str:
    return f"run/written/{number}"


def main(url: str, endpoint: str, size_bytes: int) -> None:
    store = open_store(url, endpoint or None)
    for number in count():
        print("put", number, flush=True)
        store.put(key_of(number), [content_of(number, size_bytes)])
        print("held", number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
