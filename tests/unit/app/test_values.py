"""Ordinary values on their way in and out: bytes, dates and times, identifiers, amounts, enums, paths and addresses."""

from __future__ import annotations

import base64
import datetime as dt
import enum
import re
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AnyUrl, AwareDatetime, Base64Bytes, Base64UrlBytes, BaseModel, Field, NaiveDatetime
from pydantic_core import to_json
from typing_extensions import TypedDict

from mcpfleet.app import App, AskError, Context, DeclarationError, InvalidArguments, Outcome, OutputError, Request, Tool
from mcpfleet.app.form import form_of
from mcpfleet.app.function import run_step
from mcpfleet.app.handler import Answer
from mcpfleet.app.input import NOBODY
from mcpfleet.contracts.task_payloads import write_kept

Call = Callable[..., Awaitable[Outcome]]
Declare = Callable[..., Tool]

RAW = bytes(range(256))
SENT = base64.b64encode(RAW).decode()
UTC = dt.timezone.utc  # noqa: UP017  # as an author may write it


class Tone(enum.Enum):
    DRY = "dry"


class Picture(BaseModel):
    data: bytes
    thumbnails: dict[str, bytes] = {}


@dataclass
class Album:
    cover: Picture
    default: bytes = b""
    """Its name is also a word of pydantic's own."""
    pictures: list[Picture] = field(default_factory=list)


class Tree(BaseModel):
    leaf: bytes = b"x"
    below: list[Tree] = []


class Named(TypedDict):
    raw: bytes


class Sealed(BaseModel):
    own: Base64Bytes
    safe: Base64UrlBytes


async def round_trip(call: Call, annotation: Any, value: Any) -> tuple[Any, Any]:
    """Send a value to a tool that returns what it received; answer with what it received, and what came back."""
    received = []

    async def echo(value: Any) -> Any:
        received.append(value)
        return value

    echo.__annotations__ |= {"value": annotation, "return": dict[str, annotation]}
    outcome = await call(lambda_of(echo, annotation), {"value": value})
    return received[0], outcome.structured["value"]


def lambda_of(echo: Callable[[Any], Awaitable[Any]], annotation: Any) -> Any:
    """Wrap the result, so that text is data too."""

    async def wrapped(value: Any) -> Any:
        return {"value": await echo(value)}

    wrapped.__annotations__ = {"value": annotation, "return": dict[str, annotation]}
    return wrapped


@pytest.mark.rule("D18", "M88")
@pytest.mark.parametrize(
    ("annotation", "sent", "received"),
    [
        pytest.param(bytes, SENT, RAW, id="bytes"),
        pytest.param(bytes, "", b"", id="no bytes"),
        pytest.param(bytes | None, SENT, RAW, id="bytes or null"),
        pytest.param(list[bytes], [SENT], [RAW], id="a list of bytes"),
        pytest.param(tuple[bytes, int], [SENT, 1], (RAW, 1), id="a tuple"),
        pytest.param(Annotated[bytes, Field(max_length=256)], SENT, RAW, id="bounded bytes"),
        pytest.param(Picture, {"data": SENT, "thumbnails": {"s": SENT}}, None, id="a model"),
        pytest.param(
            Album, {"cover": {"data": SENT, "thumbnails": {}}, "default": SENT, "pictures": []}, None, id="dc"
        ),
        pytest.param(Tree, {"leaf": SENT, "below": [{"leaf": SENT, "below": []}]}, None, id="a recursive model"),
        pytest.param(Named, {"raw": SENT}, {"raw": RAW}, id="a TypedDict"),
        pytest.param(Sealed, {"own": SENT, "safe": "_-8="}, None, id="types with forms of their own"),
        pytest.param(dt.date, "2026-01-31", dt.date(2026, 1, 31), id="a date"),
        pytest.param(dt.datetime, "2026-01-31T09:30:00Z", dt.datetime(2026, 1, 31, 9, 30, tzinfo=UTC), id="a moment"),
        pytest.param(AwareDatetime, "2026-01-31T09:30:00.500000+02:00", None, id="a moment elsewhere"),
        pytest.param(NaiveDatetime, "2026-01-31T09:30:00", dt.datetime(2026, 1, 31, 9, 30), id="without zone"),  # noqa: DTZ001
        pytest.param(dt.time, "09:30:00", dt.time(9, 30), id="a time of day"),
        pytest.param(dt.time, "09:30:00Z", dt.time(9, 30, tzinfo=UTC), id="a time of day with its zone"),
        pytest.param(dt.timedelta, "PT0.5S", dt.timedelta(seconds=0.5), id="half a second"),
        pytest.param(dt.timedelta, "-P1DT2H", -dt.timedelta(days=1, hours=2), id="a negative duration"),
        pytest.param(uuid.UUID, str(uuid.UUID(int=7)), uuid.UUID(int=7), id="an identifier"),
        pytest.param(Decimal, "1.10", Decimal("1.10"), id="an amount"),
        pytest.param(Tone, "dry", Tone.DRY, id="an enum"),
        pytest.param(Path, "/srv/a b", Path("/srv/a b"), id="a path"),
        pytest.param(AnyUrl, "https://example.com/a%20b", AnyUrl("https://example.com/a%20b"), id="an address"),
    ],
)
async def test_a_value_arrives_as_its_type_and_returns_as_it_came(
    call: Call, annotation: Any, sent: Any, received: Any
) -> None:
    found, returned = await round_trip(call, annotation, sent)
    assert received is None or found == received
    assert returned == sent


