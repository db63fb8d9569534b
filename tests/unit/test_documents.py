"""The pages for authors: their Python blocks are the files that they say they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from mcpfleet.contracts.endpoints import Endpoint
from tests.kit.pages import blocks, section

LOAD: Final = "import sys; from mcpfleet.app.loading import load; load(sys.argv[1])"


def test_the_blocks_of_the_guide_for_authors_are_one_application(tmp_path: Path) -> None:
    """A name that two blocks declare is refused, as an author who follows the page would find."""
    assert len(blocks("docs/applications.md")) > 20
    shop = tmp_path / "shop.py"
    shop.write_text("\n\n".join(blocks("docs/applications.md")))
    done = subprocess.run(  # a process of its own: the page's modules are nobody else's
        [sys.executable, "-c", LOAD, str(shop)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    names = re.findall(r"^(?:async )?def (\w+)", shop.read_text(), re.MULTILINE)
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_every_member_of_an_endpoint_is_told_where_endpoints_are() -> None:
    """And with its default, where that is yes or no."""
    told = section("docs/operations.md", "Pools and endpoints")
    for name, field in Endpoint.model_fields.items():
        assert re.search(rf"^\|[^|]*`{name}`[^|]*\|", told, re.MULTILINE), name
        if isinstance(field.default, bool):
            assert f"| `{name}` | `{str(field.default).lower()}` |" in told
