"""Every rule of the door, of calls and of listen streams is named by a test or a vector; so is every row of errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.kit.tree import ROOT, python_files

TESTS = ROOT / "tests"
LAST = {"T": 38, "P": 11, "M": 87, "S": 23, "K": 30, "I": 5, "L": 24}
NUMBERS = ("N2", "N3", "N4", "N5", "N6", "N7", "N8", "N10", "N11", "N12", "N13", "N14", "N15", "N16", "N17")
RULES = [f"{letter}{number}" for letter, last in LAST.items() for number in range(1, last + 1)]
RULES += [*NUMBERS, "D8", "D9", "D11"]
CODE = re.compile(r"(?<![A-Za-z0-9])([TPMSNKIDL])([1-9][0-9]?)(?![0-9A-Za-z_])|_([tpmsnkidl])([1-9][0-9]?)_")

UNTESTED: dict[str, str] = json.loads(Path(__file__).with_name("untested_rules.json").read_text())
"""Rules without a test, each with the reason."""
ROWS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("error_rows.json").read_text())
"""The rows of the error table by short names: what each answers, and what shows it beside vectors."""


CITED = re.compile(r"(?<![A-Za-z0-9`])([DIKLMNPST])([1-9][0-9]?)(?![0-9A-Za-z_])|def test_([diklmnpst])([1-9][0-9]?)_")
"""A rule, as comments and docstrings cite it, and as the name of a test begins."""
EXPLAINED = re.compile(r"^\| ([DIKLMNPST][1-9][0-9]?) \|", re.MULTILINE)


def vectors() -> list[dict[str, Any]]:
    files = sorted((TESTS / "vectors").glob("*.json"))
    return [vector for path in files for vector in json.loads(path.read_text())["vectors"]]


def named() -> set[str]:
    """The rules that tests name in their names, docstrings and parameters, and vectors among their rules."""
    found = {rule for vector in vectors() for rule in vector["rules"]}
    for path in python_files("tests"):
        if path != Path(__file__):
            for match in CODE.finditer(path.read_text()):
                found.add((match[1] or match[3]).upper() + (match[2] or match[4]))
    return found


def test_every_rule_that_is_cited_is_explained() -> None:
    """A reader of the code finds its codes in docs/rules.md."""
    explained = set(EXPLAINED.findall((ROOT / "docs" / "rules.md").read_text()))
    cited = {
        (match[1] or match[3]).upper() + (match[2] or match[4])
        for path in python_files("services", "shared", "tests")
        for match in CITED.finditer(path.read_text())
    }
    assert cited - explained == set()


def test_every_rule_is_named_by_a_test_or_is_listed_as_untested() -> None:
    known = named()
    missing = [rule for rule in RULES if rule not in known]
    assert missing == [rule for rule in RULES if rule in UNTESTED]


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
