"""Records read by a compiled decoder: several times faster than the definition in `codec`. Pure.

Each kind of fact has a twin, a struct of msgspec, made from what pydantic checks of the model. A
record counts as read only if its twin, written again, gives the very same bytes: then they are
canonical, and every field is what its model allows. Whatever else a record may be, it is not
judged here, and the definition says what it is. A kind whose schema has what no twin knows is left
to the definition as a whole, with a warning: that is slower, and never wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import GenericAlias
from typing import Annotated, Any, Literal

import msgspec
import pydantic
from blake3 import blake3
from msgspec.structs import asdict
from pydantic import BaseModel

from streams.envelope import POSITION_MAX, Envelope, Source
from streams.events import BY_KIND
from streams.frozen import made

FLOAT_MAX = 1.7976931348623157e308  # beyond it is infinity

Maker = Callable[[Any], Any]


class Unlike(Exception):
    """A schema says what no twin can be made to say."""


_Count = Annotated[int, msgspec.Meta(ge=0, le=POSITION_MAX)]
_Short = Annotated[str, msgspec.Meta(max_length=64)]
_Finite = Annotated[float, msgspec.Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)]
_Record = tuple[
    int,  # schema
    Annotated[int, msgspec.Meta(ge=1, le=POSITION_MAX)],
    Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)],  # previous
    _Count,  # fence
    _Short,  # writer
    tuple[_Short, _Short, _Count] | None,  # source
    _Finite,  # time
    str,  # kind
    msgspec.Raw,  # fields
]

_record = msgspec.msgpack.Decoder(_Record).decode
_written = msgspec.msgpack.Encoder(order="sorted").encode


def read(payload: bytes, schema: int) -> Envelope | None:
    """The record in these bytes, if they are the canonical ones of a sound record; else None."""
    try:
        found, position, previous, fence, writer, source, time_seconds, kind, fields = _record(
            payload
        )
        if found != schema or kind not in BY_KIND or (reader := _reader(kind)) is None:
            return None
        decode, model_of = reader
        twin = decode(fields)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    again = (schema, position, previous, fence, writer, source, time_seconds, kind, twin)
    if _written(again) != payload:
        return None
    return made(
        Envelope,
        position=position,
        previous=previous,
        fence=fence,
        writer=writer,
        source=None if source is None else _source(*source),
        time_seconds=time_seconds,
        event=model_of(twin),
        digest=blake3(payload).digest(),
    )


def _source(inbox: str, life: str, sequence: int) -> Source:
    return made(Source, inbox=inbox, life=life, sequence=sequence)


@cache
def _reader(kind: str) -> tuple[Callable[[msgspec.Raw], Any], Maker] | None:
    """How the fields of a kind are decoded into its twin, and a twin is made into a fact."""
    model = BY_KIND[kind]
    try:
        return msgspec.msgpack.Decoder(_twin(model)).decode, _maker(model)
    except (Unlike, LookupError, TypeError) as error:
        warnings.warn(
            f"facts of kind {kind} are decoded slowly: pydantic {pydantic.VERSION} tells of them "
            f"what streams/compiled.py does not know ({type(error).__name__}: {error})",
            stacklevel=2,
        )
        return None


# Twins: what pydantic's own schema of a model says, in the words of msgspec.


@cache
def _twin(model: type[BaseModel]) -> type[msgspec.Struct]:
    """A struct of the same fields, in the same order, within the same limits."""
    fields: list[Any] = []
    for name, schema in _fields(model):
        default = (schema["default"],) if schema["type"] == "default" else ()
        fields.append((name, _type(schema), *default))
    return msgspec.defstruct(
        model.__name__,
        fields,
        kw_only=True,
        forbid_unknown_fields=True,
        omit_defaults=True,
        gc=False,
    )


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name and schema of each field, as pydantic's core checks it."""
    schema: Any = model.__pydantic_core_schema__
    named: dict[str, Any] = {}
    if schema["type"] == "definitions":
        named = {one["ref"]: one for one in schema["definitions"]}
        schema = schema["schema"]
    schema = _resolved(_resolved(schema, named)["schema"], named)
    if schema["type"] != "model-fields":
        raise Unlike(f"{model.__name__} is no plain model")
    for name, field in schema["fields"].items():
        yield name, _resolved(field["schema"], named)


