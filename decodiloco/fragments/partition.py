"""How tensors are dealt to fragments (paper section C): balanced, by layer, by tensor.

Works on names and shapes alone; knows no torch and no model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from decodiloco.config import Run
from decodiloco.errors import ConfigInvalid
from decodiloco.fragments.layout import Dtype, Layout, Tensor


@dataclass(frozen=True, slots=True)
class Piece:
    """One trained tensor before it has a fragment. `embedding`: its rows are looked up."""

    name: str
    shape: tuple[int, ...]
    dtype: Dtype
    embedding: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def elements(self) -> int:
        """How many numbers the tensor holds."""
        return math.prod(self.shape)


def partition(pieces: Sequence[Piece], run: Run) -> Layout:
    """The layout of a run: each piece with its fragment and its merge rule.

    Depends on the set of pieces only, not on their order. Raises ConfigInvalid naming the most
    fragments that fit when `run.fragments` would leave one empty.
    """
    ordered = sorted(pieces, key=lambda piece: piece.name)
    deal = _STRATEGIES[run.partition]
    fragments = deal(ordered, run.fragments)
    return Layout(
        fragments=run.fragments,
        tensors=tuple(
            Tensor(
                name=piece.name,
                shape=piece.shape,
                dtype=piece.dtype,
                fragment=fragments[piece.name],
                rule=run.merge.embedding_rule if piece.embedding else run.merge.rule,
                aliases=piece.aliases,
            )
            for piece in ordered
        ),
    )


def layer_of(name: str) -> tuple[str, int] | None:
    """The layer that a tensor belongs to, by its name: `blocks.3.mlp.0.weight` -> (blocks, 3).

    The first part that is a number counts; None for a tensor outside all layers.
    """
    parts = name.split(".")
    for place, part in enumerate(parts):
        if part.isascii() and part.isdigit():
            return ".".join(parts[:place]), int(part)
    return None


def _balanced(pieces: Sequence[Piece], fragments: int) -> dict[str, int]:
    """Largest first, each into the fragment that holds least (the paper's choice).

    Size is counted in elements, because every tensor travels in the same codec.
    """
    _check_room(fragments, len(pieces), "balanced")
    held = [0] * fragments
    dealt: dict[str, int] = {}
    for piece in sorted(pieces, key=lambda piece: (-piece.elements, piece.name)):
        least = min(range(fragments), key=lambda fragment: (held[fragment], fragment))
        dealt[piece.name] = least
        held[least] += piece.elements
    return dealt


def _by_layer(pieces: Sequence[Piece], fragments: int) -> dict[str, int]:
    """Fragment 0 holds what is outside all layers; layers go to the others by stride."""
    layers = _layers(pieces)
    inside = [piece for piece in pieces if layer_of(piece.name) is not None]
    return _strided(
        pieces, fragments, {piece.name: layers[_layer(piece)] for piece in inside}, "layer"
    )


def _by_tensor(pieces: Sequence[Piece], fragments: int) -> dict[str, int]:
    """Fragment 0 holds what is outside all layers; the tensors go to the others by stride."""
    layers = _layers(pieces)
    inside = [piece for piece in pieces if layer_of(piece.name) is not None]
    inside.sort(key=lambda piece: (layers[_layer(piece)], piece.name))
    return _strided(
        pieces, fragments, {piece.name: place for place, piece in enumerate(inside)}, "tensor"
    )


def _strided(
    pieces: Sequence[Piece], fragments: int, places: Mapping[str, int], strategy: str
) -> dict[str, int]:
    """Tensors without a place go to fragment 0, place n to the n-th of the rest, by stride."""
    outside = len(places) < len(pieces)
    _check_room(fragments, len(set(places.values())) + outside, strategy)
    first = 1 if outside and fragments > 1 else 0
    rest = fragments - first
    return {
        piece.name: first + places[piece.name] % rest if piece.name in places else 0
        for piece in pieces
    }


def _layers(pieces: Sequence[Piece]) -> dict[tuple[str, int], int]:
    """Each layer's place in the model: lists of layers by name, then the number in the list."""
    found = sorted({layer for piece in pieces if (layer := layer_of(piece.name)) is not None})
    return {layer: place for place, layer in enumerate(found)}


def _layer(piece: Piece) -> tuple[str, int]:
    layer = layer_of(piece.name)
    assert layer is not None
    return layer


def _check_room(fragments: int, most: int, strategy: str) -> None:
    if fragments > most:
        raise ConfigInvalid(
            f"run.fragments = {fragments}: with partition {strategy!r} this model gives at most "
            f"{most}; set run.fragments to {most} or less"
        )


_STRATEGIES: dict[str, Callable[[Sequence[Piece], int], dict[str, int]]] = {
    "balanced": _balanced,
    "layer": _by_layer,
    "tensor": _by_tensor,
}
