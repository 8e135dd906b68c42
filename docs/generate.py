"""Writes the reference pages from the code. `make docs` runs it.

A test holds each page against what this module makes, so a page is never edited by hand.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from decodiloco import times as run_times
from decodiloco.config import Here, Run, Table, Times
from decodiloco.metrics.families import FAMILIES
from decodiloco.time_orders import FIXED, SETTINGS
from replay import times as proof_times
from replay.goodput.settings import Scenario
from replay.invariants.all_of_them import every_invariant
from streams import events, parts
from streams import times as record_times
from streams.codec import EVENT_BYTES_MAX
from streams.manifest import Manifest
from streams.times import waits_in
from tests.limits import limits_page
from tests.simulation.catching import measured
from tests.simulation.planted_bugs import BUGS, Bug

FOLDER = Path(__file__).resolve().parent / "reference"
MADE = "<!-- Made by `make docs`. Edit the code, not this page. -->\n"
COMMANDS = {"decodiloco": "decodiloco.cli", "replay": "replay.cli"}


def events_page() -> str:
    """One section a fact: what it says, who says it, its fields."""
    lines = [
        "# Events\n",
        MADE,
        "Every fact that a tape can hold. A *word* is said to an inbox by the one named, and",
        "becomes a fact when the syncer admits it; the rest is stated by the syncer alone.",
        f"An event is at most {EVENT_BYTES_MAX // 1024} KiB, a digest 32 bytes of blake3, a",
        "duration in seconds.",
        "What stands around each fact (position, previous digest, fence, writer, source, time) is",
        "in [architecture](../explanation/architecture.md#the-record).\n",
        "| event | kind | said by |",
        "|---|---|---|",
    ]
    for event in events.EVENTS:
        name = event.__name__
        lines.append(f"| [{name}](#{name.lower()}) | `{event.kind}` | {_speaker(event)} |")
    for event in events.EVENTS:
        lines += ["", f"## {event.__name__}\n", _doc(event), ""]
        lines += _fields_table(event)
    lines += ["", "## Parts\n"]
    for part in (parts.Adoption, parts.LeftOut, parts.Moments, parts.PassedOver, Manifest):
        lines += ["", f"### {part.__name__}\n", _doc(part), ""]
        lines += _fields_table(part)
    return "\n".join(lines) + "\n"


def metrics_page() -> str:
    """One row a metric, with its labels and what it means."""
    lines = [
        "# Metrics\n",
        MADE,
        "What `decodiloco exporter` serves. Every metric has the label `run`, too. A counter is",
        "of the run: an exporter that starts again tells the same. What to do when an alert on",
        "them fires: [alerts](../how-to/alerts.md).\n",
        "| metric | kind | labels | |",
        "|---|---|---|---|",
    ]
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{family.full_name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(lines) + "\n"


def config_page() -> str:
    """One table a section of the TOML, every setting with its default."""
    lines = [
        "# Config\n",
        MADE,
        "One TOML file describes a run. `[run]` is the same for everybody, and its digest stands",
        "in the run's opening; `[here]` belongs to one machine and is never hashed. Any setting",
        "can be given at the door: `--set outer.lr=0.4`, `--set here.region=eu`.",
        "An unknown setting is refused, with the nearest known one.\n",
    ]
    for path, table in (("run", Run), ("here", Here)):
        lines += _settings(path, table)
    return "\n".join(lines).rstrip() + "\n"


def goodput_page() -> str:
    """One table for each part of the simulated cluster, every setting with its default."""
    lines = [
        "# Settings of replay goodput\n",
        MADE,
        "Given as `--set costs.up_seconds=25`. What they mean together is in",
        "[Goodput](../explanation/goodput.md).\n",
    ]
    for name, field in Scenario.model_fields.items():
        lines += _settings(name, type(field.get_default()))
    return "\n".join(lines).rstrip() + "\n"


def commands_page() -> str:
    """Every command and its options, from the command line apps."""
    lines = [
        "# Commands\n",
        MADE,
        "Exit codes: 0 agreed, 1 differed or an invariant broke, 2 asked wrongly, 3 trouble",
        "outside (server or store unreachable). `RUN` is a run folder, a `run.toml` or",
        "`nats://host:port/run`; `TAPE` is one of these or a tape file.\n",
    ]
    for name, module in COMMANDS.items():
        lines += [f"## {name}\n"]
        for path, command in _commands(name, _app(module)):
            lines += [f"### {path}\n", _help(command), ""]
            lines += _options(command)
    return "\n".join(lines).rstrip() + "\n"


def invariants_page() -> str:
    """Every invariant, in the words of the design."""
    lines = [
        "# Invariants\n",
        MADE,
        "What holds for every run. `replay simulate` checks them while a seeded world runs,",
        "`replay verify --invariants` over a recorded run; both tell how often each was checked.",
        "The last five are checked in worlds alone: they ask what a tape does not tell.\n",
        "| invariant | says |",
        "|---|---|",
    ]
    lines += [f"| {one.name} | {one.says()} |" for one in every_invariant()]
    return "\n".join(lines) + "\n"


def times_page() -> str:
    """Every wait of each layer, what is derived, and the orders that hold."""
    lines = [
        "# Times\n",
        MADE,
        "Every wait and time-out, each in one place: what is waited for, and what comes when that",
        "does not. What a run may set is under [run.times](config.md#runtimes); a value that",
        "follows from a setting is never set by itself.\n",
        "## Derived from heartbeat and takeover\n",
        "| wait | by default | is | |",
        "|---|---|---|---|",
    ]
    defaults = Times()
    for derived in run_times.DERIVED:
        name = derived.seconds.__name__
        seconds = f"{derived.seconds(defaults):g} s"
        lines.append(f"| `{name}` | {seconds} | {derived.formula} | {_doc(derived.seconds)} |")
    for title, module in (
        ("A run (`decodiloco/times.py`)", run_times),
        ("The record (`streams/times.py`)", record_times),
        ("The proof (`replay/times.py`)", proof_times),
    ):
        lines += ["", f"## {title}\n", "| wait | seconds | for | then |", "|---|---|---|---|"]
        lines += [
            f"| `{name}` | {wait:,g} | {wait.waits_for} | {wait.then} |"
            for name, wait in waits_in(vars(module)).items()
        ]
    lines += [
        "",
        "## Orders\n",
        "The first of each pair is never the longer one. The first three are settings: a config",
        "that breaks one is refused, with both values. The rest hold for every config, by test.",
        "What keeps its order and wastes work all the same is told by `decodiloco doctor`.\n",
        "| not longer | than | because |",
        "|---|---|---|",
    ]
    lines += [
        f"| {order.less.name} | {order.more.name} | {order.why} |" for order in (*SETTINGS, *FIXED)
    ]
    return "\n".join(lines) + "\n"


def planted_bugs_page() -> str:
    """Every planted fault, who notices it, and within how many seeds."""
    lines = [
        "# Planted bugs\n",
        MADE,
        "Faults that tests put into the production machines on purpose",
        "(`tests/simulation/planted_bugs.py`). Each must be caught by the",
        "[invariant](invariants.md) named beside it, in a seeded world of some 40 merges. `seeds`:",
        "how many were needed when it was measured last (`python -m tests.simulation.catching`),",
        "and how many it may need; they begin with seed 1, or the one that is told.\n",
        "| bug | what is wrong | caught by | seeds |",
        "|---|---|---|---|",
    ]
    needed = measured()
    lines += [
        f"| {name} | {bug.says} | {bug.invariant} | {_seeds(bug, needed.get(name, 0))} |"
        for name, bug in BUGS.items()
    ]
    return "\n".join(lines) + "\n"


def _seeds(bug: Bug, needed: int) -> str:
    first = "" if bug.first_seed == 1 else f", from seed {bug.first_seed}"
    return f"{needed} of at most {bug.seeds_max}{first}"


PAGES: dict[str, Callable[[], str]] = {
    "events": events_page,
    "config": config_page,
    "commands": commands_page,
    "goodput": goodput_page,
    "times": times_page,
    "limits": lambda: f"# Limits\n\n{MADE}\n{limits_page()}",
    "invariants": invariants_page,
    "metrics": metrics_page,
    "planted-bugs": planted_bugs_page,
}


def _doc(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


def _speaker(event: type[events.Fact]) -> str:
    if event not in events.WORDS:
        return "syncer"
    if "speaker" not in event.model_fields:
        return "learner (word)"
    who = {"EvaluationReported": "evaluator", "HardshipInjected": "injector"}
    return f"{who.get(event.__name__, 'operator, syncer')} (word)"


def _fields_table(model: type[BaseModel]) -> list[str]:
    schema = model.model_json_schema()["properties"]
    rows = [
        f"| `{name}` | {_type(schema[name], field.annotation)} |"
        for name, field in model.model_fields.items()
    ]
    return ["| field | type |", "|---|---|", *rows]


def _type(schema: dict[str, Any], annotation: Any) -> str:
    """A field's type in words, with its bounds where they say something."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    match schema["type"]:
        case "array":
            inner = _type(schema["items"], None)
            return f"at most {schema['maxItems']} of: {inner}"
        case "integer":
            return "integer, signed" if schema["minimum"] < 0 else "count"
        case "number":
            return "number, 0 or more" if schema.get("minimum") == 0 else "number"
        case "string" if annotation is bytes:
            shortest, longest = schema.get("minLength", 0), schema["maxLength"]
            return f"{longest} bytes" if shortest == longest else f"bytes, at most {longest}"
        case "string" if "maxLength" in schema:
            return f"text, at most {schema['maxLength']}"
        case "string":
            return "id"
    return str(schema["type"])


