"""The port below the bus: the few operations that a connection to other processes must have.

Four operations: publish, subscribe (with a group), leave, and the news that the link is lost. The rest of this
package builds on them. A link is one connection that dies once; the bus replaces it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import anyio


@dataclass(slots=True)
class Incoming:
    """A message as it arrived."""

    subject: str
    reply: str
    """The subject for an answer; empty if none is wanted."""
    body: bytes
    header: str | None = None
    """The one header line (`mcpfleet.bus.header`)."""
    no_responders: bool = False
    """NATS itself answers that no process hears the subject of the request."""
    link: Link | None = None
    """The link over which the message came. NATS permits an answer over that link alone."""


Deliver = Callable[[Incoming], None]
"""A callback that never waits: it takes the message, or answers that it is busy."""


class LinkSubscription(Protocol):
    """A subscription on one link."""


class Link(Protocol):
    """One connection, from its success to its only loss. Subjects are whole, with their prefix."""

    lost: anyio.Event
    """Set once, when the connection is gone."""

    def publish(self, subject: str, body: bytes, reply: str = "", header: str | None = None) -> None:
        """Hand a message over, in order, without waiting.

        Raises:
            Unavailable: the link is lost or its buffer is full; the message is not sent, now or later.
            TooLarge: body and header together exceed what the link carries.
        """

    async def subscribe(self, subject: str, deliver: Deliver, group: str = "") -> LinkSubscription:
        """Hear a subject, alone or in a group of which one member hears each message."""

    async def leave(self, interest: LinkSubscription) -> None:
        """Hear no new message; return once those on their way are delivered."""

    async def close(self) -> None:
        """End the connection; bounded, and silent if the connection is already gone."""


OnRefused = Callable[[str, str], None]
"""Hears a refusal by NATS: the verb (`publish to`, `subscribe to`) and the subject with its prefix."""


class Connector(Protocol):
    """Makes links."""

    async def connect(self, on_refused: OnRefused) -> Link:
        """Make a new link.

        Raises:
            OSError: nothing answers at the address.
            ConnectFailed: something answered, and refused us.
        """

    def where(self) -> str:
        """Name the address for an operator, without credentials."""


class ConnectFailed(Exception):
    """Raised when the server was reached, but did not let us in."""
