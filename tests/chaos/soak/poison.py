"""A learner that lies about its deltas: each offer names bytes that are stored, sound, and wrong.

Its words are an honest session's; only what they name is exchanged, just before they are said.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import numpy as np
import numpy.typing as npt

from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import key_of_offer
from decodiloco.store.tensors import encode_tensors, read_tensors
from streams.events import DeltaOffered, Word
from streams.inbox import Inbox, Letter

TIMES = 1000.0

Arrays = dict[str, npt.NDArray[np.float32]]


class PoisonedInbox:
    """An inbox through which every offered delta becomes poison, the same at each resend."""

    def __init__(self, inbox: Inbox, store: BlobStore, poison: str) -> None:
        self.run, self.region = inbox.run, inbox.region
        self._inbox = inbox
        self._store = store
        self._poison = poison

    async def life(self) -> str:
        return await self._inbox.life()

    async def say(self, word: Word) -> int:
        if isinstance(word, DeltaOffered):
            word = await asyncio.to_thread(self._exchanged, word)
        return await self._inbox.say(word)

    def follow(self, after: int) -> AsyncGenerator[Letter, None]:
        return self._inbox.follow(after)

    async def close(self) -> None:
        await self._inbox.close()

    def _exchanged(self, word: DeltaOffered) -> DeltaOffered:
        honest = read_tensors(self._store, key_of_offer(self.run, word), word.manifest)
        made = encode_tensors(poisoned(honest, self._poison), word.manifest.codec, squares=True)
        lie = word.model_copy(update={"manifest": made.manifest})
        self._store.put(key_of_offer(self.run, lie), made.parts)
        return lie


def poisoned(delta: Arrays, poison: str) -> Arrays:
    """A delta with a NaN in each tensor, of a thousand times its norm, or of other shapes."""
    if poison == "nan":
        spoiled = {name: array.copy() for name, array in delta.items()}
        for array in spoiled.values():
            array.reshape(-1)[0] = np.nan
        return spoiled
    if poison == "huge":
        return {name: np.float32(TIMES) * array for name, array in delta.items()}
    return {name: array.reshape(-1)[:-1].copy() for name, array in delta.items()}
