"""The application that the official suite expects: what its tools must answer is fixed by their names."""

# Longer than 400 lines: the suite asks one server for all of it, by names of its own.

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from typing import Annotated, Any, Literal

import anyio
from pydantic import BaseModel, Field

from mcpfleet.app import (
    App,
    AudioContent,
    ContentBlock,
    Context,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ProtocolError,
    ToolError,
    content,
    message,
    question,
)

app = App("mcpfleet-conformance", version="1.0.0", title="Fixtures of the official conformance suite")

RED_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC"
)
"""A PNG of one red pixel."""

SILENCE = base64.b64decode("UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==")
"""A WAV of one silent millisecond."""

CONTACT_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "address",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        },
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "prefers": {"enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"prefers": {"const": "phone"}}, "required": ["prefers"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
"""One keyword of each group that a list must hand on whole: dialect, definitions, anchors, composition, conditions."""


class Name(BaseModel):
    """What most questions ask for."""

    name: str


class Colour(BaseModel):
    """What the second round asks for."""

    color: str


class Confirmation(BaseModel):
    """A yes or a no."""

    ok: bool


class Topic(BaseModel):
    """What a prompt is about."""

    context: str


@app.tool()
def test_simple_text() -> str:
    """Answer with a line of text."""
    return "This is a simple text response for testing."


@app.tool()
def test_image_content() -> ImageContent:
    """Answer with an image."""
    return content.image(RED_PIXEL, "image/png")


@app.tool()
def test_audio_content() -> AudioContent:
    """Answer with a sound."""
    return content.audio(SILENCE, "audio/wav")


@app.tool()
def test_embedded_resource() -> EmbeddedResource:
    """Answer with a resource inside the result."""
    return content.resource("test://embedded-resource", "This is an embedded resource content.", "text/plain")


@app.tool()
def test_multiple_content_types() -> list[ContentBlock]:
    """Answer with text, an image and a resource, in this order."""
    return [
        content.text("Multiple content types test:"),
        content.image(RED_PIXEL, "image/png"),
        content.resource("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
    ]


@app.tool()
def test_error_handling() -> str:
    """Fail with a message that the model should read."""
    raise ToolError("This tool intentionally returns an error for testing")


@app.tool()
async def test_tool_with_progress(ctx: Context) -> str:
    """Report 0, 50 and 100 of 100, with pauses between them."""
    await ctx.progress(0, total=100)
    for reached in (50, 100):
        await anyio.sleep(0.05)
        await ctx.progress(reached, total=100)
    return "Reported 0, 50 and 100 of 100."


@app.tool(asks={"sampling"})
def test_missing_capability() -> str:
    """Need sampling, so that a client without it is refused before the call."""
    return "The client has sampling."


@app.tool()
def test_streaming_elicitation() -> str:
    """Answer a client that could be asked, without a request of the server's own on the stream."""
    return "Nothing was asked."


@app.tool()
def test_logging_tool() -> str:
    """Answer a request that sets no log level, without a log message."""
    return "Nothing was logged."


@app.tool()
def test_header_parameter(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Take any text that the header `Mcp-Param-Region` repeats."""
    return f"Called for {region}."


@app.tool(name="json_schema_2020_12_tool", input_schema=CONTACT_SCHEMA)
def contact(arguments: dict[str, Any]) -> str:
    """Take a contact, checked by a schema that uses much of JSON Schema 2020-12."""
    return f"Took {len(arguments)} fields."


# -- questions: each is asked in a round of its own, unless they are asked together -----------------------------------


@app.tool(asks={"elicitation.form"})
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask for a name, and greet it."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"Hello, {answer.name}!"


@app.tool(asks={"sampling"})
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model a question, and answer with its words."""
    answer = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return "".join(block.text for block in answer.content_as_list if block.type == "text")


@app.tool(asks={"roots"})
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask for the client's roots, and name them."""
    roots = await ctx.roots(key="client_roots")
    return f"The client has {len(roots)} roots: {', '.join(str(root.uri) for root in roots)}"


@app.tool(asks={"elicitation.form"})
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask for a confirmation, with state that comes back."""
    await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return "state-ok"


@app.tool(asks={"elicitation.form", "sampling", "roots"})
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask three things of three kinds at once."""
    name, greeting, roots = await ctx.ask(
        question.form("What is your name?", Name, key="user_name"),
        question.sample("Generate a greeting", max_tokens=50, key="greeting"),
        question.roots(key="client_roots"),
    )
    words = "".join(block.text for block in greeting.content_as_list if block.type == "text")
    return f"{words} {name.name}, with {len(roots)} roots."


@app.tool(asks={"elicitation.form"})
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask twice, in two rounds."""
    name = await ctx.elicit("Step 1: What is your name?", Name, key="step1")
    colour = await ctx.elicit("Step 2: What is your favorite color?", Colour, key="step2")
    return f"{name.name} likes {colour.color}."


@app.tool(asks={"elicitation.form"})
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask for a confirmation, with state that nobody may change."""
    await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return "The state was whole."


@app.tool(may_ask={"elicitation.form", "sampling"})
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask only what the client can answer."""
    if ctx.can_ask("elicitation.form"):
        name = await ctx.elicit("What is your name?", Name, key="user_name")
        return f"Hello, {name.name}!"
    if ctx.can_ask("sampling"):
        await ctx.sample("Generate a greeting", max_tokens=50, key="greeting")
        return "The client's model greets."
    return "The client can be asked nothing."


# -- tasks ------------------------------------------------------------------------------------------------------------


class Agreement(BaseModel):
    """What is asked before something is done."""

    confirm: bool


@app.tool()
def greet(name: str) -> str:
    """Greet, at once and never as a task."""
    return f"Hello, {name}!"


@app.tool(task="optional")
async def slow_compute(seconds: float, label: str, ctx: Context) -> str:
    """Take a while, as a task where that can be."""
    if ctx.can_defer and seconds > 0:
        await ctx.defer()
    await anyio.sleep(seconds)
    return f"Computed {label} in {seconds:g} s."


@app.tool(task="required")
async def failing_job() -> str:
    """Fail as a tool does: the task is completed by that."""
    raise ToolError("This job intentionally fails.")


@app.tool(task="required")
async def protocol_error_job() -> str:
    """Fail as a request does: the task has failed."""
    raise ProtocolError(-31000, "This job intentionally ends in a protocol error.")


@app.tool(task="optional", asks={"elicitation.form"})
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask before something is deleted, as a task where that can be."""
    if ctx.can_defer:
        await ctx.defer()
    return str((await ctx.elicit(f"Delete {filename}?", Agreement, key="confirm")).confirm)


@app.tool(task="required", asks={"elicitation.form"})
async def multi_input(ctx: Context) -> str:
    """Ask two things at once."""
    named, agreed = await ctx.ask(
        question.form("What is its name?", Name, key="name"),
        question.form("Is it right?", Agreement, key="confirm"),
    )
    return f"{named.name}: {agreed.confirm}"


@app.tool(task="optional", asks={"elicitation.form"})
async def test_tool_with_task(ctx: Context) -> str:
    """Ask by rounds, and go on as a task with the answer."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    if ctx.can_defer:
        await ctx.defer()
    return f"Hello, {answer.name}!"


# -- prompts ----------------------------------------------------------------------------------------------------------


@app.prompt()
def test_simple_prompt() -> str:
    """Give one message, without arguments."""
    return "This is a simple prompt for testing."


@app.prompt()
def test_prompt_with_arguments(
    arg1: Annotated[str, Field(description="First test argument")],
    arg2: Annotated[str, Field(description="Second test argument")],
) -> str:
    """Put two arguments into a message."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@app.completion(test_prompt_with_arguments, "arg1")
def values_of_arg1(value: str) -> list[str]:
    """Offer what begins as the typed text does."""
    return [each for each in ("paris", "park", "party") if each.startswith(value)]


@app.prompt("test_prompt_with_embedded_resource")
def embedding_prompt(
    resourceUri: Annotated[str, Field(description="URI of the resource to embed")],  # noqa: N803  # the suite's name
) -> list[PromptMessage]:
    """Put a resource into a message."""
    return [
        message.user(content.resource(resourceUri, "Embedded resource content for testing.", "text/plain")),
        message.user("Please process the embedded resource above."),
    ]


@app.prompt()
def test_prompt_with_image() -> list[PromptMessage]:
    """Put an image into a message."""
    return [message.user(content.image(RED_PIXEL, "image/png")), message.user("Please analyze the image above.")]


@app.prompt(asks={"elicitation.form"})
async def test_input_required_result_prompt(ctx: Context) -> str:
    """Ask what the prompt is about, and give it."""
    topic = await ctx.elicit("What context should the prompt use?", Topic, key="user_context")
    return f"Use this context: {topic.context}"


# -- lists that change ------------------------------------------------------------------------------------------------


def replaced(kind: Literal["tool", "prompt"], declare: Callable[[str], object]) -> str:
    """Take back what was declared before in this way, and declare something new under a name of its own."""
    if kind in changing:
        app.remove(kind, changing[kind])
    changing[kind] = f"changing_{kind}_{secrets.token_hex(4)}"
    declare(changing[kind])
    return f"The {kind} list has changed."


changing: dict[Literal["tool", "prompt"], str] = {}


@app.tool()
async def test_trigger_tool_change() -> str:
    """Change the list of tools."""
    return replaced("tool", lambda name: app.tool(name, description="Comes and goes.")(lambda: "here"))


@app.tool()
async def test_trigger_prompt_change() -> str:
    """Change the list of prompts."""
    return replaced("prompt", lambda name: app.prompt(name, description="Comes and goes.")(lambda: "here"))


# -- resources --------------------------------------------------------------------------------------------------------


@app.resource("test://static-text", "static-text", mime_type="text/plain")
def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@app.resource("test://static-binary", "static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """An image that never changes."""
    return RED_PIXEL


@app.resource("test://template/{id}/data", "template-data", mime_type="application/json")
def template_data(id: str) -> dict[str, Any]:  # noqa: A002  # the suite's name
    """The data of one id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@app.resource("test://watched-resource", "watched-resource")
def watched_resource() -> str:
    """A resource that clients subscribe to."""
    return "Watch me."
