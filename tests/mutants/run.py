"""Makes each mutant in a copy of the code, and runs the test that must find it: `python -m tests.mutants.run [RULE…]`.

First all these tests must pass without a mutant. A mutant whose test passes has survived: the test does not show the
rule. A test that did not run at all, since the changed file cannot be imported, is no finding either.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from enum import StrEnum
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Final

from tests.kit.rules import all_tests
from tests.kit.tree import ROOT
from tests.mutants.mutant import Mutant, read, stale

_LONGEST: Final = 300.0
"""Seconds after which a test is killed that pytest's own limit did not end: it has found its mutant."""
_CODE: Final = ("services", "shared")
"""The folders that are copied: tests stay where they are."""
_OPTIONS: Final = ("-q", "-x", "-p", "no:cacheprovider", "--tb=short", "--assert=plain")
"""Plain assertions fail as others do, and pytest then does not mind what is imported already."""
_PASSED: Final = 0
_FAILED: Final = 1
"""The exit code of pytest if tests ran and some failed."""
_TEST_FAILED: Final = re.compile(r"^[1-9][0-9]* failed(?!.*\berror)")
"""The last line of pytest where a test failed, and its fixtures did not."""
_FORKS: Final = get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "_pytest.assertion", "alembic", "h2.connection", "httpx2", "hypercorn", "hypothesis", "jsonschema_rs", "jwt",
        "mcp", "mcp_types", "nats", "opentelemetry.sdk.trace", "pydantic_settings", "pytest", "pytest_asyncio",
        "pytest_timeout", "sqlalchemy.ext.asyncio", "structlog", "xdist",
    ]
)  # fmt: skip
"""Importing what is not ours takes longer than most tests; so it happens once, and each run is a fork."""


class Verdict(StrEnum):
    """The outcome of a mutant's run."""

    FOUND = "found"
    SURVIVED = "survived"
    NOT_RUN = "not run"


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the code in a folder of its own, with what Python has compiled of it."""
    with TemporaryDirectory(prefix="mutants-") as folder:
        for name in _CODE:
            shutil.copytree(ROOT / name, Path(folder, name))
        yield Path(folder)


def try_one(mutant: Mutant, tree: Path) -> tuple[Verdict, str]:
    """Make a mutant in a copy, run its test, and take the change back; return what pytest wrote, too."""
    path = tree / mutant.file
    path.write_text(mutant.changed(path.read_text()))
    try:
        code, said = _run_with(tree, mutant.test)
    finally:
        shutil.copy2(ROOT / mutant.file, path)
    if code == _PASSED:
        return Verdict.SURVIVED, said
    has_failed = code == _FAILED and _TEST_FAILED.search(said.strip().rpartition("\n")[2])
    return (Verdict.FOUND if has_failed else Verdict.NOT_RUN), said


def _run_with(tree: Path, test: str) -> tuple[int, str]:
    """Run a test with the code of a copy; return the exit code and what pytest wrote."""
    with NamedTemporaryFile("r", prefix="mutant-", suffix=".log") as log:
        process = _FORKS.Process(target=_pytest_in_fork, args=(tree, test, log.name))
        process.start()
        process.join(_LONGEST)
        if process.exitcode is None:
            process.kill()
            process.join()
            return _FAILED, f"{log.read()}\n1 failed: killed after {_LONGEST:g} s"
        return process.exitcode, log.read()


def _pytest_in_fork(tree: Path, test: str, log: str) -> None:
    """Run a test in this process, which has imported nothing of ours yet, and leave with pytest's exit code."""
    roots = [str(tree / name) for name in _CODE]
    sys.path[:0] = roots
    os.environ["PYTHONPATH"] = os.pathsep.join((*roots, str(ROOT)))
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        del os.environ[name]
    os.chdir(ROOT)
    descriptor = os.open(log, os.O_WRONLY)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    import pytest

    code = pytest.main([*_OPTIONS, test])
    sys.stdout.flush()
    os._exit(code)


def main(arguments: Sequence[str]) -> int:
    """Try mutants, and return the exit code: 0 if each was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run", description=__doc__)
    parser.add_argument("rules", nargs="*", metavar="RULE", help="only mutants of these rules, such as L13")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many run at once")
    parser.add_argument("--show", action="store_true", help="print what pytest wrote for each that was not found")
    options = parser.parse_args(arguments)
    mutants = [mutant for mutant in read() if not options.rules or mutant.rule in options.rules]
    if old := list(stale(mutants, all_tests())):
        _say(*old)
        return 1
    controls = {mutant.test: replace(mutant, breaks="nothing", new=mutant.old) for mutant in mutants}
    _say(f"without a mutant, these {len(controls)} tests must pass:")
    if set(try_all(list(controls.values()), options.jobs, shows=options.show)) != {Verdict.SURVIVED}:
        _say("a test that does not pass finds nothing")
        return 1
    _say("with a mutant each, they must fail:")
    verdicts = list(try_all(mutants, options.jobs, shows=options.show))
    _say(f"mutants: {verdicts.count(Verdict.FOUND)} of {len(mutants)} were found")
    return 0 if set(verdicts) <= {Verdict.FOUND} else 1


def try_all(mutants: Sequence[Mutant], jobs: int, *, shows: bool) -> Iterator[Verdict]:
    """Try mutants, some at once, and say of each what became of it."""
    trees: SimpleQueue[Path] = SimpleQueue()

    def attempt(mutant: Mutant) -> Verdict:
        tree, began = trees.get(), time.monotonic()
        try:
            verdict, said = try_one(mutant, tree)
        finally:
            trees.put(tree)
        _say(f"{verdict:8} {time.monotonic() - began:5.1f} s  {mutant.name} ({mutant.place}, {mutant.test})")
        if shows and verdict is not (Verdict.SURVIVED if mutant.new == mutant.old else Verdict.FOUND):
            _say(said)
        return verdict

    with ExitStack() as stack:
        for _ in range(jobs):
            trees.put(stack.enter_context(copied()))
        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(attempt, mutants)


def _say(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
