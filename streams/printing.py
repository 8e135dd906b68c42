"""Text of strangers, made fit for a terminal, a log and a fact's reason. Pure.

A stranger's text may move a cursor, hide what follows or turn its direction. Nothing of that
reaches a person: each such character is written as its escape.
"""

from __future__ import annotations

SHOWN_LENGTH_MAX = 40


def printable(text: str) -> str:
    r"""The text, with an escape such as `\x1b` for each character that does more than print."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")


def shown(value: object) -> str:
    """A stranger's value, cut short and in quotes."""
    return repr(str(value)[:SHOWN_LENGTH_MAX])


def first_fault(error: Exception) -> str:
    """What was wrong with a stranger's values, in one line: of several faults the first."""
    from pydantic import ValidationError  # late: a command's help wants none of it

    if not isinstance(error, ValidationError):
        return printable(str(error))
    fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in fault["loc"])
    return printable(f"{place}: {fault['msg']}" if place else fault["msg"])


def printable_lines(text: str) -> str:
    """The same of a message that may have several lines."""
    return "\n".join(map(printable, text.split("\n")))
