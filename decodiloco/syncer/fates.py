"""What became of a learner's tokens, for one fragment. Knows tokens and offers, not parameters.

A token is a number in the learner's own count, 1, 2, 3 ... An account keeps the tokens that are
not yet settled as spans, and the settled ones as totals. A token's fate is its last: merged if a
merged offer covers it; else, once its work was overwritten, that of the last offer that covered
it, or dropped if none did; else lost, when the life that trained it ended; else open.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from streams.frozen import made, replace

Fate = Literal["merged", "left_out", "refused", "superseded", "dropped", "lost"]
Paint = Callable[["Span"], "Span"]
FATES: tuple[Fate, ...] = ("merged", "left_out", "refused", "superseded", "dropped", "lost")
_PLACES = {fate: place for place, fate in enumerate(FATES)}


@dataclass(frozen=True)
class Span:
    """Tokens `begin + 1 .. end`, all with the same history.

    `offer`: position of the offer in flight that covers them, 0 for none. `fate`: that of the
    last settled offer that covered them; `by`: its position, if it came after the one in flight.
    `gone`: how their work left the live parameters: not at all, merged, overwritten, or with the
    learner's life.
    """

    begin: int
    end: int
    offer: int = 0
    fate: Fate | None = None
    by: int = 0
    gone: Literal["", "merged", "overwritten", "died"] = ""

    @property
    def settled(self) -> Fate | None:
        """The fate that can no longer change, or None."""
        if self.gone == "merged":
            return "merged"
        if self.gone == "" or self.offer:
            return None
        if self.gone == "died":
            return "lost"
        return self.fate or "dropped"


@dataclass(frozen=True)
class Account:
    """One learner's tokens for one fragment; `merged_step`: its step at the last merged offer."""

    merged_step: int = 0
    settled_tokens: int = 0
    counts: tuple[int, ...] = (0,) * len(FATES)
    spans: tuple[Span, ...] = ()

    def offered(self, begin: int, end: int, position: int) -> Account:
        """An admitted offer at `position` covers tokens begin + 1 .. end."""
        if begin == self._reach and begin < end:  # as mostly: tokens of which nothing is said yet
            span = made(Span, begin=begin, end=end, offer=position, fate=None, by=0, gone="")
            return self._with((*self.spans, span))
        return self._painted(begin, end, lambda span: replace(span, offer=position))

    def refused(self, begin: int, end: int, position: int) -> Account:
        """A refused offer covered these tokens; one in flight keeps its chance to be merged."""
        return self._painted(
            begin,
            end,
            lambda span: replace(span, fate="refused", by=position if span.offer else 0),
        )

    def settle(self, offer: int, fate: Fate, learner_step: int = 0) -> Account:
        """An offer in flight came to its end: merged, left out or superseded."""
        step = max(self.merged_step, learner_step) if fate == "merged" else self.merged_step
        if fate == "merged" and len(self.spans) == 1 and self.spans[0].offer == offer:
            return self._counting("merged", self.spans[0].end, step)
        return self._compacted([_settled(span, offer, fate) for span in self.spans], step)

    def adopted(self, tokens: int) -> Account:
        """A merged version overwrote all work up to this token."""
        if not self.spans and tokens > self.settled_tokens:  # as mostly: none of it was offered
            return self._counting("dropped", tokens, self.merged_step)
        return self._painted(
            self.settled_tokens,
            tokens,
            lambda span: span if span.gone else replace(span, gone="overwritten"),
        )

    def died(self, trained: int) -> Account:
        """The learner's life ended after this many tokens; what it held is gone with it."""
        account = self._painted(
            self.settled_tokens,
            trained,
            lambda span: span if span.gone else replace(span, gone="died"),
        )
        kept = [span for span in account.spans if span.end <= trained]
        return account._compacted(kept, account.merged_step)

    def taken(self, merging: Collection[int]) -> int:
        """The last token that is settled, merged, or in one of these offers.

        An honest offer begins behind it: no token is merged twice.
        """
        ends = [span.end for span in self.spans if span.gone == "merged" or span.offer in merging]
        return max(self.settled_tokens, *ends) if ends else self.settled_tokens

    def totals(self) -> dict[Fate, int]:
        """Tokens of each settled fate; trained minus their sum is open."""
        return dict(zip(FATES, self.settled, strict=True))

    @property
    def settled(self) -> tuple[int, ...]:
        """Tokens of each settled fate, in the order of FATES."""
        if len(self.spans) < 2:  # the first is never settled, else it would be counted
            return self.counts
        return _counted(self.counts, [span for span in self.spans if span.settled is not None])

    @property
    def _reach(self) -> int:
        """The last token of which anything is said."""
        return self.spans[-1].end if self.spans else self.settled_tokens

    def _with(self, spans: tuple[Span, ...]) -> Account:
        return made(
            Account,
            merged_step=self.merged_step,
            settled_tokens=self.settled_tokens,
            counts=self.counts,
            spans=spans,
        )

    def _counting(self, fate: Fate, end: int, merged_step: int) -> Account:
        """With all tokens up to `end` settled, those that were not in this fate."""
        counts = list(self.counts)
        counts[_PLACES[fate]] += end - self.settled_tokens
        return made(
            Account, merged_step=merged_step, settled_tokens=end, counts=tuple(counts), spans=()
        )

    def _painted(self, begin: int, end: int, paint: Paint) -> Account:
        begin = max(begin, self.settled_tokens)
        if end <= begin:
            return self

        def painted(span: Span) -> Span:
            inside = begin <= span.begin and span.end <= end
            return paint(span) if inside and span.gone != "merged" else span

        return self._compacted([painted(span) for span in self._cut(begin, end)], self.merged_step)

    def _cut(self, begin: int, end: int) -> Iterator[Span]:
        """The spans, with a border at begin and at end, and reaching to end."""
        reach = self._reach
        borders = (begin, end)
        for span in self.spans:
            yield from _split(span, borders)
        if reach < end:
            yield from _split(Span(reach, end), borders)

    def _compacted(self, spans: list[Span], merged_step: int) -> Account:
        """With these spans: those settled at the front are counted, like ones become one."""
        done = 0
        while done < len(spans) and spans[done].settled is not None:
            done += 1
        counts, settled_tokens = self.counts, self.settled_tokens
        if done:
            counts, settled_tokens = _counted(counts, spans[:done]), spans[done - 1].end
        rest = _joined(spans[done:])
        assert not rest or rest[0].begin == settled_tokens, "an account has a gap"
        return made(
            Account,
            merged_step=merged_step,
            settled_tokens=settled_tokens,
            counts=counts,
            spans=rest,
        )


