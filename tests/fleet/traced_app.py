"""The application of the tests of traces: reads and prompts that ask their caller, and a resource that changes."""

from dataclasses import dataclass

from mcpfleet.app import App, Context

app = App("traced", version="1.0.0")


@dataclass
class Floor:
    """Where it is."""

    number: int


@app.resource("library://shelf", asks={"elicitation.form"})
async def shelf(ctx: Context) -> str:
    """What stands on a shelf of the floor that the reader names."""
    floor = await ctx.elicit("Which floor?", Floor, key="floor")
    return f"shelf of floor {floor.number}"


@app.prompt(asks={"elicitation.form"})
async def guide(ctx: Context) -> str:
    """How to get to the floor that the reader names."""
    floor = await ctx.elicit("Which floor?", Floor, key="floor")
    return f"Lead me to floor {floor.number}"


@app.resource("library://news")
async def news() -> str:
    """What is new."""
    return "nothing"


@app.tool(task="required", asks={"elicitation.form"})
async def wait(ctx: Context) -> str:
    """Goes on when its caller has answered."""
    floor = await ctx.elicit("Which floor?", Floor, key="floor")
    return f"floor {floor.number}"


@app.tool()
async def tell(ctx: Context) -> str:
    """Say that there are news."""
    await ctx.resource_updated("library://news")
    return "told"


def whisper() -> str:
    """Comes while others are served."""
    return "…"


@app.tool()
async def grow() -> str:
    """Have the application offer one tool more."""
    app.tool()(whisper)
    return "grown"
