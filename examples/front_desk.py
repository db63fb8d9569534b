"""A front desk with a skill: the folder `skills` beside it tells a model how to use its tools.

`mcpfleet dev examples/front_desk.py` serves it. Change a file of the skill while it runs: a client that watches the
skill hears of it within seconds.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from mcpfleet.app import App, ToolAnnotations, ToolError

app = App(
    "front-desk",
    version="1.0.0",
    title="The library's front desk",
    instructions="The skill skill://desk/answer-a-reader/SKILL.md tells how a reader's question is answered.",
)
app.skills("skills", prefix="desk")

OPEN = {0: None, 1: (10, 18), 2: (10, 18), 3: (10, 20), 4: (10, 18), 5: (10, 18), 6: (11, 15)}
"""Opening hours by weekday, from Monday on; None is closed."""


@dataclass(frozen=True)
class Hours:
    """The opening hours of a day."""

    day: dt.date
    opens: int | None
    closes: int | None


@app.tool(annotations=ToolAnnotations(read_only_hint=True))
async def hours(day: Annotated[dt.date, Field(description="The day, such as 2026-12-24.")]) -> Hours:
    """Tell when the library opens and closes on a day, in whole hours."""
    span = OPEN[day.weekday()]
    return Hours(day, *(span or (None, None)))


@app.tool()
async def leave_note(reader: str, note: str) -> str:
    """Leave a note for a librarian, who calls the reader back."""
    if not note.strip():
        raise ToolError("The note is empty: say what the reader asks.")
    return f"A librarian will call {reader} back."
