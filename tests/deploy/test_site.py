"""The documentation as a site: it builds without a warning, has every name, and loads nothing from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest

import mcpfleet.app
from tests.kit.tree import ROOT

WITHIN: Final = 240.0
"""Seconds for the build, which installs its packages where `make` has not done so before."""
LOADED: Final = {
    ("script", "src"), ("img", "src"), ("img", "srcset"), ("iframe", "src"), ("source", "src"), ("embed", "src"),
    ("object", "data"), ("video", "src"), ("video", "poster"), ("audio", "src"), ("track", "src"), ("use", "href"),
    ("image", "href"), ("link", "href"),
}  # fmt: skip
"""Attributes whose addresses a browser fetches by itself; a link of a text is none of them."""


class Loads(HTMLParser):
    """Collects the addresses that a page has a browser fetch."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.styles = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.styles += given.get("style") or ""
        for name, value in attrs:
            if (tag, name) in LOADED and given.get("rel") not in ("canonical", "next", "prev"):
                self.addresses.append(value or "")

    def handle_data(self, data: str) -> None:
        self.styles += data if self.lasttag == "style" else ""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        ["make", "-s", "site", f"SITE={folder}", f"PYTHON={sys.executable}"],
        cwd=ROOT, env={**os.environ, "MAKEFLAGS": ""}, capture_output=True, text=True, timeout=WITHIN, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def is_outside(address: str) -> bool:
    return re.match(r"\s*(?:[\w+.-]+:)?//", address) is not None


@pytest.mark.timeout(WITHIN + 60)
def test_every_page_of_the_repository_is_in_the_site(site: Path) -> None:
    """The build itself refuses a page that the navigation leaves out, a link to nothing, and a missing anchor."""
    assert "Quickstart" in (site / "index.html").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists()
    assert (site / "search" / "search_index.json").exists()
    assert not list(site.rglob("*.py"))


@pytest.mark.timeout(WITHIN + 60)
def test_the_site_loads_nothing_from_outside(site: Path) -> None:
    """No font, no script, no picture: it is read without the internet."""
    outside = []
    for path in site.rglob("*.html"):
        page = Loads(path.read_text())
        assert any("assets/" in address for address in page.addresses)
        styles = re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", page.styles)
        outside += [(path.name, each) for each in [*page.addresses, *map("".join, styles)] if is_outside(each)]
    for path in site.rglob("*.css"):
        loaded = re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", path.read_text())
        outside += [(path.name, each) for each in map("".join, loaded) if is_outside(each)]
    assert outside == []


@pytest.mark.timeout(WITHIN + 60)
def test_the_api_reference_has_every_name_for_authors(site: Path) -> None:
    """Each of ours with its docstring; those of the official SDK by name."""
    page = (ROOT / "docs" / "api.md").read_text()
    html = (site / "api.html").read_text()
    told = set(re.findall(r"^::: mcpfleet\.app\.(\w+)$", page, re.MULTILINE)) | set(re.findall(r"`(\w+)`", page))
    assert set(mcpfleet.app.__all__) - told == set()
    shown = set(re.findall(r'id="mcpfleet\.app\.(\w+)"', html))
    assert {name for name in told if f"::: mcpfleet.app.{name}\n" in page} <= shown
    assert "Declare a function as a tool" in html
