"""Hooks of pytest that write down which rules a run of tests showed: `pytest --record-rules FILE`.

A rule is shown by a test that names it and passed whole, its fixtures' ends too. A record says of which tree it is, so
that `tests.lint.shown_rules` takes none of an older one.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

from tests.kit.tree import ROOT, committed

_OPTION: Final = "--record-rules"
_PROPERTY: Final = "rule"
"""The property of a report that carries a test's rules from a worker of xdist."""


def digest_of_tree(root: Path = ROOT) -> str:
    """A digest of every file that git has, or would take: 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for name in committed(root):
        path = root / name
        digest.update(f"{name}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes() if path.is_file() else b"").digest())
    return digest.hexdigest()


class Recorder:
    """Gathers the rules of the tests that passed in one run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._path.unlink(missing_ok=True)
        self._tree = digest_of_tree()
        self._rules: dict[str, list[str]] = {}
        self._passed: set[str] = set()
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or hasattr(report, "wasxfail"):
            self._failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self._passed.add(report.nodeid)
            self._rules[report.nodeid] = [str(value) for name, value in report.user_properties if name == _PROPERTY]

    def pytest_sessionfinish(self) -> None:
        """Write the record, which is whole or absent."""
        shown: dict[str, list[str]] = defaultdict(list)
        for test in sorted(self._passed - self._failed):
            for rule in self._rules[test]:
                shown[rule].append(test)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        being_written = self._path.with_suffix(".new")
        being_written.write_text(json.dumps({"tree": self._tree, "shown": shown}, indent=1))
        being_written.replace(self._path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, type=Path, help="write the rules that tests showed to this file", metavar="FILE")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption(_OPTION)
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(path), "recorder of rules")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let each report carry the rules of its test."""
    rules = {str(rule): None for mark in item.iter_markers("rule") for rule in mark.args}
    item.user_properties.extend((_PROPERTY, rule) for rule in rules)
