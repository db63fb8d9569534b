"""The pages for authors: their Python blocks are the files that they say they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from mcpfleet.contracts.endpoints import Endpoint
from tests.kit.pages import blocks, blocks_of_the_guide, pages_of_the_guide, section
from tests.kit.tree import ROOT

LOAD: Final = "import sys; from mcpfleet.app.loading import load; [load(file) for file in sys.argv[1:]]"


def loaded(*files: Path) -> str:
    """Import the files in a process of their own, whose modules are nobody else's; return its errors."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *files], capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    return done.stderr if done.returncode else ""


def test_the_blocks_of_the_guide_for_authors_are_one_application(tmp_path: Path) -> None:
    """A name that two blocks declare is refused, as an author who follows the pages would find."""
    assert len(blocks_of_the_guide()) > 20
    shop = tmp_path / "shop.py"
    shop.write_text("\n\n".join(blocks_of_the_guide()))
    assert loaded(shop) == ""
    names = re.findall(r"^(?:async )?def (\w+)", shop.read_text(), re.MULTILINE)
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_each_page_of_the_guide_stands_on_the_first_two_alone(tmp_path: Path) -> None:
    """A reader who takes one subject need not copy the others."""
    first, tools, *others = pages_of_the_guide()
    files = []
    for page in others:
        files.append(tmp_path / f"shop_{Path(page).stem}.py")
        files[-1].write_text("\n\n".join(block for each in (first, tools, page) for block in blocks(each)))
    assert loaded(*files) == ""


def test_the_guide_lists_each_of_its_pages_as_the_site_does() -> None:
    pages = [page.removeprefix("docs/") for page in pages_of_the_guide()]
    assert sorted(pages[1:]) == sorted(f"applications/{path.name}" for path in (ROOT / "docs/applications").iterdir())
    assert re.findall(r": (applications\b.*\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE) == pages


def test_every_member_of_an_endpoint_is_told_where_endpoints_are() -> None:
    """And with its default, where that is yes or no."""
    told = section("docs/operations.md", "Pools and endpoints")
    for name, field in Endpoint.model_fields.items():
        assert re.search(rf"^\|[^|]*`{name}`[^|]*\|", told, re.MULTILINE), name
        if isinstance(field.default, bool):
            assert f"| `{name}` | `{str(field.default).lower()}` |" in told
