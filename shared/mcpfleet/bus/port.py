"""The port below the bus: what a connection to other processes must be able to do, and no more.

Four operations: publish, subscribe (with a group), leave, and the news that the link is lost. All else in this
package is written once above it. A link is one connection that dies once; the bus replaces it.
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
    """Where an answer goes; empty where none is wanted."""
    body: bytes
    header: str | None = None
    """The one header line (`mcpfleet.bus.header`)."""
    no_responders: bool = False
    """NATS itself answers that no process hears the subject of the request."""


Deliver = Callable[[Incoming], None]
"""A callback never waits: it takes the message, or answers that it is busy."""


class LinkSubscription(Protocol):
    """A subscription on one link."""


class Link(Protocol):
    """One connection, from its success to its only loss. Subjects are whole, with their prefix."""

    lost: anyio.Event
    """Set once, when the connection is known to be gone."""

    def publish(self, subject: str, body: bytes, reply: str = "", header: str | None = None) -> None:
        """Hand a message over, in order, without waiting.

        Raises:
            Unavailable: the link is lost or its buffer is full; the message is not sent, now or later.
            TooLarge: body and header together exceed what the link carries.
        """

    async def subscribe(self, subject: str, deliver: Deliver, group: str = "") -> LinkSubscription:
        """Hear a subject, alone or as one of a group of which one member hears each message."""

    async def leave(self, interest: LinkSubscription) -> None:
        """Hear no new message, but all that were on their way to us; returns when they are delivered."""

    async def close(self) -> None:
        """End the connection; bounded, and never raises for a connection that is already gone."""


OnRefused = Callable[[str, str], None]
"""Hears what NATS refused: the verb (`publish to`, `subscribe to`) and the subject with its prefix."""


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
    """Raised when the server was reached, and did not let us in."""