@pytest.mark.rule("D18", "M88")
@pytest.mark.parametrize(
    ("annotation", "value", "why"),
    [
        pytest.param(bytes, "a", "value: must be Base64 with its padding", id="no Base64"),
        pytest.param(bytes, "YWJj\n", "value: must be Base64", id="a line end"),
        pytest.param(bytes, "_-8=", "value: must be Base64", id="the alphabet for addresses"),
        pytest.param(bytes, "größe===", "value: must be Base64", id="other letters"),
        pytest.param(Picture, {"data": "?"}, r"value\.data: must be Base64", id="in a model"),
        pytest.param(Annotated[bytes, Field(max_length=3)], "YWJjZA==", "at most 4 characters", id="too many bytes"),
        pytest.param(Annotated[bytes, Field(min_length=2)], "YQ==", "must have at least 2 bytes", id="too few bytes"),
        pytest.param(dt.date, "2026-01-31T00:00:00", "must be a date, such as", id="a moment for a date"),
        pytest.param(dt.date, "1769817600", "must be a date", id="a number of seconds"),
        pytest.param(dt.datetime, "2026-01-31T09:30:00", "with its zone", id="a moment without zone"),
        pytest.param(dt.datetime, "2026-01-31", "with its zone", id="a date for a moment"),
        pytest.param(NaiveDatetime, "2026-01-31T09:30:00Z", "and a time without a zone, such as", id="a zone too many"),
        pytest.param(dt.time, "9:30", "must be a time of day, such as 09:30:00", id="a short hour"),
        pytest.param(dt.timedelta, "01:00:00", "must be a duration .*, such as PT1H30M", id="hours for a duration"),
        pytest.param(uuid.UUID, "urn:uuid:00000000-0000-4000-8000-000000000000", "must be a UUID", id="a urn"),
        pytest.param(AnyUrl, "example.com", "must be a URI with its scheme", id="no scheme"),
        pytest.param(AnyUrl, "http://a b", "must be a URI", id="a space"),
    ],
)
async def test_a_value_in_another_form_is_refused_in_words(call: Call, annotation: Any, value: Any, why: str) -> None:
    with pytest.raises(InvalidArguments, match=why):
        await round_trip(call, annotation, value)


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        pytest.param(bytes, {"type": "string", "contentEncoding": "base64"}, id="bytes"),
        pytest.param(
            Annotated[bytes, Field(min_length=1, max_length=4)],
            {"type": "string", "contentEncoding": "base64", "minLength": 4, "maxLength": 8},
            id="bounds count in the text",
        ),
        pytest.param(dt.datetime, {"type": "string", "format": "date-time"}, id="a moment"),
        pytest.param(dt.date, {"type": "string", "format": "date"}, id="a date"),
        pytest.param(uuid.UUID, {"type": "string", "format": "uuid"}, id="an identifier"),
        pytest.param(Path, {"type": "string", "format": "path"}, id="a path"),
        pytest.param(Base64UrlBytes, {"type": "string", "format": "base64url"}, id="a form of its own"),
    ],
)
def test_the_schema_says_the_form(declare: Declare, annotation: Any, schema: dict[str, Any]) -> None:
    async def take(value: Any) -> Any: ...

    take.__annotations__ |= {"value": annotation, "return": list[annotation]}
    wire = declare(take).definition.wire
    assert wire["inputSchema"]["properties"]["value"] == schema
    assert wire["outputSchema"]["items"] == schema


