"""`mcpfleet messages`: the template has all texts of an application, and nothing else."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po

from tests.kit.tree import ROOT

APP = '''
from dataclasses import dataclass

from mcpfleet.app import App, Context, question

app = App("shop", title="The shop", instructions="Search first.")
print("imported")


@dataclass
class Form:
    pieces: int


@app.tool(title="Search")
async def search(n: int, ctx: Context) -> str:
    """Search the shop."""
    await ctx.ask(question.form("How many?", {"type": "object", "properties": {"n": {"type": "integer"}}}))
    name = "x"
    ctx.t(name)
    return ctx.t("{n} item", "{n} items", n=n)


def helper(ctx: Context) -> str:
    return ctx.sync.t("100 % sure")
'''


def messages(target: Path, *options: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command."""
    command = [sys.executable, "-m", "mcpfleet.cli", "messages", str(target), *options]
    return subprocess.run(command, capture_output=True, timeout=60, check=False)


def texts(catalog: Catalog) -> set[tuple[object, object]]:
    """The texts of a file with their contexts."""
    return {(message.context, message.id) for message in catalog if message.id}


def test_the_template_of_the_example_is_what_its_german_file_translates(tmp_path: Path) -> None:
    path = tmp_path / "cafe.pot"
    done = messages(ROOT / "examples" / "cafe.py", "--output", str(path))
    assert (done.returncode, done.stdout) == (0, b"")
    german = (ROOT / "examples/locale/de/LC_MESSAGES/cafe.po").read_bytes()
    assert texts(read_po(io.BytesIO(path.read_bytes()))) == texts(read_po(io.BytesIO(german)))


def test_what_the_application_prints_is_no_part_of_the_template(tmp_path: Path) -> None:
    target = tmp_path / "shop.py"
    target.write_text(APP)
    done = messages(target)
    assert done.returncode == 0
    assert b"imported" in done.stderr
    assert texts(read_po(io.BytesIO(done.stdout))) == {
        ("server:title", "The shop"),
        ("tool:search:title", "Search"),
        (None, "How many?"),
        (None, ("{n} item", "{n} items")),
        (None, "100 % sure"),
    }


def test_an_application_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    target = tmp_path / "shop.py"
    target.write_text("import nothing_of_this_name\n")
    done = messages(target)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"nothing_of_this_name" in done.stderr
