"""Forms: the flat schemas that clients show, and what is made of their answers (M54, M55)."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import AnyUrl, BaseModel, Field, field_validator
from typing_extensions import TypedDict

from mcpfleet.app import AskError
from mcpfleet.app.form import form_of
from mcpfleet.app.input import Unusable
from mcpfleet.app.question import form


class Colour(Enum):
    """Not for people."""

    RED = "red"
    GREEN = "green"


class Everything(BaseModel):
    """A field of each kind."""

    name: str = Field("Ann", title="Name", description="Yours.", min_length=1, max_length=9)
    age: int = Field(30, ge=0, le=150)
    score: float = 0.5
    sure: bool = True
    colour: Colour = Colour.RED
    speed: Literal["slow", "fast"] = "slow"
    only: Literal["one"] = "one"
    titled: Literal["s", "f"] = Field(
        "s", json_schema_extra={"oneOf": [{"const": "s", "title": "Slow"}, {"const": "f", "title": "Fast"}]}
    )
    several: list[Literal["a", "b"]] = Field(["a"], min_length=1, max_length=2)
    colours: set[Colour] = {Colour.RED}
    day: dt.date | None = None
    moment: dt.datetime | None = None
    page: AnyUrl | None = None
    mail: Annotated[str | None, Field(json_schema_extra={"format": "email"})] = None


@pytest.mark.rule("M54")
def test_a_form_is_flat_and_keeps_its_defaults() -> None:
    schema = form_of(Everything).schema
    assert "$defs" not in str(schema)
    assert "anyOf" not in str({name: each for name, each in schema["properties"].items() if name != "several"})
    assert schema["properties"] == {
        "name": {
            "type": "string",
            "title": "Name",
            "description": "Yours.",
            "minLength": 1,
            "maxLength": 9,
            "default": "Ann",
        },
        "age": {"type": "integer", "minimum": 0, "maximum": 150, "default": 30},
        "score": {"type": "number", "default": 0.5},
        "sure": {"type": "boolean", "default": True},
        "colour": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "speed": {"type": "string", "enum": ["slow", "fast"], "default": "slow"},
        "only": {"type": "string", "enum": ["one"], "default": "one"},
        "titled": {
            "type": "string",
            "oneOf": [{"const": "s", "title": "Slow"}, {"const": "f", "title": "Fast"}],
            "default": "s",
        },
        "several": {
            "type": "array",
            "items": {"type": "string", "enum": ["a", "b"]},
            "minItems": 1,
            "maxItems": 2,
            "default": ["a"],
        },
        "colours": {"type": "array", "items": {"type": "string", "enum": ["red", "green"]}, "default": ["red"]},
        "day": {"type": "string", "format": "date"},
        "moment": {"type": "string", "format": "date-time"},
        "page": {"type": "string", "format": "uri", "minLength": 1},
        "mail": {"type": "string", "format": "email"},
    }
    assert "required" not in schema


@pytest.mark.rule("M54")
def test_what_has_no_default_is_required() -> None:
    class Name(BaseModel):
        name: str

    assert form_of(Name).schema == {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }


@dataclass
class AsDataclass:
    name: str


class AsDict(TypedDict):
    name: str


@pytest.mark.parametrize("wanted", [AsDataclass, AsDict])
def test_a_form_may_be_a_dataclass_or_a_typed_dict(wanted: Any) -> None:
    assert form_of(wanted).read({"name": "Ann"}) == wanted(name="Ann")


def test_a_schema_of_the_authors_own_gives_a_dict() -> None:
    form = form_of({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    assert form.read({"n": 1}) == {"n": 1}
    with pytest.raises(Unusable):
        form.read({"n": "1"})


class Inner(BaseModel):
    x: int


class Level(IntEnum):
    LOW = 1


def with_field(annotation: Any) -> type[BaseModel]:
    return type("Asked", (BaseModel,), {"__annotations__": {"field": annotation}, "__module__": __name__})


@pytest.mark.rule("M54")
@pytest.mark.parametrize(
    "annotation",
    [
        Inner,
        list[int],
        list[Inner],
        dict[str, int],
        int | str,
        Level,
        Literal[1, 2],
        bytes | int,
        dt.time,
        Annotated[str, Field(pattern="^a")],
        Annotated[int, Field(gt=5)],
        Annotated[str, Field(json_schema_extra={"oneOf": [{"const": "a"}]})],
        Any,
    ],
)
def test_what_no_form_can_show_is_refused_by_model_and_field(annotation: Any) -> None:
    with pytest.raises(AskError, match=r"Asked\.field: "):
        form_of(with_field(annotation))


@pytest.mark.rule("M54")
@pytest.mark.parametrize("wanted", [int, str, list[int], {"type": "string"}, {"type": "object"}])
def test_a_form_has_fields(wanted: Any) -> None:
    with pytest.raises(AskError, match="fields"):
        form_of(wanted)


@pytest.mark.rule("M55")
@pytest.mark.parametrize(
    "content",
    [
        5,
        None,
        {"name": ""},
        {"name": 5},
        {"age": 200},
        {"age": "30"},
        {"speed": "never"},
        {"titled": "x"},
        {"several": []},
        {"several": ["c"]},
        {"day": "tomorrow"},
        {"mail": "nobody"},
    ],
)
def test_an_answer_that_breaks_the_form_is_unusable(content: Any) -> None:
    with pytest.raises(Unusable):
        form_of(Everything).read(content)


@pytest.mark.rule("M55")
def test_an_answer_becomes_the_model() -> None:
    filled = form_of(Everything).read({"name": "Ben", "day": "2026-01-31", "colour": "green", "page": None})
    assert (filled.name, filled.day, filled.colour, filled.page) == ("Ben", dt.date(2026, 1, 31), Colour.GREEN, None)


@pytest.mark.rule("M55")
def test_an_authors_validator_is_asked_too() -> None:
    class Even(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def _even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("odd")
            return value

    assert form_of(Even).read({"number": 2}).number == 2
    with pytest.raises(Unusable):
        form_of(Even).read({"number": 3})


@pytest.mark.rule("L22")
@pytest.mark.parametrize("answer", [{"action": "accept"}, {"action": "accept", "content": None}])
def test_an_accepted_form_without_content_is_an_empty_one(answer: dict[str, Any]) -> None:
    class Wish(BaseModel):
        name: str = "nobody"

    assert form("Who?", Wish).read(answer).name == "nobody"