@pytest.mark.rule("M39")
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        pytest.param(list[dt.datetime], [dt.datetime(2026, 1, 31, 9, 30)], id="a moment without zone"),  # noqa: DTZ001
        pytest.param(list[AnyUrl], [AnyUrl("http://example.com/?a|b")], id="an address that RFC 3986 does not know"),
    ],
)
async def test_a_result_that_breaks_its_format_is_an_error(call: Call, annotation: Any, value: Any) -> None:
    async def give() -> Any:
        return value

    give.__annotations__["return"] = annotation
    with pytest.raises(OutputError, match="breaks its output schema"):
        await call(give)


def test_a_default_that_clients_could_not_send_is_a_mistake(declare: Declare) -> None:
    async def at(when: dt.datetime = dt.datetime(2026, 1, 31)) -> None: ...  # noqa: DTZ001

    with pytest.raises(DeclarationError, match=r"the default does not fit .*zone"):
        declare(at)


async def test_bytes_have_a_default_in_base64(declare: Declare, call: Call) -> None:
    received = []

    async def take(value: bytes = RAW) -> None:
        received.append(value)

    assert declare(take).definition.wire["inputSchema"]["properties"]["value"]["default"] == SENT
    await call(take)
    await call(take, {"value": SENT})
    assert received == [RAW, RAW]


async def test_bytes_beside_text_in_a_union_are_written_as_base64_and_text_as_itself(call: Call) -> None:
    async def give() -> list[bytes | str]:
        return [b"\xff", "text"]

    async def turned() -> list[str | bytes]:
        return [b"\xff", "text"]

    assert (await call(give)).structured == (await call(turned)).structured == ["/w==", "text"]


async def test_a_patterns_format_only_describes(call: Call) -> None:
    found, _ = await round_trip(call, re.Pattern, r"(?P<a>x)(?P=a)")
    assert found.pattern == r"(?P<a>x)(?P=a)"


async def test_a_resource_writes_bytes_within_its_json_as_base64() -> None:
    app = App("test")

    @app.resource("test://picture")
    def picture() -> Picture:
        return Picture(data=RAW)

    answer = await app.reads["test://picture"].answer(Request(uri="test://picture"), Context())
    assert isinstance(answer, Answer)
    assert SENT in answer.members["contents"][0]["text"]


async def test_a_prompt_reads_bytes_from_base64() -> None:
    app = App("test")

    @app.prompt()
    def show(data: bytes) -> str:
        return data.decode()

    answer = await app.prompts["show"].answer(Request({"data": "YWJj"}), Context())
    assert isinstance(answer, Answer)
    assert answer.members["messages"][0]["content"]["text"] == "abc"
    with pytest.raises(InvalidArguments, match="data: must be Base64"):
        await app.prompts["show"].answer(Request({"data": "?"}), Context())


@pytest.mark.rule("K13")
async def test_a_sanitizer_of_a_task_gets_the_bytes_back(declare: Declare) -> None:
    seen = []

    async def give() -> Picture:
        return Picture(data=RAW)

    def cleared(found: Picture, ctx: Context) -> Picture:
        seen.append(found.data)
        return found

    tool = declare(give, sanitize=cleared, task="required")
    kept = tool._returns.kept(Picture(data=RAW))
    kept_text = write_kept(kept.shape, to_json({**kept.fields(), "_meta": None}))
    await tool.sanitize_kept(kept_text.decode(), Context())
    assert seen == [RAW]


async def test_a_step_may_return_bytes() -> None:
    async def load() -> bytes:
        return RAW

    assert await run_step(NOBODY, "load", load, (), None) == RAW


@pytest.mark.rule("M54")
def test_a_form_has_no_bytes() -> None:
    class Upload(BaseModel):
        data: bytes

    with pytest.raises(AskError, match=r"data.*contentEncoding"):
        form_of(Upload)
