"""How a call's arguments are checked and converted before the handler sees them."""

import datetime as dt
import uuid
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field, PastDate

from mcpfleet.app import InvalidArguments, Outcome, Problem
from mcpfleet.app.arguments import Texts
from mcpfleet.app.schema import MISSING, Parameter
from mcpfleet.app.validation import MAX_PROBLEMS

Call = Callable[..., Awaitable[Outcome]]


class Shelf(BaseModel):
    room: int
    label: Annotated[str, Field(max_length=3)] = "A"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


async def given(call: Call, annotation: Any, value: Any) -> Any:
    """Send one value to a parameter of a type, and answer with what the handler received."""
    received = []

    async def handler(value: Any) -> None:
        received.append(value)

    handler.__annotations__["value"] = annotation
    await call(handler, {"value": value})
    return received[0]


async def problems(call: Call, annotation: Any, value: Any) -> tuple[Problem, ...]:
    with pytest.raises(InvalidArguments) as caught:
        await given(call, annotation, value)
    return caught.value.problems


@pytest.mark.rule("D18")
@pytest.mark.parametrize(
    ("annotation", "value", "received"),
    [
        pytest.param(int, 2**53 + 1, 2**53 + 1, id="integer that no double holds"),
        pytest.param(int, 10**40, 10**40, id="large integer"),
        pytest.param(int, 42.0, 42, id="42.0 is the integer 42"),
        pytest.param(float, 1, 1.0, id="integer for a float"),
        pytest.param(int | str, "5", "5", id="string of a union stays"),
        pytest.param(int | float, 2**53 + 1, 2**53 + 1, id="integer of a union stays"),
        pytest.param(Any, {"a": [1, None]}, {"a": [1, None]}, id="anything"),
        pytest.param(str | None, None, None, id="null"),
        pytest.param(dt.date, "2026-07-28", dt.date(2026, 7, 28), id="date"),
        pytest.param(uuid.UUID, "00000000-0000-0000-0000-000000000001", uuid.UUID(int=1), id="uuid"),
        pytest.param(Decimal, "1.10", Decimal("1.10"), id="decimal"),
        pytest.param(Shelf, {"room": 1}, Shelf(room=1), id="model"),
        pytest.param(list[Shelf], [{"room": 1, "label": "B"}], [Shelf(room=1, label="B")], id="list of models"),
    ],
)
async def test_arguments_arrive_as_the_declared_types(call: Call, annotation: Any, value: Any, received: Any) -> None:
    found = await given(call, annotation, value)
    assert found == received
    assert type(found) is type(received)


@pytest.mark.parametrize(
    ("annotation", "value", "rule"),
    [
        pytest.param(int, "5", "must be integer", id="a string is no integer"),
        pytest.param(int, True, "must be integer", id="true is no integer"),
        pytest.param(int, 1.5, "must be integer", id="a fraction is no integer"),
        pytest.param(bool, "true", "must be boolean", id="a string is no boolean"),
        pytest.param(str, 5, "must be string", id="a number is no string"),
        pytest.param(int, None, "must be integer", id="null where none is declared"),
        pytest.param(int | None, "x", "must be integer or null", id="neither of two types"),
        pytest.param(Literal["a", "b"], "c", "must be one of a, b", id="literal"),
        pytest.param(Annotated[int, Field(ge=1)], 0, "must be at least 1", id="minimum"),
        pytest.param(Annotated[int, Field(lt=9)], 9, "must be less than 9", id="exclusive maximum"),
        pytest.param(Annotated[str, Field(min_length=2)], "s", "must have at least 2 characters", id="length"),
        pytest.param(Annotated[str, Field(pattern="^a+$")], "s3cret", "must match the pattern ^a+$", id="pattern"),
        pytest.param(
            Annotated[str, Field(pattern="^a+$", examples=["aa"])],
            "b",
            "must match the pattern ^a+$, such as aa",
            id="pattern with an example",
        ),
        pytest.param(Annotated[list[int], Field(max_length=1)], [1, 2], "must have at most 1 items", id="items"),
    ],
)
async def test_the_schema_is_the_contract_and_the_rule_is_named(
    call: Call, annotation: Any, value: Any, rule: str
) -> None:
    assert await problems(call, annotation, value) == (Problem("value", rule),)


async def test_a_problem_inside_a_value_has_its_path(call: Call) -> None:
    assert set(await problems(call, list[Shelf], [{"room": 1}, {"label": "long"}])) == {
        Problem("value[1].label", "must have at most 3 characters"),
        Problem("value[1].room", "is required"),
    }


