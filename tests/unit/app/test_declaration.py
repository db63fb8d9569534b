"""A mistake in a declaration is an error at import that names the function and the parameter."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from mcp_types import Icon
from pydantic import Field, create_model

from mcpfleet.app import App, Context, DeclarationError, Router, ToolError
from mcpfleet.app.declaration import ASKS
from mcpfleet.contracts.manifest import MOST_DEFINITIONS


class Opaque:
    """A type without a JSON Schema."""


async def fine(query: str) -> str:
    return query


async def other(title: str) -> str:
    return title


async def unannotated(query) -> None: ...  # type: ignore[no-untyped-def]


async def many(*queries: str) -> None: ...


async def keywords(**queries: str) -> None: ...


async def positional(query: str, /) -> None: ...


async def opaque(query: Opaque) -> None: ...


async def looks_ahead(query: Annotated[str, Field(pattern="^(?=a)b")]) -> None: ...


def _nested(depth: int) -> Any:
    models: list[Any] = [create_model("Inmost", value=(int, ...))]
    for number in range(depth):
        models.append(create_model(f"Model{number}", inner=(models[-1], ...)))
    return models[-1]


async def nested(query: Any) -> None: ...


nested.__annotations__["query"] = _nested(150)


async def callback(query: Callable[[], None]) -> None: ...


async def lost(query: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821


async def twice(first: Context, second: Context) -> None: ...


async def perhaps(ctx: Context | None = None) -> None: ...


async def wrong_default(page: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013


async def low_default(page: Annotated[int, Field(ge=1)] = 0) -> None: ...


async def unwritable_default(page: Any = object()) -> None: ...  # noqa: B008


async def endless_default(ratio: float = float("inf")) -> None: ...


async def field_as_default(page: int = Field(default=1, ge=1)) -> None: ...


async def default_in_field(page: Annotated[int, Field(default=1)]) -> None: ...


async def opaque_result() -> Opaque:
    return Opaque()


async def lost_result() -> "Missing":  # type: ignore[name-defined]  # noqa: F821
    ...


@pytest.mark.parametrize(
    ("handler", "parameter", "why"),
    [
        pytest.param(unannotated, "query", "no annotation", id="unannotated parameter"),
        pytest.param(many, "queries", "name each parameter", id="*args"),
        pytest.param(keywords, "queries", "name each parameter", id="**kwargs"),
        pytest.param(positional, "query", "positional-only", id="positional-only"),
        pytest.param(opaque, "query", "not a type that JSON can carry", id="type without a schema"),
        pytest.param(looks_ahead, "query", "look-around.* is not supported", id="pattern that pydantic cannot read"),
        pytest.param(nested, "query", "nested too deeply", id="models in models in models"),
        pytest.param(callback, "query", "not a type that JSON can carry", id="callable"),
        pytest.param(lost, "query", "does not resolve", id="annotation that does not resolve"),
        pytest.param(twice, "second", "one is enough", id="two Contexts"),
        pytest.param(perhaps, "ctx", "`Context` alone", id="optional Context"),
        pytest.param(wrong_default, "page", "must be integer", id="default of another type"),
        pytest.param(low_default, "page", "must be at least 1", id="default out of bounds"),
        pytest.param(unwritable_default, "page", "as JSON", id="default that is no JSON"),
        pytest.param(endless_default, "ratio", "as JSON", id="default that is not finite"),
        pytest.param(field_as_default, "page", "Annotated", id="Field as the default"),
        pytest.param(default_in_field, "page", "Annotated", id="default inside Field"),
        pytest.param(opaque_result, "return", "not a type that JSON can carry", id="result without a schema"),
        pytest.param(lost_result, "return", "does not resolve", id="result that does not resolve"),
    ],
)
def test_the_error_names_function_file_line_and_parameter(
    handler: Callable[..., Any], parameter: str, why: str
) -> None:
    with pytest.raises(DeclarationError, match=why) as caught:
        App("test", version="1").tool()(handler)
    code = handler.__code__
    assert caught.value.parameter == parameter
    assert f"{handler.__module__}.{handler.__qualname__}" in str(caught.value)
    assert f"{Path(__file__).name}:{code.co_firstlineno}" in str(caught.value)
    assert repr(parameter) in str(caught.value)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        pytest.param({"name": ""}, "1 to 128 characters", id="M36 empty name"),
        pytest.param({"name": "a" * 129}, "1 to 128 characters", id="M36 name of 129 characters"),
        pytest.param({"name": "two words"}, "1 to 128 characters", id="M36 space"),
        pytest.param({"name": "größe"}, "1 to 128 characters", id="M36 other letters"),
        pytest.param({"name": "line\n"}, "1 to 128 characters", id="M36 line end"),
        pytest.param({"timeout": 0}, "timeout", id="no time"),
        pytest.param({"timeout": float("inf")}, "timeout", id="endless time"),
        pytest.param({"timeout": float("nan")}, "timeout", id="no number"),
        pytest.param({"timeout": 86_401}, "timeout", id="over a day"),
        pytest.param({"scopes": [f"s{number}" for number in range(65)]}, "scopes", id="too many scopes"),
        pytest.param({"on_disconnect": "stop"}, "on_disconnect", id="unknown on_disconnect"),
        pytest.param({"asks": {"elicitation"}}, "elicitation.form", id="D16 unknown ask"),
        pytest.param({"scopes": ["two words"]}, "scope", id="scope with a space"),
        pytest.param({"scopes": "holds:write"}, "a collection of strings", id="scopes as one string"),
        pytest.param({"asks": "roots"}, "a collection of strings", id="asks as one string"),
        pytest.param({"may_ask": {"elicitation"}}, "may_ask has", id="D16 unknown may_ask"),
        pytest.param({"only_for": ["acme"]}, "only_for", id="D10 a pattern of nobody"),
        pytest.param({"only_for": ["tenant:two words"]}, "only_for", id="D10 a pattern with a space"),
        pytest.param({"only_for": "tenant:acme"}, "a collection of strings", id="only_for as one string"),
        pytest.param({"revisions": "2025-11-25"}, "a collection of strings", id="X61 revisions as one string"),
        pytest.param({"revisions": ["2024-11-05"]}, "known are '2025-06-18'", id="X61 unknown revision"),
        pytest.param({"scopes_if": {"two words": {}}}, "scope", id="X55 scope with a space"),
        pytest.param({"scopes_if": {"large": True}}, "maps scopes", id="X55 no schema"),
        pytest.param({"scopes_if": ["large"]}, "maps scopes", id="X55 a list"),
        pytest.param({"scopes_if": {"large": {"type": "no"}}}, "'large': the schema is not", id="X55 a bad schema"),
        pytest.param(
            {"scopes_if": {"large": {"properties": {"pages": {"minimum": 9}}}}},
            "names the argument 'pages', and the tool has 'query'",
            id="X55 another argument",
        ),
        pytest.param({"scopes_if": {"large": {"required": ["page"]}}}, "'page', and the tool", id="X55 required"),
        pytest.param({"scopes_if": {f"s{number}": {} for number in range(65)}}, "over 64", id="X55 too many"),
        pytest.param({"rate": (0, 60)}, "rate", id="M40 no calls"),
        pytest.param({"rate": 5}, "rate", id="M40 no pair"),
        pytest.param({"icons": [Icon(src="http://example.com/a.png")]}, "https: or data:", id="M28 http icon"),
        pytest.param({"icons": [Icon(src="javascript:alert(1)")]}, "https: or data:", id="M28 script icon"),
    ],
)
@pytest.mark.rule("M28", "D16", "D10", "X55", "X61")
def test_a_bad_option_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(DeclarationError, match=why) as caught:
        App("test", version="1").tool(**options)(fine)
    assert "fine" in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"name": "a"}, id="M36 one character"),
        pytest.param({"name": "a" * 128}, id="M36 128 characters"),
        pytest.param({"name": "Admin.tools_list-2"}, id="M36 each kind of character"),
        pytest.param({"icons": [Icon(src="https://example.com/a.png")]}, id="M28 https icon"),
        pytest.param({"icons": [Icon(src="data:image/png;base64,AA==")]}, id="M28 icon inside"),
        pytest.param({"asks": ASKS}, id="D16 all"),
        pytest.param({"asks": ["roots"]}, id="D16 as a list"),
        pytest.param({"scopes_if": {"long": {"properties": {"query": {"minLength": 9}}}}}, id="X55 a condition"),
        pytest.param({"scopes": ["holds:write", "https://example.com/auth/read"]}, id="scopes"),
    ],
)
@pytest.mark.rule("M28", "M36", "D16", "X55")
def test_a_good_option_is_taken(options: dict[str, Any]) -> None:
    App("test", version="1").tool(**options)(fine)


def test_a_name_is_declared_once_and_the_error_shows_the_other_function() -> None:
    app = App("test", version="1")
    app.tool()(fine)
    with pytest.raises(DeclarationError, match=r"taken by .*fine \(.*test_declaration\.py:\d+\)"):
        app.tool(name="fine")(other)


def test_an_app_has_a_most_of_tools() -> None:
    app = App("test", version="1")
    for number in range(MOST_DEFINITIONS):
        app.tool(f"t{number}")(fine)
    with pytest.raises(DeclarationError, match=str(MOST_DEFINITIONS)):
        app.tool()(fine)
    assert len(app.manifest().definitions) == MOST_DEFINITIONS


def test_a_refused_declaration_leaves_nothing_behind() -> None:
    app = App("test", version="1")
    with pytest.raises(DeclarationError):
        app.tool()(opaque)
    assert dict(app.tools) == {}


def generator() -> Iterator[str]:
    yield "line"


async def async_generator() -> AsyncIterator[str]:
    yield "line"


@pytest.mark.parametrize("handler", [generator, async_generator])
def test_a_generator_is_no_handler(handler: Callable[..., Any]) -> None:
    with pytest.raises(DeclarationError, match="generator"):
        App("test", version="1").tool()(handler)


def test_the_decorator_needs_its_parentheses() -> None:
    app = App("test", version="1")
    with pytest.raises(DeclarationError, match=r"fine.*@app\.tool\(\)"):
        app.tool(fine)  # type: ignore[arg-type]


def test_the_decorated_function_stays_itself() -> None:
    assert App("test", version="1").tool()(fine) is fine


def test_a_decorated_function_is_found_below_its_decorator() -> None:
    @functools.wraps(opaque)
    async def wrapper(*args: Any, **kwargs: Any) -> None: ...

    with pytest.raises(DeclarationError, match=r"\.opaque \(") as caught:
        App("test", version="1").tool()(wrapper)
    assert caught.value.parameter == "query"


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("library", "")])
def test_an_app_needs_a_name_and_a_version(name: str, version: str) -> None:
    with pytest.raises(DeclarationError):
        App(name, version=version)


def test_a_tool_error_is_no_declaration_error() -> None:
    assert not issubclass(DeclarationError, ToolError)


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (
            lambda app: app.tool(descripton="x"),
            r"fine \(.*\): @app\.tool\(\) .*'descripton': did you mean 'description'",
        ),
        (lambda app: app.tool(anotations=None), "did you mean 'annotations'"),
        (lambda app: app.prompt(tilte="x"), r"@app\.prompt\(\) .*did you mean 'title'"),
        (lambda app: app.resource("test://{query}", mimetype="text/plain"), "did you mean 'mime_type'"),
        (lambda app: app.resources(xyz=1), r"@app\.resources\(\) has no argument 'xyz': it has 'asks', "),
    ],
)
def test_an_unknown_argument_of_a_declaration_is_named_with_the_one_that_was_meant(
    declare: Callable[[App], Callable[[Any], Any]], why: str
) -> None:
    with pytest.raises(DeclarationError, match=why):
        declare(App("test", version="1"))(fine)


@pytest.mark.parametrize(("make", "why"), [(App, "App"), (Router, "Router")])
def test_an_unknown_argument_of_an_app_is_named_with_its_line(make: Callable[..., Any], why: str) -> None:
    given = {"name": "test"} if make is App else {}
    with pytest.raises(DeclarationError, match=rf"test_declaration\.py:\d+\): {why} .*did you mean 'lifespan'\?"):
        make(**given, lifespn=None)


async def opens() -> AsyncIterator[int]:
    yield 1


def yields() -> Iterator[int]:
    yield 1


async def returns() -> int:
    return 1


async def takes_two(app: App, other: int) -> AsyncIterator[int]:
    yield other


@pytest.mark.parametrize("function", [yields, returns, takes_two], ids=lambda each: each.__name__)
def test_a_function_that_is_no_lifespan_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(DeclarationError, match=rf"{function.__name__} \(.*a lifespan"):
        App("test", version="1", lifespan=function)


@pytest.mark.rule("X68")
def test_an_app_has_one_lifespan_whichever_way_it_is_declared() -> None:
    app = App("test", version="1", lifespan=opens)
    with pytest.raises(DeclarationError, match=r"the lifespan .*opens \(.*\) is declared already"):
        app.lifespan(opens)
