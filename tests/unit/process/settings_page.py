"""Writes the tables of docs/settings.md again: `python -m tests.unit.process.settings_page`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from unittest.mock import patch

from mcpfleet.cli.services import SETTINGS
from mcpfleet.process.names import PREFIX
from mcpfleet.process.settings import ProcessSettings, Settings
from mcpfleet.process.settings_table import SettingRow, rows
from mcpfleet.store.settings import StoreSettings

PAGE: Final = Path(__file__).parents[3] / "docs" / "settings.md"
MARK: Final = "<!-- What follows is written by `python -m tests.unit.process.settings_page`. -->\n"
STORES: Final = [name for name, cls in SETTINGS.items() if issubclass(cls, StoreSettings)]


def tables() -> str:
    """Every setting with its default and meaning, once for each group of processes that read it."""
    with patch.dict(os.environ, {name: value for name, value in os.environ.items() if name[: len(PREFIX)] != PREFIX}):
        return "\n".join(_parts())


def _parts() -> Iterator[str]:
    common, stored = _own(ProcessSettings, ()), _own(StoreSettings, (ProcessSettings,))
    yield _table("Every process", common)
    yield _table(f"Services with a store: {', '.join(STORES)}", stored)
    for name, cls in SETTINGS.items():
        bases = (ProcessSettings, StoreSettings) if name in STORES else (ProcessSettings,)
        yield _table(f"`mcpfleet {name}`", _own(cls, bases))


def _own(cls: type[Settings], without: Sequence[type[Settings]]) -> list[SettingRow]:
    """The settings that no earlier table has, or has otherwise: with another default, or another meaning."""
    known = {row for base in without for row in rows(base)}
    return [row for row in rows(cls) if row not in known]


def _table(title: str, found: Sequence[SettingRow]) -> str:
    lines = [f"## {title}", "", "| setting | default | meaning |", "|---|---|---|"]
    lines += [
        f"| `{row.name}` | {_default(row)} | {_meaning(row)} |" for row in sorted(found, key=lambda row: row.name)
    ]
    return "\n".join([*lines, ""])


def _default(row: SettingRow) -> str:
    return f"`{row.default}`{f' {row.unit}' if row.unit else ''}" if row.default else ""


def _meaning(row: SettingRow) -> str:
    text = row.meaning.rstrip(".").replace("|", "\\|")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


if __name__ == "__main__":
    written, _, _ = PAGE.read_text().partition(MARK)
    PAGE.write_text(f"{written.rstrip()}\n\n{MARK}\n{tables()}")
