"""The pages of the documentation, for tests that run what they show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.kit.tree import ROOT

GUIDE: Final = "docs/applications.md"
"""The guide for authors: it lists its pages in their order."""


def blocks(page: str | Path, language: str = "python") -> list[str]:
    """Return the code blocks of a page in a language, in order; the page is named by its path in the repository."""
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def pages_of_the_guide() -> list[str]:
    """Return the pages of the guide for authors, in order, and the guide's own first."""
    listed = re.findall(r"^\| \[[^\]]+\]\((applications/\w+\.md)\)", (ROOT / GUIDE).read_text(), re.MULTILINE)
    return [GUIDE, *(f"docs/{page}" for page in listed)]


def blocks_of_the_guide() -> list[str]:
    """Return the Python blocks of the guide for authors, which form one application."""
    return [block for page in pages_of_the_guide() for block in blocks(page)]


def section(page: str | Path, heading: str) -> str:
    """Return what stands below a heading of the second level."""
    parts = re.split(r"^## ", (ROOT / page).read_text(), flags=re.MULTILINE)
    [found] = [part for part in parts if part.partition("\n")[0] == heading]
    return found


def rows(text: str) -> list[list[str]]:
    """Return the rows of the tables in a text, without heads; `|` inside code is part of a cell."""
    lines = re.findall(r"^\|(.*)\|$", text, re.MULTILINE)
    cells = [[cell.strip() for cell in re.split(r"\|(?=(?:[^`]*`[^`]*`)*[^`]*$)", line)] for line in lines]
    heads = {place - 1 for place, row in enumerate(cells) if all(re.fullmatch(":?-+:?", cell) for cell in row)}
    return [row for place, row in enumerate(cells) if not {place, place - 1} & heads]


def titled(text: str, title: str) -> list[str]:
    """Return the code blocks of a text that have a title, in order."""
    return re.findall(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```', text, re.MULTILINE | re.DOTALL)


def headings(page: str | Path) -> list[str]:
    """Return the headings of the second level, in order."""
    return re.findall(r"^## (.+)$", (ROOT / page).read_text(), re.MULTILINE)
