"""Rooms one can see across: lengths of files, functions and argument lists."""

from __future__ import annotations

import pytest

from tests.tidy.house import functions_of, python_files, text_of

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
CONSTRUCTOR_ARGUMENTS_MAX = 6


@pytest.mark.parametrize("path", python_files())
def test_a_file_fits_in_the_house(path: str) -> None:
    lines = len(text_of(path).splitlines())
    assert lines <= FILE_LINES_MAX, f"{path} has {lines} lines: redraw it"


@pytest.mark.parametrize("path", python_files())
def test_a_function_fits_on_a_screen(path: str) -> None:
    long = [
        f"{path}:{one.lineno} {one.name} has {one.end_lineno - one.lineno + 1} lines"
        for one in functions_of(path)
        if one.end_lineno is not None and one.end_lineno - one.lineno >= FUNCTION_LINES_MAX
    ]
    assert long == []


@pytest.mark.parametrize("path", python_files())
def test_a_constructor_takes_few_arguments(path: str) -> None:
    wide = [
        f"{path}:{one.lineno} takes {count} arguments"
        for one in functions_of(path)
        if one.name == "__init__"
        and (count := len(one.args.posonlyargs + one.args.args + one.args.kwonlyargs) - 1)
        > CONSTRUCTOR_ARGUMENTS_MAX
    ]
    assert wide == []
