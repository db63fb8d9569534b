"""Refuses rules that no passed test showed: `python -m tests.lint.shown_rules RECORD…`, the last step of `make test`.

A record is what `pytest --record-rules` wrote. One that is absent, or of another tree than the present one, is not
taken. Then the runs are partial: the program says what is missing, and judges nothing. With `--whole` that is refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.kit.passed import digest_of_tree
from tests.kit.rules import Explained, MarkedTest, all_tests, explained

REFUSED: Final = 1
PARTIAL: Final = 0


@dataclass(frozen=True)
class Taken:
    """The rules that the records of the present tree showed, and why other records were not taken."""

    shown: frozenset[str]
    refused: tuple[str, ...]


def take(records: Sequence[Path], tree: str) -> Taken:
    """Read records; keep those of the tree with this digest."""
    shown: set[str] = set()
    refused = []
    for path in records:
        if not path.exists():
            refused.append(f"{path}: there is no such record; its tests did not run to their end")
            continue
        record = json.loads(path.read_text())
        if record["tree"] == tree:
            shown.update(record["shown"])
        else:
            refused.append(f"{path}: it is of another tree; run its tests again")
    return Taken(frozenset(shown), tuple(refused))


def missing(rules: Sequence[Explained], tests: Sequence[MarkedTest], shown: frozenset[str]) -> Iterator[str]:
    """Say which rules nothing showed, with the tests that name them."""
    for rule in rules:
        if rule.code in shown:
            continue
        named = [test.where for test in tests if rule.code in test.rules]
        why = (
            f"the tests that name it did not pass here: {', '.join(named)}"
            if named
            else f'no test has @pytest.mark.rule("{rule.code}"), and no vector names it'
        )
        yield f"docs/{rule.page}:{rule.line}: {rule.code} is not shown; {why}"


def main(arguments: Sequence[str]) -> int:
    """Print what is wrong, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.lint.shown_rules", description=__doc__)
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORD", help="what pytest --record-rules wrote")
    parser.add_argument("--whole", action="store_true", help="refuse partial runs")
    options = parser.parse_args(arguments)
    rules = explained()
    taken = take(options.records, digest_of_tree())
    if taken.refused:
        _say("rules: the runs are partial, so nothing is judged", *taken.refused)
        return REFUSED if options.whole else PARTIAL
    found = list(missing(rules, all_tests(), taken.shown))
    _say(*found, f"rules: {len(rules) - len(found)} of {len(rules)} were shown by tests that passed")
    return REFUSED if found else 0


def _say(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
