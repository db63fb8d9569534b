"""Every rule of docs/rules.md is shown by a test or a vector, and so is every row of the table of errors."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.kit.tree import ROOT, python_files

TESTS = ROOT / "tests"
RULES_PAGE = ROOT / "docs" / "rules.md"
LAST = {"D": 19, "I": 6, "K": 32, "L": 24, "M": 91, "P": 11, "S": 23, "T": 43}
"""The last number of each letter. The page explains all numbers up to it."""
NUMBERS = (2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 26)
"""The rules of numbers, which have gaps."""
OF_PIPES = (24, 25, 28, 32)
"""The rules of servers that clients start, which have gaps too."""
EXTENSIONS = 77
"""The last rule of extensions, which have gaps too: the page explains those that are built."""
EXPLAINED = re.compile(r"^\| ([BDIKLMNPSTX][1-9][0-9]?) \|", re.MULTILINE)
RULES = EXPLAINED.findall(RULES_PAGE.read_text())

TEST_FILES = [path for path in python_files("tests") if path.name.startswith("test_")]
NAMED = re.compile(r"test((?:_[bdiklmnpstx][1-9][0-9]?)+)(?=_|$)")
"""The rules that a test's name begins with: `test_s3_n6_…`."""
DOES_NOT_RUN = {"skip", "xfail"}
"""Marks of tests that show nothing."""

UNTESTED: dict[str, str] = json.loads(Path(__file__).with_name("untested_rules.json").read_text())
"""Rules without a test, each with the reason."""
ROWS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("error_rows.json").read_text())
"""The rows of the error table by short names: what each answers, and what shows it beside vectors."""


CITED = re.compile(r"(?<![A-Za-z0-9`])([BDIKLMNPSTX][1-9][0-9]?)(?![0-9A-Za-z_])")
"""A rule, as comments and docstrings cite it."""


def vectors() -> list[dict[str, Any]]:
    files = sorted((TESTS / "vectors").glob("*.json"))
    return [vector for path in files for vector in json.loads(path.read_text())["vectors"]]


def covered_by(source: str) -> set[str]:
    """The rules that the tests of a file show: by the codes that names begin with, and by `pytest.mark.rule`.

    A rule that a docstring or a comment mentions is not shown by that.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            marks = [mark for decorator in node.decorator_list for mark in marks_of(decorator)]
            if DOES_NOT_RUN.isdisjoint(name for name, _ in marks):
                begins = NAMED.match(node.name)
                found.update(begins[1].upper().split("_")[1:] if begins else [])
                found.update(rule for name, rules in marks if name == "rule" for rule in rules)
    return found


def marks_of(decorator: ast.expr) -> list[tuple[str, list[str]]]:
    """The marks in a decorator, also of parameters, with their texts."""
    calls = {id(node.func): node for node in ast.walk(decorator) if isinstance(node, ast.Call)}
    return [
        (node.attr, [str(each.value) for each in call.args if isinstance(each, ast.Constant)] if call else [])
        for node in ast.walk(decorator)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest.mark"
        for call in [calls.get(id(node))]
    ]


def covered() -> set[str]:
    """The rules that tests or vectors show."""
    found = {rule for vector in vectors() for rule in vector["rules"]}
    return found.union(*(covered_by(path.read_text()) for path in TEST_FILES))


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        ("def test_t3_x(): ...", {"T3"}),
        ("async def test_s3_n6_x(): ...", {"S3", "N6"}),
        ("@pytest.mark.rule('L13', 'L14')\ndef test_l9_x(): ...", {"L9", "L13", "L14"}),
        (
            "@pytest.mark.parametrize('a', [pytest.param(1, marks=pytest.mark.rule('M26'))])\ndef test_x(a): ...",
            {"M26"},
        ),
        ("@pytest.mark.skip\ndef test_t3_x(): ...", set()),
        ("@pytest.mark.xfail(reason='T4')\ndef test_t3_x(): ...", set()),
        ("def test_x():\n    '''T3, test_t3_x.'''", set()),
        ("def test_of_t3_x(): ...", set()),
        ("def helper_t3_x(): ...  # T3", set()),
        ("@pytest.mark.parametrize('a', [pytest.param(1, id='T3')])\ndef test_x(a): ...", set()),
    ],
)
def test_a_rule_is_shown_by_names_and_marks_and_by_no_docstring(source: str, rules: set[str]) -> None:
    assert covered_by(source) == rules


def test_the_page_explains_every_rule_up_to_the_last_once() -> None:
    assert len(RULES) == len(set(RULES))
    numbered = {f"{letter}{number}" for letter, last in LAST.items() for number in range(1, last + 1)}
    gapped = (("N", NUMBERS), ("B", OF_PIPES))
    extensions = {f"X{number}" for number in range(1, EXTENSIONS + 1)} & set(RULES)
    fixed = {f"{letter}{number}" for letter, numbers in gapped for number in numbers}
    assert set(RULES) == numbered | fixed | extensions


def test_every_rule_that_is_cited_is_explained() -> None:
    """A reader of the code finds its codes in docs/rules.md."""
    texts = [path.read_text() for path in python_files("services", "shared", "tests")]
    cited = {rule for text in texts for rule in CITED.findall(text)} | covered()
    assert cited - set(RULES) == set()


def test_every_rule_is_shown_by_a_test_or_is_listed_as_untested() -> None:
    known = covered()
    assert [rule for rule in RULES if rule not in known] == [rule for rule in RULES if rule in UNTESTED]


def test_every_rule_that_is_untested_says_why() -> None:
    assert [rule for rule, why in UNTESTED.items() if len(why) < 20 or rule not in RULES] == []


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
