"""The application that the official suite expects: what its tools must answer is fixed by their names."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import anyio
from pydantic import Field

from mcpfleet.app import (
    App,
    AudioContent,
    ContentBlock,
    Context,
    EmbeddedResource,
    ImageContent,
    ToolError,
    content,
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
