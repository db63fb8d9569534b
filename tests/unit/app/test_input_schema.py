"""The input schema that a signature gives."""

import datetime as dt
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from mcpfleet.app import Context, Tool

Declare = Callable[..., Tool]


class Shelf(BaseModel):
    """Where a book stands."""

    room: int
    row: str | None = None


@dataclass
class Loan:
    shelf: Shelf
    weeks: int = 3


class Tone(enum.Enum):
    DRY = "dry"
    WARM = "warm"


def schema_of(declare: Declare, handler: Any) -> Any:
    return declare(handler).definition.wire["inputSchema"]


@pytest.mark.rule("M37")
def test_no_parameters_accept_only_the_empty_object(declare: Declare) -> None:
    async def ping() -> str: ...  # type: ignore[empty-body]

    assert schema_of(declare, ping) == {"type": "object", "additionalProperties": False}


def test_the_context_is_no_argument(declare: Declare) -> None:
    async def ping(ctx: Context) -> str: ...  # type: ignore[empty-body]

    assert schema_of(declare, ping) == {"type": "object", "additionalProperties": False}


@pytest.mark.rule("M37")
def test_parameters_become_the_properties_of_an_object(declare: Declare) -> None:
    async def search(query: str, limit: int, ctx: Context, exact: bool = False) -> str: ...  # type: ignore[empty-body]

    assert schema_of(declare, search) == {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": "integer"},
            "exact": {"type": "boolean", "default": False},
        },
        "required": ["query", "limit"],
        "additionalProperties": False,
    }


def test_a_field_describes_and_bounds_a_parameter(declare: Declare) -> None:
    async def read(page: Annotated[int, Field(description="Counted from 1.", ge=1, le=999)] = 1) -> None: ...

    assert schema_of(declare, read)["properties"]["page"] == {
        "type": "integer",
        "description": "Counted from 1.",
        "minimum": 1,
        "maximum": 999,
        "default": 1,
    }


def test_nested_types_stand_where_they_are_used(declare: Declare) -> None:
    async def move(loan: Loan, to: Shelf, via: list[Shelf]) -> str: ...  # type: ignore[empty-body]

    schema = schema_of(declare, move)
    assert "$defs" not in schema
    shelf = schema["properties"]["to"]
    assert set(shelf["properties"]) == {"room", "row"}
    assert schema["properties"]["via"]["items"] == shelf
    assert schema["properties"]["loan"]["properties"]["shelf"] == shelf


@pytest.mark.parametrize(
    ("annotation", "default", "written"),
    [
        pytest.param(str | None, None, None, id="null"),
        pytest.param(Tone, Tone.DRY, "dry", id="enum member"),
        pytest.param(dt.date, dt.date(2026, 7, 28), "2026-07-28", id="date"),
        pytest.param(Shelf, Shelf(room=2), {"room": 2, "row": None}, id="model"),
        pytest.param(int, 2**70, 2**70, id="large integer"),
        pytest.param(float, 1, 1, id="integer for a float"),
        pytest.param(Literal["a", "b"], "b", "b", id="literal"),
        pytest.param(list[int], [], [], id="empty list"),
    ],
)
def test_a_default_is_shown_as_json(declare: Declare, annotation: Any, default: Any, written: Any) -> None:
    async def tool(value: str = "") -> str: ...  # type: ignore[empty-body]

    tool.__annotations__["value"] = annotation
    tool.__defaults__ = (default,)
    schema = schema_of(declare, tool)
    assert schema["properties"]["value"]["default"] == written
    assert "required" not in schema


def test_names_that_pydantic_models_reserve_are_ordinary_parameters(declare: Declare) -> None:
    async def odd(schema: str, model_config: int, copy: bool, _private: str) -> str: ...  # type: ignore[empty-body]

    assert list(schema_of(declare, odd)["properties"]) == ["schema", "model_config", "copy", "_private"]


def test_titles_that_repeat_a_name_are_left_out(declare: Declare) -> None:
    async def put(shelf: Shelf) -> str: ...  # type: ignore[empty-body]

    shelf = schema_of(declare, put)["properties"]["shelf"]
    assert "title" not in shelf["properties"]["room"]
    assert shelf["description"] == "Where a book stands."
