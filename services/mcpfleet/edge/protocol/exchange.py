"""One MCP request from its arrival to its one reply, and the method that answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from pydantic_core import to_json

from mcpfleet.contracts.apps import declares_apps
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.sessions import Session
from mcpfleet.edge.protocol.revision import Revision
from mcpfleet.edge.transport.http_exchange import HttpExchange, Receive, Scope, Send
from mcpfleet.telemetry.spans import Span
from mcpfleet.telemetry.trace import TraceContext, checked_baggage
from mcpfleet.views.view import Target, View
from mcpfleet.wire.envelope import Envelope, RequestId
from mcpfleet.wire.errors import bad_params, unknown_method
from mcpfleet.wire.language import (
    ACCEPT_LANGUAGE_META_KEY,
    CONTENT_LANGUAGE,
    CONTENT_LANGUAGE_META_KEY,
    LONGEST_PREFERENCE,
    stated_preference,
)
from mcpfleet.wire.protocol import CLIENT_CAPABILITIES_META_KEY, MODERN

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
_LANGUAGE_KEY: Final = to_json(CONTENT_LANGUAGE_META_KEY)
_MOST_DECLARED: Final = 16 * 1024
"""Bytes of `clientInfo` and capabilities that a stream or a session keeps."""


class SessionRef(NamedTuple):
    """A session that a request names, as its edge knows it."""

    key: str
    """Its name on the bus: a digest of the id that its client has."""
    owner: str
    """The digest of its endpoint and principal."""
    session: Session


class Exchange(HttpExchange):
    """A request, its caller, the caller's view, and the one reply.

    `server.router` sets the members in this order. Code that gets an exchange may rely on all that stands before its
    own place in that order.
    """

    __slots__ = (
        "caller", "endpoint", "error_id", "id", "is_notification", "language", "message", "method", "preference",
        "revision", "session", "span", "tells_language", "view",
    )  # fmt: skip

    endpoint: str
    """The endpoint's name."""
    error_id: RequestId | None
    """The id that an error repeats; None as long as none could be read."""
    is_notification: bool
    id: RequestId
    message: Envelope
    revision: Revision
    method: Method | None
    """None for a method that the revision does not have."""
    span: Span
    caller: Principal
    view: View
    """The part of the endpoint's catalog that the caller sees."""
    session: SessionRef | None
    preference: str | None
    """The language preference, as `Accept-Language` has it; None for none (X30)."""
    tells_language: bool
    """Its client has sent the key of `_meta`, and is told the language of texts (X35)."""
    language: str | None
    """The language of the texts in its answer; None where nothing declares any."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, closing: bool, write_timeout: float) -> None:
        """Begin an exchange that knows nothing of its request yet; see `HttpExchange`."""
        super().__init__(scope, receive, send, closing=closing, write_timeout=write_timeout)
        self.error_id = None
        self.is_notification = False
        self.session = None
        self.preference = self.language = None
        self.tells_language = False

    @property
    def trace(self) -> TraceContext:
        """The trace context for all that the request causes."""
        return self.span.context

    @property
    def params(self) -> dict[str, Any]:
        """The method's parameters, whose form `protocol.schema` has checked."""
        return self.message.params

    @property
    def baggage(self) -> str | None:
        """W3C baggage, of `_meta` else of the headers; None where there is none, or a malformed one (M23, X75)."""
        claimed = self.message.meta.get("baggage")
        if claimed is None:
            values = self.headers.all(b"baggage")
            if not values:
                return None
            claimed = b",".join(values).decode("latin-1")
        return checked_baggage(claimed)

    @property
    def progress_token(self) -> RequestId | None:
        """The token of the client's progress notifications; None where it has sent no valid one (P1)."""
        token = self.message.meta.get("progressToken")
        return token if isinstance(token, (str, int)) and not isinstance(token, bool) else None

    @property
    def has_apps(self) -> bool:
        """Whether its client shows documents, as the request or the session says (X11, X16)."""
        if self.session is not None:
            return declares_apps(self.session.session.capabilities)
        return hasattr(self, "message") and declares_apps(self.message.meta.get(CLIENT_CAPABILITIES_META_KEY, _NONE))

    def read_preference(self, *, header_counts: bool) -> None:
        """Read the language preference of this request: of `_meta`, else of the header alone if that counts (X30)."""
        stated = self.message.meta.get(ACCEPT_LANGUAGE_META_KEY) if hasattr(self, "message") else None
        self.tells_language = isinstance(stated, str)
        preference = stated if self.tells_language else stated_preference(self.headers) if header_counts else None
        # Streams and caches keep it, beyond the room of its body.
        self.preference = preference if preference is not None and len(preference) <= LONGEST_PREFERENCE else None

    def see(self, view: View) -> None:
        """Take the view of its caller."""
        self.view = view
        if view.languages is not None:
            self.language = view.languages.named(view.language)

    @property
    def told_language(self) -> str | None:
        """The language that its client is told; None where it did not ask, or nothing declares any (X35)."""
        return self.language if self.tells_language else None

    def response(self, result: bytes, definition: Definition | None = None) -> bytes:
        """Compose the JSON-RPC response in the form of the request's revision.

        Args:
            result: as 2026-07-28 has it.
            definition: the one whose result it is, where its output schema may shape the result.

        Raises:
            NotSpliceable: a worker's result is malformed.
        """
        told = self.told_language
        if told is not None and _LANGUAGE_KEY in result:  # its handler says so itself
            told = None
        body = self.revision.response(self.id, result, self.view.server, definition, told)
        self.state_language(told)
        return body

    def state_language(self, language: str | None) -> None:
        """Name the language of an answer in its head, unless it is a stream (X35)."""
        self.of_json = [] if language is None else [(CONTENT_LANGUAGE, language.encode())]

    async def reply(self, result: bytes) -> None:
        """Send a result as the whole reply.

        Raises:
            NotSpliceable: a worker's result is malformed.
            ClientStalled: the client does not read it.
        """
        await self.answer(200, self.response(result))

    def forget(self) -> None:
        """Let go of the body, the message and the view, for a stream that outlives them by hours."""
        self.forget_body()
        if hasattr(self, "message"):  # the GET of a session's stream has none
            del self.message
        del self.view


