"""How revisions of the protocol differ in their behaviour. Code asks for a behaviour, never for a date."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final

from mcpfleet.contracts.manifest import Definition, Kind
from mcpfleet.wire import reply
from mcpfleet.wire.envelope import RequestId
from mcpfleet.wire.errors import Rejection, upstream_error
from mcpfleet.wire.language import content_language
from mcpfleet.wire.protocol import MODERN


class Input(Enum):
    """The way in which a client gives a handler the input that it asks for."""

    NEXT_REQUEST = auto()
    """The question ends the request, and the client answers in its next one (D16)."""
    OWN_RESPONSE = auto()
    """The question goes out on the request's stream, and the client responds to it meanwhile (D11)."""
    NONE = auto()
    """The client cannot be asked, and nothing is known of its capabilities."""


class Revision:
    """2026-07-28. An older revision overrides what it does differently, and other code never asks for its date."""

    name: str = MODERN
    checks_first = True
    """Groups 7 to 10 are checked before the caller is known; else its handler checks method and parameters."""
    mirrors_arguments = True
    """Headers mirror arguments of tools, and are checked against them."""
    leaving_cancels = True
    """A client that leaves cancels its call (D12)."""
    ends_with_connection = True
    """A call is followed no longer than its client's connection lasts; else to its end (P9)."""
    input = Input.NEXT_REQUEST
    takes_tasks = True
    """A call may be answered with a task."""
    describes_server = True
    """`serverInfo` may have a description, a website and icons (X65)."""
    bad_arguments_are_errors = False
    """Bad arguments of a tool are a protocol error, not a failed result."""

    def response(
        self,
        identifier: RequestId,
        result: bytes,
        server: bytes,
        definition: Definition | None,
        language: str | None = None,
    ) -> bytes:
        """Compose a response.

        Args:
            identifier: the request's.
            result: as 2026-07-28 has it.
            server: the `serverInfo` member of `_meta`.
            definition: the one whose result it is, where its output schema may shape the result.
            language: that of its texts, which `_meta` names; None where it is not told.

        Raises:
            NotSpliceable: the result is malformed.
        """
        del definition
        if language is not None:
            server = b"%b,%b" % (server, content_language(language))
        return reply.response(identifier, result, server)

    def rejection(self, rejection: Rejection) -> Rejection:
        """Return an operation's error as this revision tells it."""
        return rejection

    def upstream_error(self, code: int, message: str, data: Any) -> Rejection:
        """Return a source's own error as this revision tells it (B3)."""
        return upstream_error(code, message, data)

    def status(self, status: int) -> int:
        """Return the HTTP status that this revision gives an operation's error."""
        return status

    def declarations(self, kind: Kind, items: bytes) -> bytes:
        """Return the items of a list with the members that this revision has."""
        del kind
        return items


NEWEST: Final = Revision()
