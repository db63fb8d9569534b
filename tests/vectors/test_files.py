"""The files of vectors are what `groups` makes of them, and say what a reader of them needs."""

from __future__ import annotations

import json

import pytest

from tests.vectors.groups.every import GROUPS
from tests.vectors.making import HERE, Group


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_a_file_is_what_its_group_makes(group: Group) -> None:
    """Write them again by `python -m tests.vectors.making`."""
    assert (HERE / f"{group.name}.json").read_text() == group.text()


def test_no_file_is_left_over() -> None:
    assert {path.stem for path in HERE.glob("*.json")} == {group.name for group in GROUPS}


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_names_are_unique_and_every_vector_names_a_rule(group: Group) -> None:
    names = [vector["name"] for vector in group.vectors]
    assert len(set(names)) == len(names)
    assert [vector["name"] for vector in group.vectors if not vector["rules"]] == []


def test_every_group_is_told_in_the_readme() -> None:
    readme = (HERE / "README.md").read_text()
    assert [group.name for group in GROUPS if f"`{group.name}.json`" not in readme] == []
    assert all(json.loads(group.text())["about"] for group in GROUPS)