Handler: TypeAlias = Callable[[Exchange], Awaitable[str | None]]
"""Answers an exchange. It returns the error's type for metrics and audit, or None for a result."""
Check: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Raises `Rejection` -32602 where a method's parameters have another form."""
FindTarget: TypeAlias = Callable[[Exchange], Target | None]
"""Finds the target that an audit line names; None where there is none, or none that exists."""


def no_target(exchange: Exchange) -> Target | None:
    """Return none: the audit line of this method names no target."""
    del exchange
    return None  # the type is optional


def always(exchange: Exchange) -> bool:
    """Return that every endpoint offers the method."""
    del exchange
    return True


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the method table: all that the edge knows of a method."""

    name: str
    check: Check
    handler: Handler
    revisions: frozenset[str] = frozenset({MODERN})
    """The revisions that have the method."""
    is_offered: Callable[[Exchange], bool] = always
    """Returns whether the endpoint offers it to this caller; it does not exist otherwise (M14)."""
    admits: bool = True
    """Its caller is admitted and has a view. `server/discover` is answered from memory without (D15, M32)."""
    is_limited: bool = False
    """The router takes the caller's rate of requests. Handlers that find a target first take it behind that (T11)."""
    names: str | None = None
    """The parameter that the header `Mcp-Name` mirrors (T3)."""
    begins_session: bool = False
    needs_session: bool = False
    audit: FindTarget | None = None
    """Finds the target of its audit line; None where it leaves no line."""


def offered_handler(exchange: Exchange) -> Handler:
    """Return the handler of a request whose caller is admitted.

    Raises:
        Rejection: 404 where the endpoint does not offer the method (M14).
    """
    method = exchange.method
    if method is None or not method.is_offered(exchange):
        raise unknown_method()
    return method.handler


def check_declared(client: Any, capabilities: Any) -> None:
    """Check the size of a client's own description, before a stream or a session keeps it.

    Args:
        client: `clientInfo`.
        capabilities: `clientCapabilities`, or `capabilities` in the revisions of 2025.

    Raises:
        Rejection: -32602 where both together have more than 16 KiB.
    """
    if len(to_json(client)) + len(to_json(capabilities)) > _MOST_DECLARED:
        raise bad_params(f"clientInfo and capabilities have more than {_MOST_DECLARED} bytes")
