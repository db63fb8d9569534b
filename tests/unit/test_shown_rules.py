"""Which rules the tests of a run showed: the records of runs, and the step that judges them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.kit.passed import digest_of_tree
from tests.kit.rules import MarkedTest, explained
from tests.kit.tree import ROOT
from tests.lint.shown_rules import missing, take


@pytest.mark.rule("X77")
def test_a_record_has_the_rules_of_tests_that_passed_whole(tmp_path: Path) -> None:
    """It comes over xdist; a test whose fixture fails at its end shows nothing."""
    source = """
        import pytest

        @pytest.fixture
        def leaking():
            yield
            assert False

        @pytest.mark.rule("L13", "L14")
        def test_a(): ...

        @pytest.mark.rule("S1")
        def test_b(): assert False

        @pytest.mark.rule("S2")
        def test_c(): pytest.skip("here")

        @pytest.mark.rule("S3")
        @pytest.mark.xfail
        def test_d(): ...

        @pytest.mark.rule("S4")
        def test_e(leaking): ...

        @pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.rule("S5")), 2])
        def test_f(n): ...
    """
    hooks = "from tests.kit.passed import pytest_addoption, pytest_configure, pytest_itemcollected"
    (tmp_path / "conftest.py").write_text(hooks)
    (tmp_path / "test_some.py").write_text(dedent(source))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = rule: of a test\naddopts = -p no:cacheprovider\n")
    record = tmp_path / "record.json"
    command = [sys.executable, "-m", "pytest", "-p", "no:asyncio", "-n", "1", "--record-rules", str(record)]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert set(json.loads(record.read_text())["shown"]) == {"L13", "L14", "S5"}


@pytest.mark.rule("X77")
def test_records_of_another_tree_and_absent_ones_are_not_taken(tmp_path: Path) -> None:
    now, older, absent = (tmp_path / name for name in ("now.json", "older.json", "absent.json"))
    now.write_text(json.dumps({"tree": "b", "shown": {"L13": ["test_a"]}}))
    older.write_text(json.dumps({"tree": "a", "shown": {"L14": ["test_b"]}}))
    taken = take([now, older, absent], "b")
    assert taken.shown == {"L13"}
    assert [each.partition(":")[0] for each in taken.refused] == [str(older), str(absent)]


@pytest.mark.rule("X77")
def test_a_rule_that_nothing_showed_is_told_with_its_place_and_its_tests(tmp_path: Path) -> None:
    (tmp_path / "rules.md").write_text("| L13 | a |\n| L14 | b |\n| L15 | c |\n")
    tests = [MarkedTest("tests/test_a.py", "test_a", 7, ("L14",))]
    assert list(missing(explained(tmp_path), tests, frozenset({"L13"}))) == [
        "docs/rules.md:2: L14 is not shown; the tests that name it did not pass here: tests/test_a.py:7",
        'docs/rules.md:3: L15 is not shown; no test has @pytest.mark.rule("L15"), and no vector names it',
    ]


@pytest.mark.rule("X77")
def test_a_tree_is_another_once_any_file_is(tmp_path: Path) -> None:
    shutil.copy(ROOT / ".gitignore", tmp_path)
    for command in (["git", "init", "-q"], ["git", "add", "-A"]):
        subprocess.run(command, cwd=tmp_path, check=True)
    first = digest_of_tree(tmp_path)
    (tmp_path / "new.py").write_text("")
    second = digest_of_tree(tmp_path)
    (tmp_path / ".coverage").write_text("ignored")
    assert first != second == digest_of_tree(tmp_path)
