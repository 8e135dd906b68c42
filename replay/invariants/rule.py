"""What an invariant is: a name, a sentence, and a count of how often it was checked. Pure."""

from __future__ import annotations

from replay.errors import InvariantBroken
from replay.invariants.ledger import Ledger
from streams.envelope import Envelope


class Invariant:
    """Something that holds for every run, told one fact after another.

    A subclass says in its docstring what holds. `tell` sees a fact before the ledger does.
    """

    name = ""

    def __init__(self) -> None:
        self.checked = 0

    @classmethod
    def says(cls) -> str:
        """The sentence that holds."""
        return cls.__doc__ or ""

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        """Checks one fact against all facts before it."""

    def hold(self, holds: bool, what: str, position: int | None) -> None:
        """Counts one check; raises InvariantBroken when it does not hold."""
        self.checked += 1
        if not holds:
            raise InvariantBroken(self.name, what, position)
