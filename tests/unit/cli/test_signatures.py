"""Signatures of tools and prompts, as `mcpfleet check` and `mcpfleet list` show them."""

from __future__ import annotations

import datetime as dt
import json
import shlex
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from mcpfleet.app import App, Context
from mcpfleet.app.tool import Tool
from mcpfleet.app.validation import Validator
from mcpfleet.cli.signatures import example_arguments, prompt_signature, tool_signature
from mcpfleet.cli.typed_arguments import read_arguments


class Genre(Enum):
    """A word of a few."""

    NOVEL = "novel"
    POEM = "poem"


class Author(BaseModel):
    """Another model's part."""

    name: str
    born: dt.date


class Book(BaseModel):
    """A model."""

    title: str
    author: Author
    pages: Annotated[int, Field(ge=100)] = 300


app = App("signed", version="1.0.0")


@app.tool()
def find(ctx: Context, before: dt.date, limit: int = 10) -> str:
    """Find."""
    return ""


@app.tool()
def words(  # noqa: PLR0917
    text: str, at: dt.datetime, key: UUID, file: Path, ratio: float, sure: bool
) -> str:
    """Take words and numbers."""
    return ""


@app.tool()
def nested(book: Book, tags: list[str], counts: dict[str, int], pair: tuple[int, str], ids: set[int]) -> str:
    """Take containers."""
    return ""


@app.tool()
def chosen(genre: Genre, size: Literal["small", "large"], name: str | None = None, by: int | str = 5) -> str:
    """Take choices."""
    return ""


@app.tool()
def defaults(sure: bool = True, tags: tuple[str, ...] = ("a",), note: str = 'say "hi"', long: str = "x" * 200) -> str:
    """Take defaults."""
    return ""


@app.tool()
def bounded(
    least: Annotated[int, Field(ge=5)],
    above: Annotated[float, Field(gt=7)],
    most: Annotated[int, Field(le=-3)],
    long: Annotated[str, Field(min_length=9)],
    some: Annotated[list[int], Field(min_length=1)],
) -> str:
    """Take what has bounds."""
    return ""


def signature(tool: Tool) -> str:
    wire = tool.definition.wire
    return tool_signature(wire["name"], wire["inputSchema"])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("find", "find(before: date, limit: int = 10)"),
        ("words", "words(text: str, at: datetime, key: UUID, file: Path, ratio: float, sure: bool)"),
        (
            "nested",
            "nested(book: Book, tags: list[str], counts: dict[str, int], pair: tuple[int, str], ids: set[int])",
        ),
        (
            "chosen",
            'chosen(genre: "novel" | "poem", size: "small" | "large", name: str | None = None, by: int | str = 5)',
        ),
        (
            "defaults",
            'defaults(sure: bool = True, tags: list[str] = ["a"], note: str = "say \\"hi\\"", long: str = …)',
        ),
    ],
)
def test_a_tool_is_shown_as_its_author_wrote_it(name: str, shown: str) -> None:
    assert signature(app.tools[name]) == shown


def test_required_parameters_come_first_in_their_own_order_however_a_list_sorts_them() -> None:
    """The wire's text has sorted keys: only `required` keeps an order."""
    sent = json.loads(json.dumps(app.tools["words"].definition.wire["inputSchema"], sort_keys=True))
    assert tool_signature("words", sent).startswith("words(text: str, at: datetime, key: UUID")


def test_an_optional_parameter_without_a_default_has_an_untold_one() -> None:
    schema = {"type": "object", "properties": {"before": {"type": "string", "format": "date"}}}
    assert tool_signature("find", schema) == "find(before: date = …)"


def test_further_members_are_shown_where_the_schema_invites_them() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}}
    assert tool_signature("count", schema) == "count(**others: int)"


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(None, id="none"),
        pytest.param([], id="a list"),
        pytest.param({"properties": []}, id="properties that are a list"),
        pytest.param({"required": "all"}, id="required that is a word"),
        pytest.param({"required": [3, None]}, id="required that are numbers"),
    ],
)
def test_a_malformed_schema_is_shown_as_one_without_parameters(schema: Any) -> None:
    assert tool_signature("odd", schema) == "odd()"
    assert example_arguments(schema) == []


@pytest.mark.parametrize(
    ("stated", "shown"),
    [
        (True, "Any"),
        ({}, "Any"),
        (7, "Any"),
        ({"type": 7}, "Any"),
        ({"type": []}, "Any"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"type": ["null", "string"]}, "str | None"),
        ({"anyOf": 3}, "Any"),
        ({"enum": "ab"}, "Any"),
        ({"enum": list(range(9))}, "0 | 1 | 2 | 3 | 4 | 5 | …"),
        ({"const": {"a": [None, True]}}, '{"a": [None, True]}'),
        ({"$ref": "#/$defs/Nowhere"}, "Nowhere"),
        ({"$ref": "https://example.com/x"}, "Any"),
        ({"$ref": "#/$defs/Loop"}, "Loop"),
        ({"type": "object", "title": "Book", "properties": {}}, "Book"),
        ({"type": "object", "title": "A book", "properties": {}}, "dict"),
        ({"type": "string", "contentEncoding": "base64"}, "bytes"),
        ({"type": "string", "format": "made-up"}, "str"),
    ],
)
def test_whatever_a_server_states_of_a_parameter_is_shown(stated: Any, shown: str) -> None:
    schema = {"properties": {"a": stated}, "required": ["a"], "$defs": {"Loop": {"$ref": "#/$defs/Loop"}}}
    assert tool_signature("odd", schema) == f"odd(a: {shown})"
    assert len(example_arguments(schema)) == 1


def test_a_type_that_contains_itself_ends() -> None:
    deep: dict[str, Any] = {"type": "array"}
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    assert tool_signature("deep", {"properties": {"a": deep}, "required": ["a"]}).count("list[") == 5


def test_no_text_of_a_server_steers_a_terminal() -> None:
    evil = "\x1b[2J\u202e"
    schema = {
        "properties": {evil: {"enum": [evil, 1]}, "b": {"title": evil, "type": "object", "properties": {}}},
        "required": [evil],
    }
    assert tool_signature(evil, schema).isprintable()
    assert all(word.isprintable() for word in example_arguments(schema))
    assert prompt_signature(evil, [{"name": evil}]).isprintable()


def test_a_prompt_shows_its_arguments_with_the_required_ones_first() -> None:
    arguments = [{"name": "tone"}, {"name": "title", "required": True}, "odd"]
    assert prompt_signature("review", arguments) == "review(title, tone = …)"
    assert prompt_signature("plain", None) == "plain()"


@pytest.mark.parametrize("name", ["find", "words", "nested", "chosen", "defaults", "bounded"])
def test_an_example_of_a_tool_is_a_call_that_its_schema_accepts(name: str) -> None:
    schema = app.tools[name].definition.wire["inputSchema"]
    pairs = shlex.split(" ".join(example_arguments(schema)))
    assert list(Validator(schema).problems(read_arguments(pairs, schema))) == []
