"""Every rule of `docs/*.md` is named by a test or a vector, and every row of the table of errors is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.kit.rules import CODE, all_tests, explained, marked_in, vectors
from tests.kit.tree import ROOT, python_files

RULES = [rule.code for rule in explained()]
ROWS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("error_rows.json").read_text())
"""The rows of the error table by short names: what each answers, and what shows it beside vectors."""
NAMED = re.compile(rf"test(?:_(?:{CODE}))+(?=_|$)", re.IGNORECASE)
"""A test's name that begins with codes."""
LETTERS = "".join(sorted({rule[0] for rule in RULES if rule[1].isdigit()}))
CITED = re.compile(rf"(?<![A-Za-z0-9`])([{LETTERS}][1-9][0-9]?)(?![0-9A-Za-z_])")
"""A rule, as comments and docstrings cite it."""


def named() -> set[str]:
    """The rules that tests or vectors name."""
    return {rule for vector in vectors() for rule in vector["rules"]} | {
        rule for test in all_tests() for rule in test.rules
    }


@pytest.mark.rule("X77")
@pytest.mark.parametrize(
    ("source", "rules"),
    [
        ("@pytest.mark.rule('L13', 'L14')\ndef test_x(): ...", ["L13", "L14"]),
        ("@pytest.mark.rule('invariant 6')\nasync def test_x(): ...", ["invariant 6"]),
        (
            "@pytest.mark.parametrize('a', [pytest.param(1, marks=pytest.mark.rule('M26'))])\ndef test_x(a): ...",
            ["M26"],
        ),
        ("pytestmark = pytest.mark.rule('M26')\ndef test_x(): ...", ["M26"]),
        ("def test_t3_x(): ...", []),
        ("@pytest.mark.skip\n@pytest.mark.rule('T3')\ndef test_x(): ...", []),
        ("@pytest.mark.xfail(reason='T4')\n@pytest.mark.rule('T3')\ndef test_x(): ...", []),
        ("def test_x():\n    '''T3, test_t3_x.'''", []),
        ("@pytest.mark.parametrize('a', [pytest.param(1, id='T3')])\ndef test_x(a): ...", []),
    ],
)
def test_a_rule_is_shown_by_marks_and_by_no_name_or_docstring(source: str, rules: list[str]) -> None:
    assert [rule for test in marked_in(source, "test_it.py") for rule in test.rules] == rules


@pytest.mark.rule("X77")
def test_rules_are_read_from_the_tables_of_every_page(tmp_path: Path) -> None:
    (tmp_path / "rules.md").write_text("## X\n| X20 | a | ours |\nX9\n## Groups\n| 4 | b |\n## Invariants\n| 4 | c |\n")
    (tmp_path / "events.md").write_text("| E1 | d |\n| SEP-2164 | e |\n")
    assert [rule.code for rule in explained(tmp_path)] == ["E1", "SEP-2164", "X20", "invariant 4"]


def test_a_rule_is_explained_once() -> None:
    assert sorted(RULES) == sorted(set(RULES))


def test_every_rule_that_is_cited_is_explained() -> None:
    """A reader of the code finds its codes in the documentation."""
    texts = [path.read_text() for path in python_files("services", "shared", "tests")]
    cited = {rule for text in texts for rule in CITED.findall(text)} | named()
    assert cited - set(RULES) == set()


@pytest.mark.rule("X77")
def test_every_rule_is_named_by_a_test_or_a_vector() -> None:
    """Give the test that shows it `@pytest.mark.rule`."""
    known = named()
    assert [rule for rule in RULES if rule not in known] == []


def test_no_name_of_a_test_begins_with_a_code() -> None:
    """The mark alone says it, once."""
    assert [f"{test.where}: {test.name}" for test in all_tests() if NAMED.match(test.name)] == []


@pytest.mark.parametrize("row", ROWS)
def test_every_row_of_the_error_table_is_shown(row: str) -> None:
    """By a vector, by tests that exist, or by a reason why not."""
    shown = any(vector.get("row") == row for vector in vectors())
    tests = ROWS[row].get("tests", [])
    for test in tests:
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), test
    assert shown or tests or len(ROWS[row].get("untested", "")) >= 20


def test_a_vector_of_a_row_has_its_status_and_code() -> None:
    wrong = []
    for vector in vectors():
        row = ROWS.get(vector.get("row", ""), {}) if "row" in vector else None
        if row is None:
            continue
        expected = vector["expect"]
        code = expected["body"].get("error", {}).get("code") if expected["body"] else None
        if expected["status"] != row.get("http") or code not in row.get("codes", [None]):
            wrong.append(vector["name"])
    assert wrong == []
