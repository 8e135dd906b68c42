"""Live tensors copied to host memory as float32 arrays. Knows tensors and names, no protocol."""

from __future__ import annotations

import weakref
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Arrays = dict[str, npt.NDArray[np.float32]]

_CUDA: Any = torch.cuda  # torch gives the constructors of its streams and events no types


@dataclass(frozen=True, slots=True)
class HostCopy:
    """One fragment at a boundary: its arrays, and those of the anchor it is compared with.

    Nobody writes into them: uploads and later boundaries share this memory. A copy of a CUDA
    model is under way on a stream of its own: whoever reads `live` calls `wait` first.
    """

    base: Arrays
    live: Arrays
    arrived: torch.cuda.Event | None = None

    def wait(self) -> None:
        """Returns once `live` is whole; at once where it was copied by the CPU."""
        if self.arrived is not None:
            self.arrived.synchronize()


class HostBuffers:
    """Host memory for copies, lent as arrays; it comes back once nobody holds the array.

    Fresh memory costs a page fault every 4 KiB, on the thread that trains; memory that was lent
    before costs none. It never holds more than was lent at one time. Pinned for a CUDA model, so
    that a copy runs beside its kernels.
    """

    def __init__(self) -> None:
        self._spare: dict[int, deque[torch.Tensor]] = defaultdict(deque)
        self._stream: torch.cuda.Stream | None = None

    def copied(
        self, parameters: Mapping[str, torch.Tensor], names: Iterable[str]
    ) -> tuple[Arrays, torch.cuda.Event | None]:
        """The named tensors as they stand now, in lent memory, and when they will be there."""
        live = {name: parameters[name].detach() for name in names}
        lent = {name: self._lend(tensor) for name, tensor in live.items()}
        arrays = {name: array for name, (_, array) in lent.items()}
        if not any(tensor.is_cuda for tensor in live.values()):
            for name, (memory, _) in lent.items():
                memory.copy_(live[name])
            return arrays, None
        return arrays, self._copied_beside(
            live, {name: memory for name, (memory, _) in lent.items()}
        )

    def taken(self, tensor: torch.Tensor) -> npt.NDArray[np.float32]:
        """One float32 tensor as it stands now, in lent memory, when this returns."""
        memory, array = self._lend(tensor.detach())
        if self._stream is not None:
            self._stream.synchronize()  # a copy that nobody waited for may be on its way into it
        memory.copy_(tensor.detach())
        return array

    def _copied_beside(
        self, live: Mapping[str, torch.Tensor], into: Mapping[str, torch.Tensor]
    ) -> torch.cuda.Event:
        """Clones on the device, in order with training, then brings the clones home beside it."""
        device = next(iter(live.values())).device
        if self._stream is None:
            self._stream = _CUDA.Stream(device)
        clones = {
            name: tensor.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
            for name, tensor in live.items()
        }
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream):
            for name, clone in clones.items():
                into[name].copy_(clone, non_blocking=True)
                clone.record_stream(self._stream)
            arrived: torch.cuda.Event = _CUDA.Event()
            arrived.record(self._stream)
        return arrived

    def _lend(self, like: torch.Tensor) -> tuple[torch.Tensor, npt.NDArray[np.float32]]:
        """Memory for a tensor, as torch and as numpy see it.

        Each loan is an array of its own whose owner is a torch tensor, so that every view of it
        keeps it alive; numpy would let a view of a view skip an owner of its own kind.
        """
        spare = self._spare[like.numel()]
        try:
            flat = spare.pop()
        except IndexError:
            flat = torch.empty(like.numel(), dtype=torch.float32, pin_memory=like.is_cuda)
        memory = flat.view(like.shape)
        array: npt.NDArray[np.float32] = memory.numpy()
        weakref.finalize(array, spare.append, flat).atexit = False
        return memory, array


def copied(parameters: Mapping[str, torch.Tensor], names: Iterable[str]) -> Arrays:
    """The named tensors as they stand now: float32, on the host, memory of their own.

    Every bfloat16 and float16 value is a float32 value, so nothing is rounded.
    """
    return {
        name: parameters[name]
        .detach()
        .to(device="cpu", dtype=torch.float32, copy=True)
        .contiguous()
        .numpy()
        for name in names
    }
