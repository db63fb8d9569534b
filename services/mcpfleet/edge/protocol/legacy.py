"""The revisions of 2025 without a session: how their requests are answered (L1 to L4, L6, M74 to M78).

Each request stands for itself, as a modern one does, so any edge answers it. What needs a session (the server's own
requests, subscriptions, the log level) is neither offered nor served here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from pydantic_core import to_json

from mcpfleet.edge.calls.uses import Uses
from mcpfleet.edge.protocol.lists import KINDS, Lists
from mcpfleet.edge.protocol.request import Inquiry
from mcpfleet.edge.protocol.structure import METHODS
from mcpfleet.wire import reply
from mcpfleet.wire.errors import unknown_method

Answer: TypeAlias = Callable[[Inquiry], Awaitable[str | None]]

_OFFERED: Final = ("tools", "resources", "prompts", "completions")
"""Capabilities that need no session."""


class Legacy:
    """Answers requests of the revisions of 2025."""

    def __init__(self, lists: Lists, uses: Uses) -> None:
        self._answers: Mapping[str, Answer] = {
            **dict.fromkeys(KINDS, lists.answer),
            "tools/call": uses.call_tool,
            "prompts/get": uses.get_prompt,
            "resources/read": uses.read_resource,
            "completion/complete": uses.complete,
            "initialize": _initialize,
            "ping": _ping,
        }

    async def answer(self, inquiry: Inquiry) -> str | None:
        """Answer a request whose caller is admitted; returns the error's type, or None for a result.

        Raises:
            Rejection: the answer is an error, and nothing was sent yet.
        """
        envelope = inquiry.request.envelope
        answer, known = self._answers.get(envelope.method), METHODS.get(envelope.method)
        if answer is None or (known is not None and known.capability not in inquiry.view.capabilities):
            raise unknown_method()
        if known is not None:
            known.check(envelope.params)
        return await answer(inquiry)


def capabilities(inquiry: Inquiry) -> dict[str, Any]:
    """What the endpoint offers to clients without a session: lists that change are told to nobody."""
    return {name: {} for name in _OFFERED if name in inquiry.view.capabilities}


async def _initialize(inquiry: Inquiry) -> str | None:
    """Agree on the revision that the ladder chose, and remember nothing (M74)."""
    request, snapshot = inquiry.request, inquiry.view.snapshot
    server = {"name": snapshot.name, "version": snapshot.version}
    if snapshot.title:
        server["title"] = snapshot.title
    fields: dict[str, Any] = {
        "protocolVersion": request.envelope.revision,
        "capabilities": capabilities(inquiry),
        "serverInfo": server,
    }
    if snapshot.instructions:
        fields["instructions"] = snapshot.instructions
    await request.client.answer(200, reply.plain_response(request.id, to_json(fields)))
    return None


async def _ping(inquiry: Inquiry) -> str | None:
    """Answer `{}`, and nothing else in it (M77)."""
    await inquiry.request.client.answer(200, reply.plain_response(inquiry.request.id, b"{}"))
    return None
