"""Nothing of one machine in what everybody gets."""

from __future__ import annotations

import re

from tests.tidy.house import text_of, tracked

THIS = "tests/tidy/test_tracked.py"

OF_A_MACHINE = re.compile(
    r"/work/|/home/\w|/root\b|/Users/\w|/opt/(pypi|wheels)|[A-Z]:\\\\"
    r"|\bpypi\.org|files\.pythonhosted\.org|download\.pytorch\.org|extra-index-url"
    r"|BEGIN [A-Z ]*PRIVATE KEY|AKIA[0-9A-Z]{16}"
)


def test_no_file_names_a_machine_a_registry_or_a_secret() -> None:
    bad = [
        f"{path}:{number} {hit.group()}"
        for path in tracked()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if path != THIS and (hit := OF_A_MACHINE.search(line))
    ]
    assert bad == []


def test_the_constraints_pin_releases_and_nothing_else() -> None:
    for line in text_of("constraints.txt").splitlines():
        assert line.startswith("#") or re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line), line