def _settings(path: str, table: type[Table]) -> list[str]:
    inner: list[str] = []
    rows = []
    for name, field in table.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Table):
            inner += _settings(f"{path}.{name}", kind)
            continue
        default = "needed" if field.is_required() else f"`{_toml(field.get_default())}`"
        allowed = _allowed(table, name)
        rows.append(f"| `{name}` | {default} | {allowed} | {field.description} |")
    head = [f"## [{path}]\n", _doc(table), ""]
    return [*head, "| setting | default | allowed | |", "|---|---|---|---|", *rows, "", *inner]


def _allowed(table: type[Table], name: str) -> str:
    schema = table.model_json_schema()["properties"][name]
    choices = [_bounds(choice) for choice in schema.get("anyOf", [schema])]
    return ", ".join(choice for choice in choices if choice)


def _bounds(schema: dict[str, Any]) -> str:
    """What one alternative of a setting allows."""
    if schema.get("type") == "null":
        return "left out"
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema["type"] == "array":
        what = "ids" if schema["items"].get("type") == "string" else "numbers"
        return f"{schema['minItems']} to {schema['maxItems']} {what}"
    if schema["type"] == "boolean":
        return "`true`, `false`"
    if schema["type"] == "string":
        return "id" if "pattern" in schema else "text"
    noun = "whole" if schema["type"] == "integer" else "number"
    bounds = [
        f"{sign} {_plain(schema[key])}"
        for key, sign in (
            ("minimum", "≥"),
            ("exclusiveMinimum", ">"),
            ("maximum", "≤"),
            ("exclusiveMaximum", "<"),
        )
        if key in schema and schema[key] < 2**53
    ]
    return " ".join([noun, ", ".join(bounds)]).strip()


