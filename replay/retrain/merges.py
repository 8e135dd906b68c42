"""The merged fragments of a rerun: each made from its deltas, with the tape's word on who is in.

Membership and weights are the tape's; windows and quorums are passed over. Holds the newest
version of each fragment, and older ones while a life is still to write them into its model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from decodiloco.learner.copies import Arrays
from decodiloco.merge.exact import Floats
from decodiloco.merge.fragment import (
    Abandoned,
    Contribution,
    Merged,
    MergeOrder,
    merge_fragment,
)
from decodiloco.opening import Opening
from decodiloco.store.keys import delta_key, global_key, outer_key, report_key
from decodiloco.store.tensors import read_tensors
from decodiloco.syncer.weights import merge_settings
from replay.errors import Differs
from replay.retrain.script import Version
from replay.retrain.shelf import Shelf
from streams.events import DeltaOffered, FragmentMerged
from streams.manifest import Manifest

Three = tuple[Manifest, Manifest, Manifest]  # of parameters, momentum and report


class Merges:
    """What is merged so far. `uses` says how often each version will be asked for."""

    def __init__(self, opening: Opening, shelf: Shelf, uses: Mapping[Version, int]) -> None:
        self._opening = opening
        self._shelf = shelf
        self._uses = dict(uses)
        self._versions = [0] * opening.layout.fragments
        self._parameters = list(opening.fragments)
        self._momentum: list[Manifest | None] = [None] * opening.layout.fragments
        self._reports: list[tuple[Manifest, int] | None] = [None] * opening.layout.fragments
        self._settings = merge_settings(opening.run)
        self._arrays: dict[Version, Arrays] = {}
        for fragment in range(opening.layout.fragments):
            self._read(fragment)

    def version(self, fragment: int, version: int) -> Arrays:
        """The tensors of a version, for one of its uses. Raises Differs when it is not made yet."""
        here = fragment, version
        arrays = self._arrays.get(here)
        if arrays is None:
            raise Differs(
                f"version {version} of fragment {fragment} is written into a model before it is "
                "made"
            )
        self._uses[here] = self._uses.get(here, 0) - 1
        self._let_go(here)
        return arrays

    def newest(self) -> Iterator[tuple[str, Floats]]:
        """All tensors of the merged model as it stands."""
        for fragment, version in enumerate(self._versions):
            yield from self._arrays[fragment, version].items()

    def order(
        self, event: FragmentMerged, offers: Mapping[int, tuple[DeltaOffered, Manifest]]
    ) -> MergeOrder:
        """The order of a merge on the tape, for deltas as they are at hand.

        Raises Differs where one of them is none.
        """
        fragment = event.fragment
        for each in event.contributions:
            if each not in offers:
                raise Differs(f"version {event.version} is made of {each}, which was not offered")
        chosen = sorted(
            ((position, *offers[position]) for position in event.contributions),
            key=lambda each: each[1].learner,
        )
        report = self._reports[fragment]
        return MergeOrder(
            run=self._opening.run.name,
            round=event.round,
            fragment=fragment,
            version=event.version,
            tensors=self._opening.layout.of(fragment),
            quorum=1,
            contributions=tuple(self._contribution(*each) for each in chosen),
            parameters=self._parameters[fragment],
            momentum=self._momentum[fragment],
            report=None if report is None else report[0],
            report_round=None if report is None else report[1],
            settings=self._settings,
            settled=True,
        )

    def make(self, order: MergeOrder, position: int) -> Merged:
        """Makes a version, and stores nothing. Raises Differs when none can be made."""
        made = merge_fragment(order, self._shelf, sleep=_at_once)
        if isinstance(made, Abandoned):
            why = "; ".join(f"that of {each.position}: {each.reason}" for each in made.left_out)
            raise Differs(f"nothing can be merged: of the deltas is {why}", position)
        return made

    def step(self, order: MergeOrder, made: Merged, chosen: Three) -> None:
        """The fragment has a new version: the chosen one, be it the one made or the tape's."""
        parameters, momentum, report = chosen
        if chosen == (made.parameters.manifest, made.momentum.manifest, made.report.manifest):
            for key, parts in made.blobs(order):
                self._shelf.put(key, parts)
        run, fragment, before = order.run, order.fragment, order.version - 1
        self._shelf.drop(global_key(run, fragment, before, order.parameters))
        if order.momentum is not None:
            self._shelf.drop(outer_key(run, fragment, before, order.momentum))
        if order.report is not None and order.report_round is not None:
            self._shelf.drop(report_key(run, order.report_round, order.report))
        self._versions[fragment] = order.version
        self._parameters[fragment] = parameters
        self._momentum[fragment] = momentum
        self._reports[fragment] = report, order.round
        self._read(fragment)
        self._let_go((fragment, before))

    def key(self, offer: DeltaOffered, manifest: Manifest) -> str:
        """Where a delta that was made for an offer lies."""
        run, learner, life = self._opening.run.name, offer.learner, offer.incarnation
        return delta_key(run, learner, life, offer.fragment, offer.learner_step, manifest)

    def _read(self, fragment: int) -> None:
        version, manifest = self._versions[fragment], self._parameters[fragment]
        key = global_key(self._opening.run.name, fragment, version, manifest)
        self._arrays[fragment, version] = read_tensors(self._shelf, key, manifest)

    def _let_go(self, here: Version) -> None:
        if self._versions[here[0]] != here[1] and self._uses.get(here, 0) <= 0:
            self._arrays.pop(here, None)

    def _contribution(self, position: int, offer: DeltaOffered, manifest: Manifest) -> Contribution:
        return Contribution(
            position=position,
            learner=offer.learner,
            tokens=offer.tokens,
            inner_steps=offer.inner_steps,
            key=self.key(offer, manifest),
            manifest=manifest,
        )


def _at_once(seconds: float) -> None:
    """What is not there now will not come."""
