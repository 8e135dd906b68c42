"""How fast facts are sealed, read and chained: what limits a replay before it folds."""

from __future__ import annotations

from collections.abc import Iterator

from streams.chain import Chain
from streams.codec import decode_envelope, encode_envelope, encode_event
from streams.events import Event
from tests.bench.figures import Figure, rate_of
from tests.builders import RUN, offered, opened, tape_of

FACTS = 2000


def figures(_quick: bool) -> Iterator[Figure]:
    """One figure a stage."""
    facts: list[Event] = [opened(), *(offered(said=said) for said in range(1, FACTS))]
    tape = tape_of(facts)
    payloads = [encode_envelope(envelope) for envelope in tape]

    def chained() -> None:
        chain = Chain(RUN)
        for envelope in tape:
            chain = chain.then(envelope)

    yield rate_of("record: encode an offer", "events/s", FACTS, lambda: [*map(encode_event, facts)])
    yield rate_of("record: seal a tape", "events/s", FACTS, lambda: tape_of(facts))
    yield rate_of(
        "record: decode a tape", "events/s", FACTS, lambda: [*map(decode_envelope, payloads)]
    )
    yield rate_of("record: check a chain", "events/s", FACTS, chained)