def _plain(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


def _toml(value: Any) -> str:
    match value:
        case None:
            return "left out"
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case tuple():
            return "[" + ", ".join(_toml(item) for item in value) + "]"
        case _:
            return str(value)


def _app(module: str) -> Any:
    """The command line app of a module as a tree of commands; None while there is none."""
    if importlib.util.find_spec(module) is None:
        return None
    from typer.main import get_command

    return get_command(importlib.import_module(module).app)


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    if command is None:
        return
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, one in inner.items():
        if not one.hidden:
            yield from _commands(f"{path} {name}", one)


def _help(command: Any) -> str:
    return inspect.cleandoc(command.help or "").split("\f")[0].strip()


def _options(command: Any) -> list[str]:
    rows = []
    for option in command.params:
        if option.name in ("help", "install_completion", "show_completion"):
            continue
        names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        if option.param_type_name == "argument":
            names = f"`{option.name.upper()}`"
        told = " ".join((getattr(option, "help", None) or "").split())
        rows.append(f"| {names} | {_default(option)} | {told} |".replace("  ", " "))
    if not rows:
        return []
    return ["| option | default | |", "|---|---|---|", *rows, ""]


def _default(option: Any) -> str:
    if option.required:
        return "needed"
    default = option.default
    if default is None or callable(default) or default in ((), [], False):
        return ""
    return f"`{default}`" if isinstance(default, str | int | float | Path) else ""


def main() -> None:
    """Writes every page."""
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / f"{name}.md").write_text(page(), encoding="utf-8")
        print(f"docs/reference/{name}.md")


if __name__ == "__main__":
    main()
