"""Refuses modules, classes and functions whose names were removed: `python -m tests.lint.removed_names`.

`removed_names.txt` has a line for each: the package and the name, or the module and `-`. A name is refused in its
package and below it alone, so another package may use the same word. The unit tests of a package stand beside it: what
it must not define, they must not either. Other tests have lines of their own. Prose is not read.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.kit.tree import ROOT

SOURCE_ROOTS: Final = ("services", "shared", ".")
"""The last has the packages of tests."""
UNIT_TESTS: Final = Path("tests", "unit")
LIST: Final = Path(__file__).with_suffix(".txt")
_DEFINED: Final = re.compile(r"^(?:(?:async )?def |class |type )?([A-Za-z_]\w*)(?: = |[\[(:])", re.MULTILINE)
"""A name that is made at the first column: a class, a function or an assignment."""


def removed(text: str) -> list[tuple[str, str]]:
    """The packages and names of a list, or modules and `-`."""
    pairs = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return [(place, name) for place, name in pairs]


def refused(names: Iterable[tuple[str, str]], root: Path = ROOT) -> Iterator[str]:
    """Say where a removed name is back."""
    by_package: dict[str, set[str]] = defaultdict(set)
    for place, name in names:
        if name != "-":
            by_package[place].add(name)
        else:
            for top in SOURCE_ROOTS:
                path = root.joinpath(top, *place.split("."))
                yield from (f"{found.relative_to(root)}: the module {place} was removed" for found in _modules(path))
    for package, words in by_package.items():
        for path in _files(package, root):
            text = path.read_text(encoding="utf-8")
            for found in _DEFINED.finditer(text):
                if found[1] in words:
                    line = text.count("\n", 0, found.start()) + 1
                    yield f"{path.relative_to(root)}:{line}: the name {found[1]} was removed from {package}"


def _files(package: str, root: Path) -> Iterator[Path]:
    """The files of a package, and of its unit tests."""
    top, *inner = package.split(".")
    folders = [root.joinpath(each, top, *inner) for each in SOURCE_ROOTS]
    if top != "tests":
        folders.append(root.joinpath(UNIT_TESTS, *inner))
    for folder in folders:
        yield from sorted(folder.rglob("*.py"))


def _modules(path: Path) -> Iterator[Path]:
    """The module or package at a path without its suffix."""
    if path.with_suffix(".py").exists():
        yield path.with_suffix(".py")
    if (path / "__init__.py").exists():
        yield path / "__init__.py"


def main() -> int:
    """Print what is refused, and return the exit code."""
    found = list(refused(removed(LIST.read_text())))
    for each in found:
        print(each)  # noqa: T201
    if found:
        print(f"Choose another name, or take the line out of {LIST.relative_to(ROOT)}.")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
