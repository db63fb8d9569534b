"""The announcement of a worker: definitions on the wire, and the manifest."""

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
from mcp_types import Icon, ToolAnnotations
from mcp_types import Tool as WireTool
from pydantic import BaseModel

from mcpfleet.app import App, Context, Tool
from mcpfleet.app.site import UNVERSIONED, installed_version
from mcpfleet.contracts.manifest import Rate

Declare = Callable[..., Tool]


class Book(BaseModel):
    title: str
    year: int | None = None


async def read(book: int, ctx: Context, page: int = 1) -> Book:
    """Read a page of a book.

    Pages are counted from 1.
    """
    raise NotImplementedError


def test_the_wire_form_is_what_2026_07_28_lists(declare: Declare) -> None:
    definition = declare(
        read,
        title="Read",
        annotations=ToolAnnotations(read_only_hint=True),
        icons=[Icon(src="https://example.com/a.png", mime_type="image/png")],
        meta={"com.example/shelf": None},
    ).definition
    wire = definition.wire
    assert (wire["name"], wire["title"]) == ("read", "Read")
    assert wire["inputSchema"]["required"] == ["book"]
    assert wire["outputSchema"]["required"] == ["title"]
    assert wire["description"] == "Read a page of a book.\n\nPages are counted from 1."
    assert wire["annotations"] == {"readOnlyHint": True}
    assert wire["icons"] == [{"src": "https://example.com/a.png", "mimeType": "image/png"}]
    assert wire["_meta"] == {"com.example/shelf": None}
    assert WireTool.model_validate(wire).name == "read"


def test_what_is_not_declared_is_not_on_the_wire(declare: Declare) -> None:
    async def bare() -> str: ...  # type: ignore[empty-body]

    assert declare(bare).definition.wire == {
        "name": "bare",
        "inputSchema": {"type": "object", "additionalProperties": False},
    }


@pytest.mark.rule("M38")
def test_null_inside_a_schema_stays(declare: Declare) -> None:
    async def search(year: int | None = None) -> Book: ...  # type: ignore[empty-body]

    wire = declare(search).definition.wire
    assert wire["inputSchema"]["properties"]["year"]["default"] is None
    assert wire["outputSchema"]["properties"]["year"]["default"] is None


def test_the_description_may_be_given_instead_of_the_docstring(declare: Declare) -> None:
    assert declare(read, description="For the model.").definition.wire["description"] == "For the model."


def test_the_definition_says_how_calls_are_run(declare: Declare) -> None:
    definition = declare(
        read,
        name="library.read",
        timeout=5,
        on_disconnect="continue",
        asks={"sampling", "elicitation.form"},
        scopes=["b", "a", "b"],
    ).definition
    assert (definition.kind, definition.name) == ("tool", "library.read")
    assert (definition.timeout, definition.on_disconnect) == (5, "continue")
    assert definition.asks == ("elicitation.form", "sampling")
    assert definition.scopes == ("b", "a")


def test_the_definition_says_for_whom_it_is_and_how_often(declare: Declare) -> None:
    definition = declare(
        read,
        asks={"roots"},
        may_ask={"sampling", "roots"},
        only_for=["tenant:b*", "client:a"],
        per_caller=True,
        rate=(10, 60),
    ).definition
    assert (definition.asks, definition.may_ask) == (("roots",), ("sampling",))
    assert definition.only_for == ("client:a", "tenant:b*")
    assert definition.per_caller
    assert definition.rate == Rate(calls=10, seconds=60)


@pytest.mark.rule("M34")
def test_a_manifest_lists_tools_by_name() -> None:
    app = App("library", version="1.2", title="Library", instructions="Search first.")
    for name in ("b", "C", "a"):
        app.tool(name)(read)
    manifest = app.manifest()
    assert [named.definition.name for named in manifest.named] == ["C", "a", "b"]
    assert (manifest.name, manifest.version) == ("library", "1.2")
    assert (manifest.title, manifest.instructions) == ("Library", "Search first.")


def test_equal_declarations_have_equal_digests() -> None:
    def digest(**options: Any) -> str:
        app = App("library", version="1")
        app.tool(**options)(read)
        (named,) = app.manifest().named
        assert named == (app.tools["read"].definition.digest, app.tools["read"].definition)
        return named.digest

    assert digest() == digest()
    assert digest() != digest(timeout=5)
    assert digest() != digest(title="Read")


def test_a_digest_is_the_same_in_every_process() -> None:
    """Nothing in a definition depends on the order of a set, which differs by process."""
    program = (
        "from typing import Literal\n"
        "from mcpfleet.app import App\n"
        "app = App('library', version='1')\n"
        "@app.tool(asks={'sampling', 'roots', 'elicitation.form', 'elicitation.url'})\n"
        "def f(a: int, b: str = 'x', c: Literal['p', 'q', 'r'] = 'p') -> dict[str, int]: ...\n"
        "print(app.manifest().digest)\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1


def test_an_app_without_a_version_has_that_of_its_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    assert App("test").manifest().version == UNVERSIONED  # no distribution is called `tests`
    monkeypatch.setitem(globals(), "__name__", "mcpfleet.some.module")
    assert App("test").version == version("mcpfleet")


@pytest.mark.parametrize("module", ["__main__", "mcpfleet", "no_such_package.module"])
def test_a_module_without_an_installed_package_has_no_version_to_tell(module: str) -> None:
    assert installed_version(module) == UNVERSIONED
