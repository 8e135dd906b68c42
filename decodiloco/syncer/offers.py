"""Offers in the syncer's state: admitted, refused, adopted from, settled."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter

from decodiloco.syncer.fates import Account, Fate
from decodiloco.syncer.grace import average
from decodiloco.syncer.in_flight import Offer
from decodiloco.syncer.state import Learner, State
from streams.events import DeltaOffered, DeltaRefused
from streams.frozen import made, replace
from streams.parts import Adoption

UNTOLD_MAX = 4096  # superseded offers that still have to be told; beyond, the oldest are not
# Refusals that say nothing about tokens: their counters cannot be believed.
UNBELIEVED = ("counters", "old incarnation", "adopted")


def offered(state: State, event: DeltaOffered) -> State:
    """An admitted offer: it waits for the next window of its fragment.

    Adoptions made before the copy come before the offer, later ones after it. An older offer of
    this learner that still waits for the same fragment is superseded.
    """
    before, carry = state.learners[event.learner], state.config.adoption.carry
    told = _ordered(event.adopted)
    versions, anchor_steps = _anchors(before, told)
    step = event.learner_step
    learner = replace(
        before,
        status="live",
        said=event.said,
        learner_step=max(before.learner_step, step, _reached(told)),
        tokens_trained=max(before.tokens_trained, event.tokens_trained, _trained(told)),
        cursor=event.cursor if step >= before.learner_step else before.cursor,
        loss=event.loss,
        step_seconds=average(before.step_seconds, event.step_seconds),
        upload_seconds=average(before.upload_seconds, event.upload_seconds),
        fetch_seconds=_fetch_average(before.fetch_seconds, event.adopted),
        adopted=versions,
        anchor_steps=anchor_steps,
        accounts=_accounts(before, event, told, state.position, carry),
    )
    older = _older(state, event)
    state = replace(
        state,
        learners={**state.learners, event.learner: learner},
        liveness_changed=state.liveness_changed if before.status == "live" else state.position,
        offers=state.offers.also(_offer(event, state.position)),
    )
    return superseded(state, event.fragment, older) if older else state


def _accounts(
    learner: Learner, event: DeltaOffered, told: Sequence[Adoption], position: int, carry: bool
) -> tuple[Account, ...]:
    """The accounts once this offer covers its tokens, and adoptions overwrote theirs."""
    accounts, fragment, end = list(learner.accounts), event.fragment, event.tokens_trained
    begin, since = end - event.tokens, 0
    if told and not carry:
        since = bisect_left(told, event.learner_step, key=_step)
        _overwritten(accounts, told[:since])
    account = accounts[fragment]
    if carry:  # an offer holds all that its learner has: what is from before it was overwritten
        account = account.adopted(begin)
    accounts[fragment] = account.offered(begin, end, position)
    if not carry:
        _overwritten(accounts, told[since:])
    return tuple(accounts)


def _older(state: State, event: DeltaOffered) -> list[int]:
    """What this learner has offered for the fragment before, and waits for a window still."""
    held = state.offers.of(event.fragment).values()
    ours = [offer.position for offer in held if offer.learner == event.learner]
    if not ours:  # as mostly
        return ours
    waiting = [offer.position for offer in state.waiting(event.fragment)]
    return [position for position in ours if position in waiting]


def _offer(event: DeltaOffered, position: int) -> Offer:
    return made(
        Offer,
        position=position,
        learner=event.learner,
        incarnation=event.incarnation,
        round=event.round,
        fragment=event.fragment,
        base_version=event.base_version,
        learner_step=event.learner_step,
        inner_steps=event.inner_steps,
        tokens=event.tokens,
        manifest=event.manifest,
    )


def refused(state: State, event: DeltaRefused) -> State:
    """A refused offer: its word is spent; its tokens were covered by an offer all the same.

    A refused word is a sign of life, too.
    """
    before = state.learners.get(event.learner)
    if before is None or event.incarnation != before.incarnation:
        return state
    revived = before.status == "lost"
    learner = replace(
        before,
        said=max(before.said, event.said),
        status="live" if revived else before.status,
    )
    if not event.reason.startswith(UNBELIEVED) and event.fragment < len(learner.accounts):
        account = learner.accounts[event.fragment].refused(
            event.tokens_trained - event.tokens, event.tokens_trained, state.position
        )
        learner = replace(learner, accounts=_with(learner.accounts, event.fragment, account))
    return replace(
        state,
        learners={**state.learners, event.learner: learner},
        liveness_changed=state.position if revived else state.liveness_changed,
    )


def said(state: State, name: str, number: int) -> State:
    """A learner's word that changes nothing else: it is heard, so it lives."""
    before = state.learners[name]
    learner = replace(before, said=number, status="live")
    return replace(
        state,
        learners={**state.learners, name: learner},
        liveness_changed=state.liveness_changed if before.status == "live" else state.position,
    )


