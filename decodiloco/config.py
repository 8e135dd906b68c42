"""A run described: frozen, checked, hashed. Read once, at the door, from one TOML file.

The table `[run]` is the same for everybody and its digest stands in the run's opening;
the table `[here]` belongs to one machine and is never hashed.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from blake3 import blake3
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from decodiloco.config_faults import fault_lines
from decodiloco.config_overrides import override
from decodiloco.errors import ConfigInvalid
from decodiloco.time_orders import out_of_order
from streams.address import with_files
from streams.codec import pack
from streams.parts import Name
from streams.printing import printable

CONFIG_BYTES_MAX = 1024 * 1024

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
WholePositive = Annotated[int, Field(ge=1, le=2**53)]
Rule = Literal["radial", "mean", "trimmed", "median"]


class Table(BaseModel):
    """What all tables have in common: frozen, and nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Window(Table):
    """When a round is opened, and how long it waits for learners (paper section 3.2, Eq. 3)."""

    gamma: Share = Field(0.8, description="Share of the slack that the grace window may use.")
    overlap: Literal["auto"] | WholePositive = Field(
        "auto",
        description="Rounds that may be open and unmerged at once; auto is the least that "
        "leaves one step of slack.",
    )
    pace_quantile: Share = Field(
        0.5, description="Which live learner sets the pace: 0 the fastest, 0.5 the median."
    )
    step_seconds: Positive = Field(
        1.0, description="First value of the learners' step time, until they have reported."
    )
    upload_seconds: Positive = Field(
        1.0, description="First value of the learners' upload time, until they have reported."
    )


class Merge(Table):
    """How deltas become an outer gradient (paper section D.2)."""

    rule: Rule = Field(
        "radial",
        description="Rule for every tensor that is no embedding; trimmed and median (geometric) "
        "withstand bad deltas, and learn less from good ones.",
    )
    embedding_rule: Rule = Field(
        "mean", description="Rule for embeddings: tensors looked up by row."
    )
    norm_clip: Positive | Literal["none"] = Field(
        2.0,
        description="A delta's norm is clipped, per tensor, to this many medians of the round, "
        "or of it and the last 8 versions; none for no clip.",
    )
    staleness_versions_max: int = Field(
        1, ge=0, le=16, description="How many versions behind an offer's base may be."
    )
    tokens_per_step_max: int = Field(
        2**24, ge=1, le=2**31, description="An offer that claims more tokens a step is refused."
    )


class Gates(Table):
    """What a delta must be to be merged, and how often one may fail."""

    direction: Share | Literal["none"] = Field(
        0.5,
        description="A delta that opposes the others more than this share of how they agree with "
        "each other is left out; none for no such gate.",
    )
    norm_extreme: Positive | Literal["none"] = Field(
        100.0,
        description="A delta whose norm a step is over this many medians is left out, or none.",
    )
    strikes: int = Field(
        3,
        ge=0,
        le=100,
        description="A learner of which so many deltas are left out is quarantined; merged ones "
        "are held in its favour. 0: never.",
    )


class Outer(Table):
    """The outer optimizer: SGD with Nesterov momentum (paper section 2)."""

    lr: Positive = Field(0.7, description="Outer learning rate.")
    momentum: float = Field(
        0.9,
        ge=0,
        lt=1,
        description="Outer momentum; 0.5 where a fragment gets fewer than about 100 versions, and "
        "for H < 24.",
    )