def _counted(counts: Iterable[int], settled: Iterable[Span]) -> tuple[int, ...]:
    """The counts with the tokens of these settled spans."""
    sums = list(counts)
    for span in settled:
        assert span.settled is not None
        sums[_PLACES[span.settled]] += span.end - span.begin
    return tuple(sums)


def _settled(span: Span, offer: int, fate: Fate) -> Span:
    if span.offer != offer:
        return span
    if fate == "merged":
        return replace(span, offer=0, gone="merged")
    return replace(span, offer=0, fate=fate if offer > span.by else span.fate, by=0)


def _split(span: Span, borders: tuple[int, ...]) -> Iterator[Span]:
    for border in borders:
        if span.begin < border < span.end:
            yield replace(span, end=border)
            span = replace(span, begin=border)
    yield span


def _joined(spans: list[Span]) -> tuple[Span, ...]:
    if len(spans) < 2:
        return tuple(spans)
    kept: list[Span] = []
    for span in spans:
        if kept and _are_alike(kept[-1], span):
            kept[-1] = replace(kept[-1], end=span.end)
        else:
            kept.append(span)
    return tuple(kept)


def _are_alike(span: Span, next_: Span) -> bool:
    """Whether two spans, one behind the other, have the same history."""
    return (
        span.offer == next_.offer
        and span.fate == next_.fate
        and span.by == next_.by
        and span.gone == next_.gone
    )
