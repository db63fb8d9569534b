"""The lint of removed names, and its list."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lint.removed_names import LIST, refused, removed


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree with one class, one function and one module."""
    package = tmp_path / "services" / "mcpfleet" / "edge" / "calls"
    package.mkdir(parents=True)
    (package / "relay.py").write_text(
        "import x\n\n\nclass CallRelay:\n    kept = 1\n\n\nasync def relay() -> None: ...\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("place", "name", "told"),
    [
        ("mcpfleet.edge.calls", "CallRelay", "relay.py:4: the name CallRelay was removed from mcpfleet.edge.calls"),
        ("mcpfleet.edge", "relay", "relay.py:8: the name relay was removed from mcpfleet.edge"),
        ("mcpfleet.edge.calls.relay", "-", "relay.py: the module mcpfleet.edge.calls.relay was removed"),
    ],
)
def test_a_removed_name_is_refused_where_it_was_removed(tree: Path, place: str, name: str, told: str) -> None:
    assert list(refused([(place, name)], tree)) == [f"services/mcpfleet/edge/calls/{told}"]


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("mcpfleet.edge.tasks", "CallRelay"),
        ("mcpfleet.edge.calls", "kept"),
        ("mcpfleet.edge.calls", "x"),
        ("mcpfleet.edge.relay", "-"),
    ],
)
def test_a_removed_name_may_stand_elsewhere(tree: Path, place: str, name: str) -> None:
    assert list(refused([(place, name)], tree)) == []


@pytest.mark.parametrize("package", ["mcpfleet.edge.calls", "tests.unit.edge"])
def test_a_removed_name_is_refused_in_tests_as_well(tree: Path, package: str) -> None:
    tests = tree / "tests" / "unit" / "edge" / "calls"
    tests.mkdir(parents=True)
    (tests / "test_relay.py").write_text("class Relayed: ...\n")
    told = f"tests/unit/edge/calls/test_relay.py:1: the name Relayed was removed from {package}"
    assert list(refused([(package, "Relayed")], tree)) == [told]


def test_a_removed_package_is_refused(tree: Path) -> None:
    (tree / "services" / "mcpfleet" / "edge" / "calls" / "__init__.py").write_text("")
    assert len(list(refused([("mcpfleet.edge.calls", "-")], tree))) == 1


def test_the_list_names_each_once_and_nothing_of_it_is_back() -> None:
    names = removed(LIST.read_text())
    assert len(names) == len(set(names)) > 0
    assert list(refused(names)) == []
