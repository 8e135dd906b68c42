"""An account against the plainest model there is: one record for every single token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from decodiloco.syncer.fates import FATES, Account, Fate


class Token:
    """One token of one fragment, and all that ever happened to it."""

    def __init__(self) -> None:
        self.covered: list[tuple[int, Fate | None]] = []  # (offer, its end) in order of speech
        self.gone = ""

    def fate(self) -> str:
        if any(end == "merged" for _, end in self.covered):
            return "merged"
        if self.gone == "" or any(end is None for _, end in self.covered):
            return "open"
        if self.gone == "died":
            return "lost"
        return self.covered[-1][1] or "open" if self.covered else "dropped"


class PlainLearner:
    """A learner that keeps to the protocol, with its account and its plain tokens side by side."""

    def __init__(self) -> None:
        self.account = Account()
        self.tokens: list[Token] = []
        self.anchor = 0
        self.open: list[tuple[int, int, int]] = []  # (offer, begin, end)
        self.position = 0

    def train(self, count: int) -> None:
        self.tokens += [Token() for _ in range(count)]

    def offer(self, refused: bool) -> None:
        begin, end = self.anchor, len(self.tokens)
        self.position += 1
        if end == begin:
            return
        if refused:
            self.account = self.account.refused(begin, end, self.position)
        else:
            self.account = self.account.offered(begin, end, self.position)
        for token in self.tokens[begin:end]:
            if not any(fate == "merged" for _, fate in token.covered):
                token.covered.append((self.position, "refused" if refused else None))
        if not refused:
            for offer, *_ in list(self.open):
                self.settle("superseded", offer)
            self.open.append((self.position, begin, end))

    def settle(self, fate: Fate, offer: int | None = None) -> None:
        if not self.open:
            return
        chosen = next((o for o in self.open if o[0] == offer), self.open[0])
        self.open.remove(chosen)
        self.account = self.account.settle(chosen[0], fate, chosen[2])
        for token in self.tokens[chosen[1] : chosen[2]]:
            token.covered = [
                (number, fate if number == chosen[0] else end) for number, end in token.covered
            ]

    def adopt(self) -> None:
        self.account = self.account.adopted(len(self.tokens))
        for token in self.tokens:
            token.gone = token.gone or "overwritten"
        self.anchor = len(self.tokens)

    def die(self) -> None:
        self.account = self.account.died(len(self.tokens))
        for token in self.tokens:
            token.gone = token.gone or "died"
        self.anchor = len(self.tokens)


happenings = st.lists(
    st.one_of(
        st.integers(1, 4).map(lambda n: ("train", n)),
        st.just(("offer", False)),
        st.just(("offer", True)),
        st.sampled_from(["merged", "left_out", "superseded"]).map(lambda fate: ("settle", fate)),
        st.just(("adopt",)),
        st.just(("die",)),
    ),
    max_size=40,
)


@given(happenings)
def test_an_account_counts_as_if_it_knew_every_token(steps: list[tuple[object, ...]]) -> None:
    learner = PlainLearner()
    for name, *arguments in steps:
        getattr(learner, str(name))(*arguments)
        trained = len(learner.tokens)
        totals = learner.account.totals()
        plain = [token.fate() for token in learner.tokens]
        assert totals == {fate: plain.count(fate) for fate in FATES}
        assert trained - sum(totals.values()) == plain.count("open")


@given(happenings)
def test_an_account_stays_small(steps: list[tuple[object, ...]]) -> None:
    learner = PlainLearner()
    for name, *arguments in steps:
        getattr(learner, str(name))(*arguments)
    assert len(learner.account.spans) <= 2 * len(steps) + 1
