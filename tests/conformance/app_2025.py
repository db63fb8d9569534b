"""The part of the official suite for servers of 2025: tools that ask their client and write to its log."""

from __future__ import annotations

from typing import Any, Final, Literal

import anyio
from pydantic import BaseModel

from mcpfleet.app import Context
from tests.conformance.app import app

__all__ = ["app"]

_PAUSE: Final = 0.05
CHOICES: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)],
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {
            "type": "array",
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": [{"const": f"value{number}", "title": f"Choice {number}"} for number in (1, 2, 3)]},
        },
    },
}
"""Each way in which a form can offer choices."""


class User(BaseModel):
    """What a user is asked."""

    username: str
    email: str


class Defaults(BaseModel):
    """A form that is filled in already."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@app.tool()
async def test_tool_with_logging(ctx: Context) -> str:
    """Write three lines to the client's log, with pauses between them."""
    await ctx.log("info", "Tool execution started")
    await anyio.sleep(_PAUSE)
    await ctx.log("info", "Tool processing data")
    await anyio.sleep(_PAUSE)
    await ctx.log("info", "Tool execution completed")
    return "Three lines were logged."


@app.tool(asks={"sampling"})
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Have the client's model answer."""
    answer = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {''.join(block.text for block in answer.content_as_list if block.type == 'text')}"


@app.tool(asks={"elicitation.form"})
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user for a name and an address."""
    user = await ctx.elicit(message, User)
    return f"User response: action=accept, content={user.model_dump_json()}"


@app.tool(asks={"elicitation.form"})
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with a form that has a default for each kind of value."""
    filled = await ctx.elicit("Review and update the form", Defaults)
    return f"Elicitation completed: action=accept, content={filled.model_dump_json()}"


@app.tool(asks={"elicitation.form"})
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask with every kind of choice."""
    filled = await ctx.elicit("Choose", CHOICES)
    return f"Elicitation completed: action=accept, content={filled}"
