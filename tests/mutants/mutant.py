"""Small changes that break a rule, each with the test that finds it: as data, in the files beside this one."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from tests.kit.rules import MarkedTest, vectors
from tests.kit.tree import ROOT

HERE: Final = Path(__file__).parent
_REPLAY: Final = "tests/vectors/test_replay.py::test_over_http_1["
"""The test that replays a vector: its parameter is the vector's file and name."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A change of one place in one file, after which a test of the rule must fail."""

    rule: str
    breaks: str
    """The behaviour that the change breaks, in a few words."""
    file: str
    old: str
    """Text that the file has once."""
    new: str
    test: str
    """The test that finds it, by pytest's id: `tests/…/test_x.py::test_name`."""
    place: str
    """The mutant's file and number, for messages."""

    @property
    def name(self) -> str:
        return f"{self.rule}: {self.breaks}"

    def changed(self, text: str) -> str:
        """Return the file's text with the change."""
        return text.replace(self.old, self.new, 1)


def read(folder: Path = HERE) -> list[Mutant]:
    """Read every mutant.

    Raises:
        ValueError: an entry lacks a member or has an unknown one.
    """
    found = []
    members = {field.name for field in fields(Mutant)} - {"place"}
    for path in sorted(folder.glob("*.toml")):
        for number, entry in enumerate(tomllib.loads(path.read_text())["mutant"], 1):
            place = f"{path.name}, mutant {number}"
            if entry.keys() != members:
                raise ValueError(f"{place}: it must have {', '.join(sorted(members))}, and no other member")
            found.append(Mutant(**entry, place=place))
    return found


def stale(mutants: Sequence[Mutant], tests: Sequence[MarkedTest], root: Path = ROOT) -> Iterator[str]:
    """Say which mutants do not fit the tree any more, and what would be right."""
    marked = {f"{test.path}::{test.name}": test.rules for test in tests}
    for mutant in mutants:
        path = root / mutant.file
        times = path.read_text().count(mutant.old) if path.is_file() else 0
        if times != 1:
            yield f"{mutant.place} ({mutant.name}): {mutant.file} must have its old text once, and has it {times} times"
        if mutant.test.startswith(_REPLAY):
            shows = mutant.rule in _rules_of_vector(mutant.test.removeprefix(_REPLAY).removesuffix("]"))
        else:
            shows = mutant.rule in marked.get(mutant.test.partition("[")[0], ())
        if not shows:
            yield f"{mutant.place} ({mutant.name}): {mutant.test} must be a test that names {mutant.rule}"


def _rules_of_vector(shown: str) -> list[str]:
    """The rules of a vector, which is given as `file: name`."""
    name = shown.partition(": ")[2]
    return [rule for vector in vectors() if vector["name"] == name for rule in vector["rules"]]
