"""observability/signals.md has every span, attribute, metric and log event of the code, and none besides."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from mcpfleet import contracts
from mcpfleet.bus.rpc import Rpc
from mcpfleet.telemetry import names
from mcpfleet.telemetry.exposition import Exposition
from tests.deploy import figures
from tests.deploy.manifests import ROOT
from tests.kit.pages import pages_of_the_guide

PAGE: Final = (ROOT / "observability" / "signals.md").read_text()
LEVELS: Final = {"debug", "info", "warning", "error", "exception", "critical"}
WRITTEN_OTHERWISE: Final = {"audit"}
"""Lines that are not logged by a logger, since each would cost too much."""


def listed(title: str) -> list[str]:
    """The first column of the table under a title."""
    return re.findall(r"^\| `([^`]+)` \|", section(title), re.MULTILINE)


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def logged() -> Iterator[str]:
    """Every event that the code logs, with `{…}` for what is filled in."""
    for root in ("services", "shared"):
        for path in sorted((ROOT / root / "mcpfleet").rglob("*.py")):
            if "testing" not in path.parts:
                yield from _logged_in(path)


def _logged_in(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    chosen = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(_is_level(part) for part in ast.walk(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    """Names of a method of the log that was chosen by a condition."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and node.args):
            continue
        if _is_level(node.func) or (isinstance(node.func, ast.Name) and node.func.id in chosen):
            text = _text(node.args[0])
            if text is not None:
                yield text


def _is_level(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in LEVELS and ast.unparse(node.value).endswith("log")


def _text(argument: ast.expr) -> str | None:
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    if isinstance(argument, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in argument.values)
    return None


def exchanges() -> set[str]:
    """The subjects of what services are asked."""
    found = set()
    for module in pkgutil.iter_modules(contracts.__path__):
        for value in vars(importlib.import_module(f"mcpfleet.contracts.{module.name}")).values():
            if isinstance(value, Rpc) and not value.subject.startswith("edge."):
                found.add(value.subject)
    return found


def test_every_span_is_listed() -> None:
    spans = {f"process {subject}" for subject in exchanges()}
    spans |= {"<method>", "tools/call <tool>", "process pool.{pool}.{definition}.call"}
    spans |= {"process hint.resource.{endpoint}.{pool}.{key}", "process hint.task.{key}"}
    spans |= {"process hint.extension.{endpoint}.{pool}.{key}"}
    spans |= {"process hint.catalog.{endpoint}", "announce", "sweep", "<command>"}
    told = set(listed("Spans"))
    assert spans <= told
    assert {each for each in told - spans if not each.startswith("process tasks.")} == set()


def test_every_attribute_is_listed() -> None:
    known = {value for name, value in vars(names).items() if name.isupper() and "." in str(value)}
    assert set(listed("Attributes")) == known


def test_every_metric_is_listed_with_its_labels() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*)\|", section("Metrics"), re.MULTILINE)
    told = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    metrics = figures.every_instrument()
    kinds = figures.types(Exposition({"any": metrics}).text().decode())
    labels = figures.exported()
    there = {name: (kind, labels[figures.series(name, kind)[0]]) for name, kind in kinds.items()}
    assert {name: each for name, each in told.items() if name in there} == there
    assert told.keys() == there.keys()


def test_every_log_event_is_listed() -> None:
    events = listed("Log events")
    assert len(set(events)) == len(events)
    assert set(events) == {*logged(), *WRITTEN_OTHERWISE}


@pytest.mark.parametrize("pages", [["observability/alerts.yaml"], ["docs/operations.md"], pages_of_the_guide()])
def test_every_log_event_that_a_page_names_exists(pages: list[str]) -> None:
    """The pages write `event` in the log, in a process's log, or logs it."""
    text = " ".join(word for page in pages for word in (ROOT / page).read_text().split())
    named = re.findall(r"`([^`]+)` in (?:the|its|an?|\w+'s?)(?: [\w']+)? logs?\b", text)
    named += re.findall(r"logs? (?:\w+ ){0,3}(?:as|says) `([^`]+)`", text)
    assert named
    assert set(named) - set(listed("Log events")) == set()
