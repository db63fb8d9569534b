"""The rules that the pages of `docs` explain, and the tests and vectors that name them.

A rule's code stands in the first column of a table: `| L13 | …`. In the table of invariants it is a number; a test
names it as `invariant 6`. Only `@pytest.mark.rule("L13")` or a vector's `rules` name a rule.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.kit.tree import ROOT, python_files

CODE: Final = r"(?:SEP-[1-9][0-9]*|[A-Z][1-9][0-9]{0,2})"
_ROW: Final = re.compile(rf"^\| ({CODE}|[1-9][0-9]?) \|")
_INVARIANTS: Final = "## Invariants"
_VECTORS: Final = ROOT / "tests" / "vectors"
_DOES_NOT_RUN: Final = {"skip", "xfail"}
"""Marks of tests that show nothing."""


@dataclass(frozen=True)
class Explained:
    """Where a page explains a rule."""

    code: str
    page: str
    line: int


def explained(folder: Path = ROOT / "docs") -> list[Explained]:
    """The rules of the pages in a folder, in their order, also those that are explained twice."""
    return [each for page in sorted(folder.glob("*.md")) for each in _of_page(page)]


def _of_page(page: Path) -> Iterator[Explained]:
    heading = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("## "):
            heading = line
        elif row := _ROW.match(line):
            if not row[1].isdigit():
                yield Explained(row[1], page.name, number)
            elif heading == _INVARIANTS:
                yield Explained(f"invariant {row[1]}", page.name, number)


@dataclass(frozen=True)
class MarkedTest:
    """A test function with the rules that it shows. A test that is skipped, or must fail, shows none."""

    path: str
    name: str
    line: int
    rules: tuple[str, ...]

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"


def marked_in(source: str, path: str) -> Iterator[MarkedTest]:
    """The tests of a file. Marks of the whole file count for each; names and docstrings do not."""
    tree = ast.parse(source)
    of_file = [
        mark
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        for mark in _marks_of(node.value)
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            marks = [*of_file, *(mark for decorator in node.decorator_list for mark in _marks_of(decorator))]
            runs = _DOES_NOT_RUN.isdisjoint(name for name, _ in marks)
            rules = tuple(rule for name, rules in marks if name == "rule" for rule in rules) if runs else ()
            yield MarkedTest(path, node.name, node.lineno, rules)


def _marks_of(expression: ast.expr) -> list[tuple[str, list[str]]]:
    """The marks in a decorator, also of parameters, with their texts."""
    calls = {id(node.func): node for node in ast.walk(expression) if isinstance(node, ast.Call)}
    return [
        (node.attr, [str(each.value) for each in call.args if isinstance(each, ast.Constant)] if call else [])
        for node in ast.walk(expression)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest.mark"
        for call in [calls.get(id(node))]
    ]


@cache
def all_tests() -> list[MarkedTest]:
    """The tests of every file."""
    files = [path for path in python_files("tests") if path.name.startswith("test_")]
    return [test for path in files for test in marked_in(path.read_text(), str(path.relative_to(ROOT)))]


@cache
def vectors() -> list[dict[str, Any]]:
    """Every vector of every file."""
    files = sorted(_VECTORS.glob("*.json"))
    return [vector for path in files for vector in json.loads(path.read_text())["vectors"]]