def adopted(learner: Learner, adoptions: Iterable[Adoption], carry: bool) -> Learner:
    """The learner after it put merged versions into its live parameters.

    Under *carry* work that is in no merge yet is not overwritten: its next offer holds it.
    """
    told = _ordered(tuple(adoptions))
    versions, anchor_steps = _anchors(learner, told)
    accounts = list(learner.accounts)
    if not carry:
        _overwritten(accounts, told)
    return replace(
        learner,
        adopted=versions,
        anchor_steps=anchor_steps,
        accounts=tuple(accounts),
        learner_step=max(learner.learner_step, _reached(told)),
        tokens_trained=max(learner.tokens_trained, _trained(told)),
    )


def _anchors(learner: Learner, told: Sequence[Adoption]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For each fragment the version in the live parameters, and the step of its adoption."""
    if not told:
        return learner.adopted, learner.anchor_steps
    versions, steps = list(learner.adopted), list(learner.anchor_steps)
    for one in told:
        versions[one.fragment], steps[one.fragment] = one.version, one.learner_step
    return tuple(versions), tuple(steps)


def _overwritten(accounts: list[Account], told: Sequence[Adoption]) -> None:
    """Puts into their places the accounts whose live work these adoptions overwrote."""
    for one in told:
        accounts[one.fragment] = accounts[one.fragment].adopted(one.tokens_trained)


def _ordered(adoptions: Sequence[Adoption]) -> Sequence[Adoption]:
    """As they were made; one or none, as mostly, is in order."""
    return adoptions if len(adoptions) < 2 else sorted(adoptions, key=_in_order)


def _reached(told: Sequence[Adoption]) -> int:
    return told[-1].learner_step if told else 0  # they are in order


def _trained(told: Sequence[Adoption]) -> int:
    return max([one.tokens_trained for one in told]) if told else 0


_step = attrgetter("learner_step")
_in_order = attrgetter("learner_step", "fragment", "version")


def superseded(state: State, fragment: int, positions: Iterable[int]) -> State:
    """These waiting offers fall away; the fragment's next window tells it."""
    gone = tuple(positions)
    state = settled(state, ((position, "superseded") for position in gone))
    told = (*state.superseded, *((position, fragment) for position in gone))
    return replace(state, superseded=told[-UNTOLD_MAX:])


def turned_away(state: State) -> State:
    """What quarantined learners have offered and waits for a window is left out of all of them."""
    inside = frozenset(position for one in state.rounds.values() for position in one.offers)
    gone = [
        position
        for position, offer in state.offers.items()
        if position not in inside and state.learners[offer.learner].status == "quarantined"
    ]
    return settled(state, ((position, "left_out") for position in gone))


def newest_only(state: State, fragment: int) -> State:
    """One waiting offer a learner, the newest: a window holds no two of one learner."""
    waiting = state.waiting(fragment)
    newest: dict[str, int] = {}
    for offer in waiting:
        newest[offer.learner] = max(offer.position, newest.get(offer.learner, 0))
    older = sorted(o.position for o in waiting if o.position < newest[o.learner])
    return superseded(state, fragment, older)


def settled(state: State, ends: Iterable[tuple[int, Fate]]) -> State:
    """Offers, by their positions, come to their ends."""
    learners, gone = dict(state.learners), []
    for position, fate in ends:
        offer = state.offers[position]
        learner = learners[offer.learner]
        account = learner.accounts[offer.fragment].settle(position, fate, offer.learner_step)
        accounts = _with(learner.accounts, offer.fragment, account)
        learners[offer.learner] = replace(learner, accounts=accounts)
        gone.append(offer)
    return replace(state, learners=learners, offers=state.offers.without(gone))


def _with(accounts: tuple[Account, ...], fragment: int, account: Account) -> tuple[Account, ...]:
    changed = list(accounts)
    changed[fragment] = account
    return tuple(changed)


def _fetch_average(old: float | None, adoptions: Iterable[Adoption]) -> float | None:
    for adoption in adoptions:
        old = average(old, adoption.fetch_seconds)
    return old