async def test_an_optional_models_problem_is_the_models(call: Call) -> None:
    assert await problems(call, Shelf | None, {"room": "x"}) == (Problem("value.room", "must be integer"),)


async def test_a_tagged_unions_problem_is_the_tagged_models(call: Call) -> None:
    assert await problems(call, list[Cat | Dog], [{"kind": "dog"}]) == (Problem("value[0].name", "is required"),)


@pytest.mark.rule("T16")
async def test_names_that_the_caller_made_up_are_not_repeated(call: Call) -> None:
    assert await problems(call, dict[str, int], {"s3cret": "x"}) == (Problem("value.*", "must be integer"),)


@pytest.mark.rule("T16")
async def test_an_unknown_argument_is_refused_by_naming_the_known_ones(call: Call) -> None:
    async def read(book: int, page: int = 1) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        await call(read, {"book": 1, "s3cret": 2})
    assert caught.value.problems == (Problem("", "may only have the members book, page"),)
    assert str(caught.value) == "Invalid arguments: may only have the members book, page"


async def test_a_missing_argument_is_named(call: Call) -> None:
    async def read(book: int) -> None: ...

    with pytest.raises(InvalidArguments, match=r"^Invalid arguments: book: is required$"):
        await call(read)


def even(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


@pytest.mark.rule("T16")
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        pytest.param(Annotated[int, AfterValidator(even)], 31337, id="the author's validator"),
        pytest.param(dt.date, "31337", id="a date's form"),
        pytest.param(uuid.UUID, "31337", id="a uuid's form"),
        pytest.param(int, "31337", id="a type"),
        pytest.param(Literal["a"], "31337", id="a literal"),
        pytest.param(dict[Literal["a"], int], {"31337": 1}, id="a key"),
        pytest.param(dict[uuid.UUID, int], {"31337": 1}, id="a converted key"),
        pytest.param(Annotated[str, Field(pattern="^a$")], "31337", id="a pattern"),
    ],
)
async def test_no_refusal_repeats_the_value(call: Call, annotation: Any, value: Any) -> None:
    found = await problems(call, annotation, value)
    assert found
    assert "31337" not in str(InvalidArguments(found))


async def test_what_pydantic_refuses_after_the_schema_has_its_path(call: Call) -> None:
    assert await problems(call, list[PastDate], ["2020-07-28", "9999-01-01"]) == (
        Problem("value[1]", "must be in the past"),
    )


async def test_the_problems_of_one_answer_are_bounded(call: Call) -> None:
    assert len(await problems(call, list[int], ["x"] * 100)) == MAX_PROBLEMS


async def test_an_absent_argument_is_left_to_the_functions_own_default(call: Call) -> None:
    fallback = Shelf(room=7)
    received = []

    async def put(shelf: Shelf = fallback) -> None:
        received.append(shelf)

    await call(put)
    assert received[0] is fallback


@pytest.mark.rule("D18")
async def test_a_lone_surrogate_in_a_refused_value_is_what_is_named(call: Call) -> None:
    assert await problems(call, int, "\ud800") == (Problem("", "a string holds a lone surrogate"),)


@pytest.mark.parametrize(
    ("annotation", "text", "why"),
    [
        pytest.param(int, "many", "must be integer", id="an integer"),
        pytest.param(float, "many", "must be number", id="a number"),
        pytest.param(Decimal, "many", "must be number", id="a decimal"),
        pytest.param(bool, "many", "must be boolean", id="a boolean"),
        pytest.param(dt.datetime, "soon", "must be a date and a time with its zone", id="a moment"),
        pytest.param(dt.time, "soon", "must be a time of day, such as 09:30:00", id="a time"),
        pytest.param(dt.timedelta, "long", "must be a duration (ISO 8601), such as PT1H30M", id="a duration"),
        pytest.param(uuid.UUID, "x", "must be a UUID, such as", id="a UUID"),
        pytest.param(Literal["a", "b"], "c", "must be 'a' or 'b'", id="a choice"),
        pytest.param(Annotated[int, Field(ge=20)], "5", "must be at least 20", id="a bound"),
        pytest.param(Annotated[str, Field(max_length=2)], "abc", "must have at most 2 characters", id="a length"),
    ],
)
def test_a_text_that_does_not_parse_is_refused_in_words(annotation: Any, text: str, why: str) -> None:
    texts = Texts([Parameter("value", annotation, MISSING)])
    with pytest.raises(InvalidArguments) as caught:
        texts.read({"value": text})
    assert str(caught.value).startswith(f"Invalid arguments: value: {why}")
