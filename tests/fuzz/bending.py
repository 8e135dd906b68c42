"""Sound values and bytes, bent: what a broken disk, a careless client or a liar may hand over.

A change is drawn from a seed and the number of the case, so that any single case comes again
without those before it. Knows msgpack, JSON and TOML as forms; nothing of what the values mean.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

import msgpack


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes that stand in msgpack as they are: forms that no packer would write."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Pairs:
    """A map with a key that stands in it twice."""

    pairs: list[tuple[Any, Any]]


NUMBERS = (
    0, 1, -1, 2, 31, 32, 127, 128, 255, 256, 1023, 1024, 1025, 65_535, 65_536, -32, -33, -128,
    2**31 - 1, 2**31, 2**32, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**31),
    -(2**53), -(2**63), 0.0, -0.0, 0.5, 1.0, -1.0, 5e-324, 1e-9, 1e300, 1.8e308,
    float("inf"), float("-inf"), float("nan"), True, False,
)  # fmt: skip
TEXTS = (
    "", " ", "a", "b", "A", "a" * 48, "a" * 49, "a" * 300, "a" * 5000, "..", "../b", "/etc", "a/b",
    "a.b", "*", ">", "a\n", "a\x00b", "\t", "ä", "💣", "é", "\u202e", "\ufeff", "%s%n",
    "home", "fp32", "bf16", "msgpack", "F32", "BF16", "I64", "delta_offered", "run_closing", "nan",
)  # fmt: skip
BLOBS = (b"", b"\0", b"\xff" * 16, b"\0" * 31, b"\0" * 32, b"\1" * 33, b"x" * 1024, b"x" * 1025)
FORMS = (
    b"\xc1",  # never used
    b"\xd9\x01a",  # a short text in a long form
    b"\xa3\xed\xa0\x80",  # half of a surrogate pair
    b"\xa1\xff",  # no UTF-8
    b"\xcd\x00\x05",  # a small number in a long form
    b"\xcf\x00\x00\x00\x00\x00\x00\x00\x07",
    b"\xd3\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xca\x7f\xc0\x00\x00",  # float32: not a number
    b"\xca\x40\x80\x00\x00",
    b"\xd6\xff\x00\x00\x00\x00",  # a time stamp
    b"\xc7\x00\x05",  # a foreign type
    b"\xdd\xff\xff\xff\xff",  # an array of 2^32 - 1
    b"\xdf\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdc\x00\x01\xc0",
    b"\x91" * 7 + b"\xc0",
    b"\x91" * 1000 + b"\xc0",
    b"\x81\xc0\xc0",  # a map whose key is nothing
    b"\x81\x91\xc0\xc0",  # a map whose key is an array
    b"\x81\x01\x02",
)

TOML_FORMS = (
    "1979-05-27T07:32:00Z", "0x_", "07:32:00", "1_000", "0o17", "'''", "inf", "[[", "{a = 1}",
    "9" * 5000, "[" * 2000, "{a=" * 500, "1e400",
)  # fmt: skip

SLOTS_MAX = 200
_PACKER = msgpack.Packer(use_bin_type=True)


class Bender:
    """One case's changes, drawn from its seed."""

    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)

    def tree(self, value: Any) -> Any:
        """Plain values with one to three changes somewhere within."""
        whole = [thawed(value)]
        for _ in range(self.chance.choice((1, 1, 1, 2, 3))):
            parent, key = self.chance.choice(_slots(whole))
            parent[key] = self._changed(parent[key])
        return whole[0]

    def bytes(self, payload: bytes) -> bytes:
        """The bytes with one to four changes: flipped, cut, doubled, moved, grown."""
        bent = bytearray(payload)
        for _ in range(self.chance.choice((1, 1, 2, 4))):
            self._change(bent)
        return bytes(bent)

    def scalar(self) -> Any:
        """Something odd, of any type."""
        kinds: tuple[tuple[Any, ...], ...] = (NUMBERS, TEXTS, BLOBS, (None,))
        return self.chance.choice(self.chance.choice(kinds))

    def _change(self, bent: bytearray) -> None:
        draw, size = self.chance.randrange, len(bent)
        at = draw(size + 1)
        stop = min(size, at + draw(1, 17))
        match draw(9):
            case 0 if at < size:
                bent[at] ^= 1 << draw(8)
            case 1 if at < size:
                bent[at] = draw(256)
            case 2:
                bent[at:stop] = self.chance.randbytes(draw(0, 9))
            case 3:
                del bent[at:stop]
            case 4:
                bent[at:at] = bent[at:stop] * draw(1, 9)
            case 5:
                del bent[at:]
            case 6:
                bent += self.chance.randbytes(draw(1, 64))
            case 7:
                bent[at:at] = self.chance.choice(FORMS)
            case _:
                bent[at:stop] = b"\xff" * (stop - at)

    def _changed(self, node: Any) -> Any:
        if isinstance(node, list):
            return self._list(node)
        if isinstance(node, dict):
            return self._map(node)
        return self._leaf(node)

    def _leaf(self, node: Any) -> Any:
        match self.chance.randrange(8):
            case 0 | 1 if isinstance(node, int | float) and not isinstance(node, bool):
                return self.chance.choice((node + 1, node - 1, -node, node * 2, float(node)))
            case 0 | 1 if isinstance(node, str):
                return self.chance.choice((node + "x", node[:-1], node.upper(), f"../{node}"))
            case 0 | 1 if isinstance(node, bytes):
                return self.chance.choice((node + b"x", node[:-1], node[::-1], node.hex()))
            case 2:
                return Raw(self.chance.choice(FORMS))
            case 3:
                return self.nest(self.chance.choice((1, 3, 6, 12, 100)))
            case _:
                return self.scalar()

    def nest(self, depth: int) -> Any:
        """Something in as many lists or maps."""
        value = self.scalar()
        for _ in range(depth):
            value = [value] if self.chance.random() < 0.7 else {"a": value}
        return value

    def _list(self, node: list[Any]) -> Any:
        at = self.chance.randrange(len(node) + 1)
        match self.chance.randrange(6):
            case 0:
                del node[at:]
            case 1:
                node.insert(at, self.scalar())
            case 2 if node:
                node.extend(node[:1] * self.chance.choice((1, 3, 64, 1024)))
            case 3:
                self.chance.shuffle(node)
            case 4:
                return self.scalar()
            case _:
                return {str(index): item for index, item in enumerate(node)}
        return node

    def _map(self, node: dict[Any, Any]) -> Any:
        keys = list(node)
        match self.chance.randrange(7):
            case 0 if keys:
                del node[self.chance.choice(keys)]
            case 1:
                node[self.scalar_key()] = self.scalar()
            case 2 if keys:
                key = self.chance.choice(keys)
                return Pairs([*node.items(), (key, self.scalar())])
            case 3 if keys:
                node[self.scalar_key()] = node.pop(self.chance.choice(keys))
            case 4:
                return list(node.values())
            case 5 if keys:
                key = self.chance.choice(keys)
                node[key] = node[self.chance.choice(keys)]
            case _:
                return self.scalar()
        return node

    def scalar_key(self) -> Any:
        """Something that can be a key."""
        key = self.scalar()
        return "nan" if key != key else key