class Adoption(Table):
    """How merged fragments come into the live parameters (paper section D.1)."""

    alpha: Share = Field(
        0.0, description="Share of the learner's own parameters that is kept; 0 overwrites."
    )
    carry: bool = Field(
        False,
        description="Keep the work that was done since the copy that was merged: for slow "
        "networks, where much work would be overwritten. Wants alpha = 0.",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Adoption:
        if self.carry and self.alpha:
            raise ValueError(
                f"carry = true keeps all work of a learner, alpha = {self.alpha} a share of it: "
                "set one of them"
            )
        return self


class Retention(Table):
    """How long stored bytes are kept. The tape itself is never shortened."""

    keep_merges: WholePositive | None = Field(
        None,
        description="Keep the bytes of at least so many newest merges, and of at most about twice "
        "as many; what is older is deleted. Default: keep everything.",
    )


class Codecs(Table):
    """How tensors are coded on the wire and in the store."""

    delta: Literal["fp32", "bf16", "int8", "int4"] = Field(
        "bf16", description="Codec of learners' deltas."
    )
    fragment: Literal["fp32"] = Field("fp32", description="Codec of merged fragments.")
    feedback: bool | None = Field(
        None,
        description="Whether a learner adds to a delta what coding lost of its last merged one; "
        "default: with int4 only.",
    )

    @property
    def feeds_back(self) -> bool:
        """Whether learners keep what coding loses."""
        return self.delta == "int4" if self.feedback is None else self.feedback

    @model_validator(mode="after")
    def _has_something_to_feed_back(self) -> Codecs:
        if self.feedback and self.delta == "fp32":
            raise ValueError("feedback: fp32 loses nothing that could be fed back")
        return self


class Times(Table):
    """Waits and cadences that all of the run share."""

    takeover_seconds: Positive = Field(
        2.0, description="A standby takes over after hearing no heartbeat for so long."
    )
    heartbeat_seconds: Positive = Field(0.5, description="Between two heartbeats of anyone.")
    lost_seconds: Positive = Field(
        10.0, description="A learner that was silent for so long is declared lost."
    )
    orphan_seconds_max: Positive = Field(
        600.0, description="A learner that hears nothing of the run for so long stops."
    )
    fetch_seconds_max: Positive = Field(
        30.0, description="A delta that cannot be fetched for so long is left out of its merge."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Times:
        if told := out_of_order(self):
            raise ValueError("; ".join(told))
        return self


class End(Table):
    """When the run ends; with neither, it ends when asked (`decodiloco close`)."""

    steps: WholePositive | None = Field(None, description="End after so many merges.")
    tokens: WholePositive | None = Field(None, description="End after so many tokens trained.")


class Model(Table):
    """The built-in decoder, for runs that bring no model of their own."""

    layers: int = Field(4, ge=1, le=128, description="Transformer blocks.")
    width: int = Field(128, ge=8, le=16384, description="Width of the residual stream.")
    heads: int = Field(4, ge=1, le=256, description="Attention heads; must divide the width.")
    context: int = Field(128, ge=8, le=65536, description="Tokens in one sequence.")
    tied: bool = Field(True, description="Whether the output layer is the embedding.")
    seed: int = Field(0, ge=0, description="Seed of the first parameters, drawn once at opening.")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Model:
        if self.width % self.heads:
            raise ValueError(f"heads ({self.heads}) must divide width ({self.width})")
        return self


class Training(Table):
    """The built-in trainer: data and AdamW, with warm-up and cosine on the run's clock."""

    data: str = Field(
        "stdlib",
        description="Text to train on: an fsspec glob of text files, or stdlib for the Python "
        "standard library's own source.",
    )
    held_out_share: float = Field(
        0.1, gt=0, lt=0.9, description="Share of the files that is kept for evaluation."
    )
    shards: int = Field(64, ge=1, le=4096, description="Disjoint shards the text is cut into.")
    batch_sequences: int = Field(8, ge=1, le=65536, description="Sequences in one inner step.")
    lr: Positive = Field(2e-3, description="Peak learning rate of AdamW.")
    weight_decay: float = Field(0.1, ge=0, description="Weight decay of AdamW (matrices only).")
    warmup_share: Share = Field(0.1, description="Share of the run that warms up.")
    clip: Positive = Field(1.0, description="Gradient norm is clipped to this.")
    checkpoint_steps: WholePositive | None = Field(
        None, description="Inner steps between two checkpoints of inner state; default H."
    )
    evaluate_merges: WholePositive | None = Field(
        None, description="Merges between two evaluations; default P."
    )
    evaluate_tokens: WholePositive = Field(
        32768, description="Held-out tokens that one evaluation reads."
    )


class Run(Table):
    """Everything that all of a run share; its digest stands in the opening."""

    name: Name = Field(description="Name of the run: 1 to 48 of a-z, 0-9 and -.")
    regions: tuple[Name, ...] = Field(
        ("home",), min_length=1, max_length=16, description="Regions: each has an inbox."
    )
    tape_replicas: Literal[1, 3, 5] = Field(
        1, description="Servers that keep the tape; more than 1 wants a cluster of so many."
    )
    fragments: int = Field(24, ge=1, le=1024, description="P: parts the parameters are cut into.")
    inner_steps: int = Field(
        24, ge=1, le=100_000, description="H: inner steps between two versions of a fragment."
    )
    partition: Literal["balanced", "layer", "tensor"] = Field(
        "balanced", description="How tensors are dealt to fragments (paper section C)."
    )
    quorum: int = Field(1, ge=1, le=1024, description="K: distinct learners that a merge needs.")
    learners_min: int = Field(
        1, ge=1, le=1024, description="Rounds begin when so many learners have joined."
    )
    snapshot_merges: WholePositive | None = Field(
        None, description="Merges between two snapshots of the syncer's state; default P."
    )
    window: Window = Field(default_factory=Window)
    merge: Merge = Field(default_factory=Merge)
    gates: Gates = Field(default_factory=Gates)
    outer: Outer = Field(default_factory=Outer)
    adoption: Adoption = Field(default_factory=Adoption)
    codecs: Codecs = Field(default_factory=Codecs)
    retention: Retention = Field(default_factory=Retention)
    times: Times = Field(default_factory=Times)
    end: End = Field(default_factory=End)
    model: Model = Field(default_factory=Model)
    training: Training = Field(default_factory=Training)

    @property
    def digest(self) -> bytes:
        """blake3 of the canonical msgpack of every setting that this build knows."""
        return blake3(pack(self.model_dump(mode="json"))).digest()

    @property
    def checkpoint_steps(self) -> int:
        """Inner steps between two checkpoints of a learner's inner state."""
        return self.training.checkpoint_steps or self.inner_steps

    @property
    def snapshot_every_merges(self) -> int:
        """Merges between two snapshots of the syncer's state."""
        return self.snapshot_merges or self.fragments

    @property
    def evaluate_every_merges(self) -> int:
        """Merges between two evaluations of the merged model."""
        return self.training.evaluate_merges or self.fragments


class Here(Table):
    """Where this machine finds things; never hashed."""

    nats: str = Field(
        "nats://127.0.0.1:4222",
        repr=False,  # somebody may have put a password into it
        description="Address of the NATS server; of a cluster, several with commas between.",
    )
    nats_key: str | None = Field(
        None,
        description="File of this machine's key, written by `decodiloco keys`; none for a server "
        "that asks for none.",
    )
    nats_ca: str | None = Field(
        None,
        description="File of the certificate authority that signed the NATS server's "
        "certificate: with it the connection is TLS.",
    )
    store: str = Field(
        description="Object store: file:///folder, s3://bucket/prefix or memory://name."
    )
    store_endpoint: str | None = Field(
        None,
        description="Address of an S3 server that is not AWS; keys come from botocore's chain.",
    )
    region: Name = Field("home", description="Region whose inbox this machine speaks to.")
    id: Name | None = Field(None, description="Id of this learner or syncer (--id).")
    threads: int = Field(1, ge=1, le=1024, description="Threads of torch, or of a merger's merge.")
    device: str = Field("cpu", description="Device that the built-in trainer trains on.")

    @property
    def nats_door(self) -> str:
        """The server's address with our key and CA file in its query, as `connect` takes it."""
        return with_files(self.nats, self.nats_key, self.nats_ca)


class Config(Table):
    """One run and one place."""

    run: Run
    here: Here


def load_config(path: Path | str, settings: Sequence[str] = ()) -> Config:
    """The config in a TOML file, with `--set` overrides such as `outer.lr=0.4` or `here.id=a`.

    An override without `here.` is one of `[run]`. Raises ConfigInvalid naming the key and the
    nearest known one.
    """
    try:
        with Path(path).open("rb") as file:
            held = file.read(CONFIG_BYTES_MAX + 1)
        if len(held) > CONFIG_BYTES_MAX:
            raise ConfigInvalid(f"config {path}: more than {CONFIG_BYTES_MAX} bytes; no config has")
        text = held.decode("utf-8")
    except OSError as error:
        raise ConfigInvalid(f"config {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigInvalid(f"config {path}: not TOML: not text in UTF-8 ({error})") from None
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, or a number of any length
        raise ConfigInvalid(f"config {path}: not TOML: {printable(str(error))}") from None
    for setting in settings:
        override(tables, setting)
    return parse_config(tables, str(path))


def parse_config(tables: dict[str, Any], origin: str = "config") -> Config:
    """The config in nested tables, or ConfigInvalid with every fault, one a line.

    Types are TOML's own: a number in quotes is no number, nor is `true`.
    """
    try:
        config = Config.model_validate_json(json.dumps(tables, default=str), strict=True)
    except ValidationError as error:
        raise ConfigInvalid("\n".join(fault_lines(error, origin, Config))) from None
    except (ValueError, RecursionError) as error:
        raise ConfigInvalid(f"{origin}: {printable(str(error))}") from None
    if config.here.region not in config.run.regions:
        raise ConfigInvalid(
            f"{origin}: here.region {config.here.region!r} is none of run.regions "
            f"({', '.join(config.run.regions)})"
        )
    return config
