"""One connection to the in-memory switch, with a lane in each direction, from its making to its loss."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

import anyio

from mcpfleet.bus.errors import TooLarge, Unavailable
from mcpfleet.bus.memory.lane import Lane
from mcpfleet.bus.memory.permissions import ReplyPermits, Tokens, UserPermissions, tokens_of
from mcpfleet.bus.port import Deliver, Incoming, LinkSubscription, OnRefused
from mcpfleet.process.settings import ProcessSettings

_HEADER_ROOM: Final = 64
"""Bytes that NATS counts as headers beside our line."""
_LEAVE_TIMEOUT: Final = 5.0


@dataclass(slots=True, eq=False)
class SwitchSubscription:
    """A subject that one link hears."""

    link: MemoryLink
    pattern: Tokens
    group: str
    deliver: Deliver


class Carrier(Protocol):
    """The part of the switch that a link uses; each act happens once it arrives, in the link's order."""

    def passes(self, process: str) -> bool:
        """Whether anything passes between the switch and a process."""

    def is_cut(self, process: str) -> bool:
        """Whether a process is cut off."""

    def route(self, sender: MemoryLink, message: Incoming) -> None:
        """Pass a message on to all its hearers."""

    def subscribe(self, subscription: SwitchSubscription) -> None:
        """Let a link hear a subject."""

    def unsubscribe(self, subscription: SwitchSubscription, left: anyio.Event) -> None:
        """Hear no more, and set the event after the messages on their way."""

    def drop(self, link: MemoryLink) -> None:
        """End a link."""


class MemoryLink:
    """A link; see `mcpfleet.bus.port.Link`."""

    def __init__(
        self,
        switch: Carrier,
        permissions: UserPermissions,
        process: str,
        settings: ProcessSettings,
        on_refused: OnRefused,
    ) -> None:
        """Make a link on the running loop; callbacks run in the context of the maker."""
        self.lost = anyio.Event()
        self.process = process
        self.settings = settings
        self.permissions = permissions
        self.answers = ReplyPermits(permissions)
        self.loop = asyncio.get_running_loop()
        self._switch = switch
        self._on_refused = on_refused
        self._departing = Lane(self._passes)
        self._arriving = Lane(self._passes)
        self._leaving: set[anyio.Event] = set()

    # -- what the bus does --------------------------------------------------------------------------------------------

    def publish(self, subject: str, body: bytes, reply: str = "", header: str | None = None) -> None:
        """Hand a message over without waiting; see `mcpfleet.bus.port.Link.publish`."""
        size = len(body) + (len(header) + _HEADER_ROOM if header else 0)
        if size > self.settings.bus_max_payload:
            raise TooLarge(f"a message to {subject}", size, self.settings.bus_max_payload, "MCPFLEET_BUS_MAX_PAYLOAD")
        self._check(subject)
        if self._departing.size > self.settings.bus_pending_bytes:
            raise Unavailable(f"{subject}: {self._departing.size} bytes wait for the switch already")
        self._departing.put(partial(self._switch.route, self, Incoming(subject, reply, body, header)), size=size)

    async def subscribe(self, subject: str, deliver: Deliver, group: str = "") -> LinkSubscription:
        """Hear a subject; see `mcpfleet.bus.port.Link.subscribe`. As with NATS, no message confirms it."""
        self._check(subject)
        subscription = SwitchSubscription(self, tokens_of(subject), group, deliver)
        self._departing.put(partial(self._switch.subscribe, subscription))
        return subscription

    async def leave(self, interest: LinkSubscription) -> None:
        """Leave, bounded as with NATS; the link is lost if the switch does not answer."""
        assert isinstance(interest, SwitchSubscription)
        if self.lost.is_set():
            return
        left = anyio.Event()
        self._leaving.add(left)
        self._departing.put(partial(self._switch.unsubscribe, interest, left))
        with anyio.CancelScope(shield=True), anyio.move_on_after(_LEAVE_TIMEOUT) as scope:
            await left.wait()
        self._leaving.discard(left)
        if scope.cancelled_caught:
            self.lost.set()

    async def close(self) -> None:
        """End the link; earlier messages are still sent, unless the process is cut off."""
        self._end()
        if self._switch.is_cut(self.process):
            self._departing.clear()
        else:
            self._departing.put(partial(self._switch.drop, self))

    def _check(self, subject: str) -> None:
        if self.lost.is_set():
            raise Unavailable(f"{subject}: the link to the switch is lost")

    # -- what the switch does -----------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Bytes on their way to the process."""
        return self._arriving.size

    def take(self, subscription: SwitchSubscription, message: Incoming, due: float | None = None) -> None:
        """Carry a copy of a message to the process, which may answer it from now on."""
        if self.lost.is_set():
            return
        if message.reply:
            self.answers.grant(message.reply)
        copy = replace(message)  # the bus changes what it is given
        self._arriving.put(partial(subscription.deliver, copy), size=len(copy.body), due=due)

    def tell_refused(self, verb: str, subject: str) -> None:
        """Tell the process that its user may not use a subject."""
        self._arriving.put(partial(self._on_refused, verb, subject))

    def tell_left(self, left: anyio.Event) -> None:
        """Tell, after everything on its way, that a subscription has ended."""
        self._arriving.put_last(left.set)

    def go_on(self) -> None:
        """Carry waiting messages, which may pass now."""
        self._departing.go_on()
        self._arriving.go_on()

    def lose(self) -> None:
        """End the link from the switch's side, and lose everything on its way in either direction."""
        self._departing.clear()
        self._end()

    def _end(self) -> None:
        self.lost.set()
        self._arriving.clear()
        for left in self._leaving:
            left.set()

    def _passes(self) -> bool:
        return self._switch.passes(self.process)
