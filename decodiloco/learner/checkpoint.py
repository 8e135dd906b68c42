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
from decodiloco.learner.copies import HostBuffers
from streams.codec import pack, unpack
from streams.errors import Unreadable
from streams.printing import first_fault

Raw = dict[str, npt.NDArray[Any]]

MOMENT = "moment/"  # before the names of moments; what else is in a checkpoint has other ones
SCHEMA = 1
_NOTES = "notes"
_UNFIT = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    Unreadable,
)
"""What torch, numpy and Python say of arrays and notes that no `capture` has made."""
_NOTES_BYTES_MAX = 16 * 1024 * 1024
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


def capture(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, torch.Tensor],
    buffers: HostBuffers | None = None,
) -> Raw:
    """The optimizer's state by parameter name, and all random states, copied to the host.

    Moments in float32 go into memory that `buffers` lends, where there are any.
    """
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
                if buffers is not None and value.dtype == torch.float32:
                    arrays[place] = buffers.taken(value)
                else:
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
        random_states = _random_states(arrays, notes["random"]) if own else None
        plain = optimizer.state_dict()
        plain["state"] = _by_index(optimizer, plain, parameters, moments)
        _load(optimizer, plain)
    except _UNFIT as error:
        told = first_fault(error)
        raise BlobCorrupt(f"a checkpoint that does not fit this model: {told}") from None
    if random_states is not None:
        _restore_random(random_states, arrays, parameters)
    return True


def _load(optimizer: torch.optim.Optimizer, plain: dict[str, Any]) -> None:
    """Loads all or nothing: torch has put in what it then finds unfit."""
    before = optimizer.state_dict()
    try:
        optimizer.load_state_dict(plain)
    except Exception:
        optimizer.load_state_dict(before)
        raise


def _moments(
    arrays: Raw, notes: Mapping[str, Any], parameters: Mapping[str, torch.Tensor]
) -> dict[str, dict[str, Any]]:
    moments: dict[str, dict[str, Any]] = {}
    for name, fields in notes["tensors"].items():
        for key, (place, dtype, shape) in fields.items():
            tensor = _to_tensor(arrays[place], _DTYPES[dtype], shape)
            if tensor.ndim and tensor.shape != parameters[name].shape:
                raise ValueError(f"{name}: {key} has shape {tuple(tensor.shape)}")
            if not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"{name}: {key} is not finite")
            moments.setdefault(name, {})[key] = tensor
    for name, fields in notes["numbers"].items():
        if not all(isinstance(number, (int, float)) for number in fields.values()):
            raise TypeError(f"{name}: a moment that is neither a tensor nor a number")
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


def _random_states(arrays: Raw, notes: Mapping[str, Any]) -> tuple[Any, ...]:
    """The states of torch, Python and numpy, each tried on a generator of its own."""
    of_torch = torch.from_numpy(arrays["random/torch"].copy())
    torch.Generator().set_state(of_torch)
    version, gauss = notes["python"]
    next_gauss = None if gauss is None else float(gauss)
    of_python = (version, tuple(int(word) for word in arrays["random/python"]), next_gauss)
    random.Random().setstate(of_python)
    kind, position, has_gauss, cached = notes["numpy"]
    of_numpy = (kind, arrays["random/numpy"].astype(np.uint32), position, has_gauss, cached)
    np.random.RandomState().set_state(of_numpy)
    return of_torch, of_python, of_numpy


def _restore_random(
    states: tuple[Any, ...], arrays: Raw, parameters: Mapping[str, torch.Tensor]
) -> None:
    of_torch, of_python, of_numpy = states
    torch.set_rng_state(of_torch)
    device = next(iter(parameters.values())).device
    if device.type == "cuda" and "random/cuda" in arrays:
        torch.cuda.set_rng_state(torch.from_numpy(arrays["random/cuda"].copy()), device)
    random.setstate(of_python)
    np.random.set_state(of_numpy)
