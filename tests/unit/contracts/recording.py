"""Recordings of messages: what a release wrote, byte for byte, and beside it what that means.

A file holds one kind's, the oldest first: lines `release`, `wrote` and `means`. Recorded lines stay as they are: old
and new processes run side by side, and what a store or a client keeps is read by every later release.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).with_name("recorded")


@dataclass(frozen=True)
class Recording:
    """One message."""

    release: str
    """Which wrote it first."""
    wrote: bytes
    """Without line breaks."""
    means: Any
    """As JSON: every field that the release knew, also those that it left out."""

    def text(self) -> str:
        """Return the text of the file."""
        means = json.dumps(self.means, ensure_ascii=False, sort_keys=True)
        return f"release {self.release}\nwrote   {self.wrote.decode()}\nmeans   {means}\n"


def recorded(kind: str) -> list[Recording]:
    """All that is recorded of a kind."""
    path = FOLDER / f"{kind}.txt"
    return [_read(block) for block in path.read_text().split("\n\n")] if path.exists() else []


def add(kind: str, recordings: Sequence[Recording]) -> None:
    """Add to what is recorded of a kind."""
    path = FOLDER / f"{kind}.txt"
    before = path.read_text() + "\n" if path.exists() else ""
    path.write_text(before + "\n".join(each.text() for each in recordings))


def kinds_recorded() -> set[str]:
    """The kinds that have recordings."""
    return {path.stem for path in FOLDER.glob("*.txt")}


def _read(block: str) -> Recording:
    release, wrote, means = block.strip("\n").split("\n")
    return Recording(
        release.removeprefix("release "),
        wrote.removeprefix("wrote   ").encode(),
        json.loads(means.removeprefix("means   ")),
    )


def holds(means: Any, now: Any) -> bool:
    """Whether what is read today has every field that was meant, with its value; others may have been added since."""
    if isinstance(means, dict) and isinstance(now, dict):
        return all(name in now and holds(value, now[name]) for name, value in means.items())
    if isinstance(means, list) and isinstance(now, list):
        return len(means) == len(now) and all(holds(*pair) for pair in zip(means, now, strict=True))
    return type(means) is type(now) and bool(means == now)
