"""What can go wrong in the method, drawn on top of the record's tree (`streams.errors`).

Failure
├── Corrupt                    1
│   ├── BlobCorrupt               a stored blob whose bytes do not match its digest
│   ├── BlobMissing               a blob that the tape names is not in the store
│   └── Disagreement              two things that must be equal are not
├── AskedWrongly               2
│   ├── ConfigInvalid             a setting that is unknown, missing or out of bounds
│   ├── ConfigDiffers             this config is not the one that the run was opened with
│   ├── LayoutDiffers             this model is not the one that the run was opened with
│   ├── ModelUnfit                a model that cannot be trained here, and why
│   └── RulesUnknown              written by rules that this build does not follow
└── Trouble                    3
    ├── StoreUnreachable          the object store does not answer, or not in time
    ├── StoreDenied               the object store does not know us, or does not allow this
    ├── LifeEnded                 a newer life of this learner has joined the run
    │   └── Quarantined               too many of its deltas could not be merged
    └── Orphaned                  nothing was heard from the run for too long
"""

from __future__ import annotations

from streams.errors import AskedWrongly, Corrupt, Trouble


class BlobCorrupt(Corrupt):
    """A stored blob whose bytes do not match its digest."""


class BlobMissing(Corrupt):
    """A blob that the tape names is not in the store."""


class Disagreement(Corrupt):
    """Two things that must be equal are not."""


class ConfigInvalid(AskedWrongly):
    """A setting that is unknown, missing or out of bounds."""


class ConfigDiffers(AskedWrongly):
    """This config is not the one that the run was opened with."""


class LayoutDiffers(AskedWrongly):
    """This model is not the one that the run was opened with."""


class ModelUnfit(AskedWrongly):
    """A model that cannot be trained here."""


class RulesUnknown(AskedWrongly):
    """Written by rules of fold, merge and digest that this build does not follow."""


class StoreUnreachable(Trouble):
    """The object store does not answer, or not in time."""


class StoreDenied(Trouble):
    """The object store does not know us, or does not allow this."""


class LifeEnded(Trouble):
    """A newer life of this learner has joined the run."""


class Quarantined(LifeEnded):
    """Too many deltas of this life could not be merged: the run listens to it no more."""


class Orphaned(Trouble):
    """Nothing was heard from the run for too long."""
