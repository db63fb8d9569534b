"""Who answers the methods that all revisions have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from mcpfleet.edge.methods.invoke import Uses
from mcpfleet.edge.methods.lists import KINDS, Lists
from mcpfleet.edge.protocol.exchange import Inquiry

Answer: TypeAlias = Callable[[Inquiry], Awaitable[str | None]]
"""Answers a request; returns the error's type, or None for a result."""


def common(lists: Lists, uses: Uses) -> dict[str, Answer]:
    """By the methods' names."""
    return {
        **dict.fromkeys(KINDS, lists.answer),
        "tools/call": uses.call_tool,
        "prompts/get": uses.get_prompt,
        "resources/read": uses.read_resource,
        "completion/complete": uses.complete,
    }