def _slots(whole: list[Any]) -> list[tuple[Any, Any]]:
    """Places within lists and maps, as (parent, key); of very many the first."""
    found: list[tuple[Any, Any]] = []
    waiting: list[Any] = [whole]
    while waiting and len(found) < SLOTS_MAX:
        node = waiting.pop()
        for key in list(node)[:SLOTS_MAX] if isinstance(node, dict) else range(len(node)):
            found.append((node, key))
            if isinstance(node[key], list | dict):
                waiting.append(node[key])
    return found


def thawed(value: Any) -> Any:
    """The same plain values in lists and maps that may be changed."""
    if isinstance(value, dict):
        return {key: thawed(one) for key, one in value.items()}
    return [thawed(one) for one in value] if isinstance(value, list | tuple) else value


def as_msgpack(value: Any) -> bytes:
    """Bent values as msgpack, their odd forms as they are."""
    try:
        whole: bytes = msgpack.packb(value, use_bin_type=True)
    except (TypeError, OverflowError, ValueError):
        return _odd_msgpack(value)
    return whole


def _odd_msgpack(value: Any) -> bytes:
    match value:
        case Raw():
            return value.payload
        case Pairs():
            return _map(value.pairs)
        case dict():
            return _map(list(value.items()))
        case list() | tuple():
            start: bytes = _PACKER.pack_array_header(len(value))
            return start + b"".join(map(_odd_msgpack, value))
        case int() if not -(2**63) <= value < 2**64:
            return b"\xcf" + b"\xff" * 8
        case _:
            packed: bytes = _PACKER.pack(value)
            return packed


def _map(pairs: list[tuple[Any, Any]]) -> bytes:
    start: bytes = _PACKER.pack_map_header(len(pairs))
    return start + b"".join(_odd_msgpack(key) + _odd_msgpack(one) for key, one in pairs)


def as_json(value: Any) -> str:
    """Bent values as JSON; raw forms become numbers and texts that JSON only just allows."""
    match value:
        case Raw():
            forms = ("1e999", "-0", "1E400", '"\\ud800"', "NaN", "9" * 400, "[" * 200, "{")
            return forms[len(value.payload) % len(forms)]
        case Pairs():
            return _object(value.pairs)
        case dict():
            return _object(list(value.items()))
        case list() | tuple():
            return "[" + ",".join(map(as_json, value)) + "]"
        case bytes():
            return json.dumps(value.decode("latin-1"))
        case _:
            return json.dumps(value)


def _object(pairs: list[tuple[Any, Any]]) -> str:
    return "{" + ",".join(f"{as_json(_text(k))}:{as_json(one)}" for k, one in pairs) + "}"


def _text(key: Any) -> str:
    return key if isinstance(key, str) else repr(key)


def as_toml(tables: Any, chance: random.Random) -> str:
    """Bent tables as TOML: one line a setting, with dotted keys."""
    lines: list[str] = []
    _flatten("", tables, lines)
    if chance.random() < 0.2:
        chance.shuffle(lines)
    return "\n".join(lines) + "\n"


def _flatten(prefix: str, value: Any, lines: list[str]) -> None:
    pairs = value.pairs if isinstance(value, Pairs) else None
    if isinstance(value, dict):
        pairs = list(value.items())
    if pairs is None:
        lines.append(f"{prefix or 'x'} = {_toml(value)}")
        return
    for key, one in pairs:
        told = key if isinstance(key, str) and key.isidentifier() else json.dumps(_text(key))
        _flatten(f"{prefix}.{told}" if prefix else told, one, lines)


def _toml(value: Any) -> str:
    match value:
        case Raw():
            return TOML_FORMS[len(value.payload) % len(TOML_FORMS)]
        case float():
            return repr(value)
        case list() | tuple():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case _:
            return as_json(value)
