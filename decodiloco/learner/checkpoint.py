"""A learner's inner state as plain arrays: the optimizer's moments and the random states.

Never pickle: tensors are stored as they are, plain numbers as canonical msgpack. Parameters are
not in it, since they come from the tape only.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from decodiloco.errors import BlobCorrupt
from streams.codec import pack, unpack
from streams.errors import Unreadable

Raw = dict[str, npt.NDArray[Any]]

MOMENT = "moment/"  # before the names of moments; what else is in a checkpoint has other ones
SCHEMA = 1
_NOTES = "notes"
_NOTES_BYTES_MAX = 64 * 1024 * 1024
_PLAIN = {torch.float32: np.float32, torch.int64: np.int64, torch.uint8: np.uint8}
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.uint8,
        torch.bool,
    )
}


def capture(optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.Tensor]) -> Raw:
    """The optimizer's state by parameter name, and all random states, copied to the host."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    arrays: Raw = {}
    tensors: dict[str, dict[str, list[Any]]] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for parameter, state in optimizer.state.items():
        name = names.get(id(parameter))
        if name is None:
            continue
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                place = f"{MOMENT}{name}/{key}"
                arrays[place] = _to_array(value)
                dtype = str(value.dtype).removeprefix("torch.")
                tensors.setdefault(name, {})[key] = [place, dtype, list(value.shape)]
            elif isinstance(value, (int, float, bool)):
                numbers.setdefault(name, {})[key] = value
    notes = {
        "schema": SCHEMA,
        "optimizer": type(optimizer).__name__,
        "tensors": tensors,
        "numbers": numbers,
        "random": _capture_random(arrays, parameters),
    }
    arrays[_NOTES] = np.frombuffer(pack(notes), np.uint8)
    return arrays


def restore(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, torch.Tensor],
    arrays: Raw,
    own: bool,
) -> bool:
    """Puts captured moments back; with `own`, the random states too.

    False, and nothing changed, when they are those of another kind of optimizer. Raises
    BlobCorrupt when the arrays are no checkpoint of this model.
    """
    try:
        notes = unpack(arrays[_NOTES].tobytes(), _NOTES_BYTES_MAX)
        if notes["schema"] != SCHEMA or notes["optimizer"] != type(optimizer).__name__:
            return False
        moments = _moments(arrays, notes, parameters)
        plain = optimizer.state_dict()
        plain["state"] = _by_index(optimizer, plain, parameters, moments)
        optimizer.load_state_dict(plain)
        if own:
            _restore_random(arrays, notes["random"], parameters)
    except (KeyError, ValueError, TypeError, RuntimeError, Unreadable) as error:
        raise BlobCorrupt(f"a checkpoint that does not fit this model: {error}") from None
    return True


def _moments(
    arrays: Raw, notes: Mapping[str, Any], parameters: Mapping[str, torch.Tensor]
) -> dict[str, dict[str, Any]]:
    moments: dict[str, dict[str, Any]] = {}
    for name, fields in notes["tensors"].items():
        for key, (place, dtype, shape) in fields.items():
            tensor = _to_tensor(arrays[place], _DTYPES[dtype], shape)
            if tensor.ndim and tensor.shape != parameters[name].shape:
                raise ValueError(f"{name}: {key} has shape {tuple(tensor.shape)}")
            moments.setdefault(name, {})[key] = tensor
    for name, fields in notes["numbers"].items():
        moments.setdefault(name, {}).update(fields)
    return moments


def _by_index(
    optimizer: torch.optim.Optimizer,
    plain: Mapping[str, Any],
    parameters: Mapping[str, torch.Tensor],
    moments: Mapping[str, dict[str, Any]],
) -> dict[int, dict[str, Any]]:
    """Moments under the numbers that the optimizer's own state dictionary uses."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    found: dict[int, dict[str, Any]] = {}
    for group, numbered in zip(optimizer.param_groups, plain["param_groups"], strict=True):
        for parameter, index in zip(group["params"], numbered["params"], strict=True):
            name = names.get(id(parameter))
            if name is not None and name in moments:
                found[index] = moments[name]
    return found


def _to_array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    host = tensor.detach().to(device="cpu", copy=True).contiguous()
    if host.dtype in _PLAIN:
        return host.numpy()
    return host.reshape(-1).view(torch.uint8).numpy()


def _to_tensor(array: npt.NDArray[Any], dtype: torch.dtype, shape: Any) -> torch.Tensor:
    tensor = torch.from_numpy(array.copy())
    if dtype not in _PLAIN:
        tensor = tensor.view(dtype)
    return tensor.reshape(tuple(shape))


def _capture_random(arrays: Raw, parameters: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    arrays["random/torch"] = torch.get_rng_state().numpy().copy()
    device = next(iter(parameters.values())).device
    if device.type == "cuda":
        arrays["random/cuda"] = torch.cuda.get_rng_state(device).numpy().copy()
    version, words, gauss = random.getstate()
    arrays["random/python"] = np.array(words, np.int64)
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    arrays["random/numpy"] = np.asarray(keys, np.int64)
    return {
        "python": [version, gauss],
        "numpy": [str(kind), int(position), int(has_gauss), float(cached)],
    }


def _restore_random(
    arrays: Raw, notes: Mapping[str, Any], parameters: Mapping[str, torch.Tensor]
) -> None:
    torch.set_rng_state(torch.from_numpy(arrays["random/torch"].copy()))
    device = next(iter(parameters.values())).device
    if device.type == "cuda" and "random/cuda" in arrays:
        torch.cuda.set_rng_state(torch.from_numpy(arrays["random/cuda"].copy()), device)
    version, gauss = notes["python"]
    random.setstate((version, tuple(int(word) for word in arrays["random/python"]), gauss))
    kind, position, has_gauss, cached = notes["numpy"]
    keys = arrays["random/numpy"].astype(np.uint32)
    np.random.set_state((kind, keys, position, has_gauss, cached))
