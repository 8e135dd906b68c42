"""Rooms one can see across: lengths of files, functions and argument lists."""

from __future__ import annotations

import ast

from tests.tidy.house import functions_of, python_files, text_of

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
CONSTRUCTOR_ARGUMENTS_MAX = 6

FUNCTIONS = [(path, one) for path in python_files() for one in functions_of(path)]


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def arguments_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many arguments besides self."""
    given = function.args
    return len(given.posonlyargs + given.args + given.kwonlyargs) - 1


def test_a_file_fits_in_the_house() -> None:
    sizes = {path: len(text_of(path).splitlines()) for path in python_files()}
    assert {path: size for path, size in sizes.items() if size > FILE_LINES_MAX} == {}


def test_a_function_fits_on_a_screen() -> None:
    long = [
        f"{path}:{one.lineno} {one.name} has {lines_of(one)} lines"
        for path, one in FUNCTIONS
        if lines_of(one) > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_a_constructor_takes_few_arguments() -> None:
    wide = [
        f"{path}:{one.lineno} takes {arguments_of(one)} arguments"
        for path, one in FUNCTIONS
        if one.name == "__init__" and arguments_of(one) > CONSTRUCTOR_ARGUMENTS_MAX
    ]
    assert wide == []
