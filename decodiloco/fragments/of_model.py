"""What of a torch module is trained, as names and tensors, and the layout that this gives.

The only room that looks into a module. Knows nothing of runs, rounds or stores.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from decodiloco.config import Run
from decodiloco.errors import ModelUnfit
from decodiloco.fragments.layout import Dtype, Layout
from decodiloco.fragments.partition import Piece, partition

_DTYPES: dict[torch.dtype, Dtype] = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}
_SHARDED = ("DTensor", "FlatParameter", "ShardedTensor", "UninitializedParameter")
_NAME_LENGTH_MAX = 300


@dataclass(frozen=True, slots=True)
class Trained:
    """The trained tensors of a module: what they are, and the live parameters by name."""

    pieces: tuple[Piece, ...]
    tensors: dict[str, nn.Parameter]

    def layout(self, run: Run) -> Layout:
        """The layout that these tensors have in a run."""
        return partition(self.pieces, run)


def trained(model: nn.Module) -> Trained:
    """The trainable parameters of a module, each piece of memory once.

    Tied weights stand under the first of their names in sorted order, the others as aliases.
    Buffers and frozen parameters are left out: each learner has its own. Raises ModelUnfit with
    the name of a tensor that cannot be trained in a run, and why.
    """
    names: dict[int, list[str]] = {}
    parameters: dict[int, nn.Parameter] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.requires_grad:
            name = name.replace("_orig_mod.", "")  # torch.compile's wrapper
            names.setdefault(id(parameter), []).append(name)
            parameters[id(parameter)] = parameter
    if not parameters:
        raise ModelUnfit("the model has no trainable parameter")
    for identity, parameter in parameters.items():
        _check(min(names[identity]), parameter)
    _check_one_device({min(names[key]): parameter for key, parameter in parameters.items()})
    embeddings = _embeddings(model)
    pieces: list[Piece] = []
    tensors: dict[str, nn.Parameter] = {}
    for group in _by_memory(parameters, names):
        known_as = sorted({name for identity in group for name in names[identity]})
        parameter = parameters[group[0]]
        pieces.append(
            Piece(
                name=known_as[0],
                shape=tuple(parameter.shape),
                dtype=_DTYPES[parameter.dtype],
                embedding=any(identity in embeddings for identity in group),
                aliases=tuple(known_as[1:]),
            )
        )
        tensors[known_as[0]] = parameter
    return Trained(tuple(sorted(pieces, key=lambda piece: piece.name)), tensors)


def _embeddings(model: nn.Module) -> frozenset[int]:
    """Weights that are looked up by row, also when an output layer is tied to them."""
    return frozenset(
        id(module.weight)
        for module in model.modules()
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag))
    )


def _by_memory(parameters: dict[int, nn.Parameter], names: dict[int, list[str]]) -> list[list[int]]:
    """Parameters in groups that are the same memory; ModelUnfit when two overlap in part."""
    groups: dict[int, list[int]] = {}
    for identity, parameter in parameters.items():
        groups.setdefault(parameter.untyped_storage().data_ptr(), []).append(identity)
    whole: list[list[int]] = []
    for group in groups.values():
        same: dict[tuple[object, ...], list[int]] = {}
        spans: list[tuple[int, int, str]] = []
        for identity in group:
            parameter = parameters[identity]
            start = int(parameter.storage_offset())
            view = (start, tuple(parameter.shape), parameter.stride(), parameter.dtype)
            if view not in same:
                last = start + sum(
                    (int(size) - 1) * int(stride)
                    for size, stride in zip(parameter.shape, parameter.stride(), strict=True)
                )
                spans.append((start, last, min(names[identity])))
            same.setdefault(view, []).append(identity)
        spans.sort()
        for (_, last, name), (start, _, other) in itertools.pairwise(spans):
            if start <= last:
                first, second = sorted((name, other))
                raise ModelUnfit(f"{first} and {second} share part of their memory")
        whole.extend(same.values())
    return whole


def _check(name: str, parameter: nn.Parameter) -> None:
    kinds = {kind.__name__ for kind in type(parameter).__mro__}
    kinds |= {kind.__name__ for kind in type(parameter.data).__mro__}
    why = None
    if any(kind in kinds for kind in _SHARDED) or hasattr(parameter, "ds_id"):
        why = "is sharded or not yet made; a learner trains whole, plain tensors"
    elif len(name) > _NAME_LENGTH_MAX:
        why = f"has a name of more than {_NAME_LENGTH_MAX} characters"
    elif parameter.is_meta:
        why = "is on the meta device: it has no values yet"
    elif parameter.is_complex():
        why = "is complex; use two real tensors"
    elif parameter.layout is not torch.strided:
        why = f"is {parameter.layout}; only dense tensors can be trained"
    elif parameter.dtype not in _DTYPES:
        known = ", ".join(_DTYPES.values())
        why = f"is {str(parameter.dtype).removeprefix('torch.')}; known are {known}"
    elif parameter.numel() == 0:
        why = "holds no elements"
    if why:
        raise ModelUnfit(f"parameter {name} {why}")


def _check_one_device(parameters: dict[str, nn.Parameter]) -> None:
    devices: dict[str, str] = {}
    for name in sorted(parameters):
        devices.setdefault(str(parameters[name].device), name)
    if len(devices) > 1:
        places = ", ".join(f"{name} on {device}" for device, name in devices.items())
        raise ModelUnfit(f"the model lies on several devices ({places}); put it on one")


def same_layout(ours: Layout, theirs: Layout) -> str | None:
    """None if two layouts are the same; else one line that names the first difference."""
    if ours == theirs:
        return None
    mine = {tensor.name: tensor for tensor in ours.tensors}
    other = {tensor.name: tensor for tensor in theirs.tensors}
    for name in sorted(mine.keys() | other.keys()):
        if name not in mine:
            return f"the run has {name}, this model has not"
        if name not in other:
            return f"this model has {name}, the run has not"
        if mine[name] != other[name]:
            for field in cast(Iterable[str], type(mine[name]).model_fields):
                here, there = getattr(mine[name], field), getattr(other[name], field)
                if here != there:
                    return f"{name}: {field} is {here} here and {there} in the run"
    return f"{ours.fragments} fragments here and {theirs.fragments} in the run"
