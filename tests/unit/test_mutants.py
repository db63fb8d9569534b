"""The recorded mutants fit the tree, each rule that needs one has one, and the program tells what it found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.rules import all_tests, explained
from tests.kit.tree import ROOT
from tests.mutants.mutant import Mutant, read, stale
from tests.mutants.run import Verdict, copied, try_one

AUTHORITY = {f"X{number}" for number in range(48, 61)}
"""The rules of authority."""
CHEAP = "S2"
"""A rule whose mutant a unit test of one file finds."""


def one() -> Mutant:
    return next(mutant for mutant in read() if mutant.rule == CHEAP)


@pytest.mark.rule("X77")
def test_every_rule_of_streams_sessions_and_authority_has_a_mutant() -> None:
    needed = [each.code for each in explained() if each.code[0] in "SL" and each.code[1:].isdigit()]
    needed += [each.code for each in explained() if each.code in AUTHORITY]
    having = {mutant.rule for mutant in read()}
    assert [code for code in needed if code not in having] == []


@pytest.mark.rule("X77")
def test_no_mutant_is_stale() -> None:
    """Write a stale one anew for the code as it is: see tests/mutants/README.md."""
    assert list(stale(read(), all_tests())) == []


def test_mutants_differ_and_change_code_of_ours() -> None:
    mutants = read()
    assert len({mutant.name for mutant in mutants}) == len(mutants)
    assert [mutant.place for mutant in mutants if mutant.old == mutant.new] == []
    assert {mutant.file.split("/")[0] for mutant in mutants} <= {"services", "shared"}


def test_a_stale_mutant_is_told_with_its_place_and_what_would_be_right(tmp_path: Path) -> None:
    mutant = one()
    file = tmp_path / mutant.file
    file.parent.mkdir(parents=True)
    file.write_text(mutant.old * 2)
    [twice] = stale([mutant], all_tests(), tmp_path)
    [gone] = stale([replace(mutant, old="nowhere in the file")], all_tests())
    [foreign] = stale([replace(mutant, rule="S1")], all_tests())
    assert twice.endswith(f"{mutant.file} must have its old text once, and has it 2 times")
    assert gone.endswith("and has it 0 times")
    assert foreign.endswith(f"{mutant.test} must be a test that names S1")
    assert twice.startswith(mutant.place)


def test_an_entry_without_a_member_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "some.toml").write_text('[[mutant]]\nrule = "S1"\n')
    with pytest.raises(ValueError, match=r"some\.toml, mutant 1: it must have breaks, file, new, old, rule, test"):
        read(tmp_path)


@pytest.mark.rule("X77")
def test_a_mutant_is_found_and_a_change_that_breaks_nothing_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)  # where the forked process finds the program
    mutant = one()
    with copied() as tree:
        assert try_one(mutant, tree)[0] is Verdict.FOUND
        assert (tree / mutant.file).read_text() == (ROOT / mutant.file).read_text()
        assert try_one(replace(mutant, new=f"{mutant.old}  # the same"), tree)[0] is Verdict.SURVIVED
