"""Records messages that are new: `python -m tests.unit.contracts.record`.

What is recorded already is never changed: where today's code does not read it as it was meant, nothing is written.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

from tests.unit.contracts.kinds import KINDS, Kind
from tests.unit.contracts.recording import Recording, add, holds, recorded

_PROJECT: Final = Path(__file__).parents[3] / "pyproject.toml"


def misread(kind: Kind) -> list[Recording]:
    """Return the recordings of a kind that mean something else today."""
    return [each for each in recorded(kind.name) if not _is_read_as_meant(kind, each)]


def new(kind: Kind, release: str) -> list[Recording]:
    """Return messages of a kind that today's code writes and no recording has."""
    old = recorded(kind.name)
    known: list[Any] = [each.means if kind.is_random else each.wrote for each in old]
    found = [Recording(release, sample, _as_json(kind, sample)) for sample in dict.fromkeys(kind.samples)]
    return [each for each in found if (each.means if kind.is_random else each.wrote) not in known]


def _is_read_as_meant(kind: Kind, recording: Recording) -> bool:
    try:
        return holds(recording.means, _as_json(kind, recording.wrote))
    except Exception:  # whatever a reader raises for what it cannot read
        return False


def _as_json(kind: Kind, raw: bytes) -> Any:
    return json.loads(json.dumps(kind.read(raw)))


def main() -> int:
    """Record what is new, unless something old would not be read; returns the exit code."""
    broken = [(kind.name, each) for kind in KINDS.values() for each in misread(kind)]
    for name, each in broken:
        print(f"{name}: release {each.release} wrote\n  {each.wrote.decode()}\nwhich is read otherwise today")  # noqa: T201
    if broken:
        print("Nothing was recorded: fields are added, never changed in meaning.")  # noqa: T201
        return 1
    release = tomllib.loads(_PROJECT.read_text())["project"]["version"]
    for name, found in {kind.name: new(kind, release) for kind in KINDS.values()}.items():
        if found:
            add(name, found)
            print(f"{name}: {len(found)} recorded")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