def _resolved(schema: Any, named: Mapping[str, Any]) -> Any:
    """The schema itself in the place of one that refers to it, also inside of arrays."""
    while schema["type"] == "definition-ref":
        schema = named[schema["schema_ref"]]
    match schema["type"]:
        case "default":
            return {**schema, "schema": _resolved(schema["schema"], named)}
        case "tuple":
            items = [_resolved(item, named) for item in schema["items_schema"]]
            return {**schema, "items_schema": items}
        case _:
            return schema


_LIMITS = {
    "int": {"ge", "le"},
    "float": {"ge", "allow_inf_nan"},
    "str": {"pattern", "min_length", "max_length"},
    "bytes": {"min_length", "max_length"},
    "tuple": {"items_schema", "variadic_item_index", "max_length"},
    "literal": {"expected"},
    "model": {"cls", "schema", "config", "root_model", "custom_init"},
    "default": {"schema", "default"},
}
_ELSEWHERE = {"type", "metadata", "ref", "strict"}


def _type(schema: Mapping[str, Any]) -> Any:
    """The type of a field, with its limits. Fails for a limit that is not known here."""
    kind = schema["type"]
    unknown = schema.keys() - _LIMITS[kind] - _ELSEWHERE
    if unknown:
        raise Unlike(f"{kind} with {sorted(unknown)}")
    match kind:
        case "default":
            return _type(schema["schema"])
        case "model":
            return _twin(schema["cls"])
        case "literal":
            return Literal[tuple(schema["expected"])]
        case "tuple":
            if schema["variadic_item_index"] != 0:
                raise Unlike("a tuple that is no list of one kind")
            plain: Any = GenericAlias(tuple, (_type(schema["items_schema"][0]), ...))
            limits = {"max_length": schema.get("max_length")}
        case "float":
            plain, limits = float, {"ge": schema.get("ge")}
            if not schema.get("allow_inf_nan", True):
                limits = {"ge": schema.get("ge", -FLOAT_MAX), "le": FLOAT_MAX}
        case "str":
            plain = str
            limits = {name: schema.get(name) for name in ("min_length", "max_length")}
            limits["pattern"] = _pattern(schema.get("pattern"))
        case _:
            plain = {"int": int, "bytes": bytes}[kind]
            limits = {name: schema.get(name) for name in _LIMITS[kind]}
    return Annotated[plain, msgspec.Meta(**limits)]


def _pattern(pattern: str | None) -> str | None:
    """The same of Python's regular expressions, whose $ lets a line's end pass."""
    if pattern is None:
        return None
    if not (pattern.startswith("^") and pattern.endswith("$")) or "\\" in pattern:
        raise Unlike(f"the pattern {pattern}")
    return pattern[:-1] + r"\Z"


# Facts from twins: what pydantic's validation makes, without checking a second time.


@cache
def _maker(model: type[BaseModel]) -> Maker:
    """How a twin becomes the model. Its parts, one or many, become theirs."""
    parts: list[tuple[str, Maker]] = []
    many: list[tuple[str, Maker]] = []
    later: list[tuple[str, Any]] = []
    for name, schema in _fields(model):
        if schema["type"] == "default":
            later.append((name, schema["default"]))
            schema = schema["schema"]
        if schema["type"] == "model":
            parts.append((name, _maker(schema["cls"])))
        elif schema["type"] == "tuple" and schema["items_schema"][0]["type"] == "model":
            many.append((name, _maker(schema["items_schema"][0]["cls"])))
    always = model.model_fields.keys() - dict(later).keys()  # one for all: no model is changed

    def fact_of(twin: Any) -> Any:
        fields = asdict(twin)
        for name, part in parts:
            fields[name] = part(fields[name])
        for name, part in many:
            if fields[name]:
                fields[name] = tuple([part(one) for one in fields[name]])
        told = always
        for name, default in later:
            if fields[name] != default:
                told = told | {name}
        return _made(model, fields, told)

    def part_of(twin: Any) -> Any:
        return _made(model, asdict(twin), always)

    return fact_of if parts or many or later else part_of


def _made(model: type[BaseModel], fields: dict[str, Any], told: set[str]) -> BaseModel:
    fact = _new(model)
    _put_fields(fact, fields)
    _put_told(fact, told)
    _put_extra(fact, None)
    _put_private(fact, None)
    return fact


_new = object.__new__
_put_fields, _put_told, _put_extra, _put_private = (
    BaseModel.__dict__[name].__set__
    for name in (
        "__dict__",
        "__pydantic_fields_set__",
        "__pydantic_extra__",
        "__pydantic_private__",
    )
)
