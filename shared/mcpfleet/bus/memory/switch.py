"""The in-memory switch connects the processes of one event loop, for tests, by NATS's rules and with its faults.

It matches subjects, shares messages in groups, holds users to their permissions, and answers for subjects without
hearers. It can misbehave on demand: lose, double and delay messages by a seed, cut a process off, or freeze.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

import anyio

from mcpfleet.bus.memory.faults import NO_FAULTS, Fates, Faults
from mcpfleet.bus.memory.link import MemoryLink, SwitchSubscription
from mcpfleet.bus.memory.permissions import Tokens, UserPermissions, matches, tokens_of
from mcpfleet.bus.port import ConnectFailed, Incoming, Link, OnRefused
from mcpfleet.process.settings import ProcessSettings

_WAITING_LIMIT: Final = 64 * 1024 * 1024
"""Bytes that may wait for one receiver; NATS also ends the link of a receiver that is further behind."""
_NOTICED_AFTER: Final = 2
"""Intervals of pings; NATS finds a silent peer dead after one to two of them."""


class Switch:
    """Carries messages between the links of one event loop."""

    def __init__(self, users: Mapping[str, Mapping[str, Any]], *, seed: int = 0) -> None:
        """Make a running switch.

        Args:
            users: the permissions of each user, in the form of NATS's configuration.
            seed: decides which member of a group hears a message.

        Raises:
            ValueError: the permissions have a part that the switch does not know.
        """
        self._users = {user: UserPermissions.read(permissions) for user, permissions in users.items()}
        self._members = random.Random(seed)  # noqa: S311  # it is to be guessed
        self._fates = Fates()
        self._links: list[MemoryLink] = []
        self._subscriptions: list[SwitchSubscription] = []
        self._cuts: dict[str, object] = {}
        self._is_running = True
        self._is_frozen = False
        self._changed = anyio.Event()

    def connector(self, user: str, settings: ProcessSettings, *, process: str) -> MemoryConnector:
        """Make links as one user; `process` names them for `cut`."""
        return MemoryConnector(self, user, settings, process)

    # -- what a test does to it ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Let links be made again, after `stop`."""
        self._is_running = True
        self._change()

    def stop(self) -> None:
        """End all links at once, and let none be made."""
        self._is_running = False
        for link in list(self._links):
            self.drop(link)
        self._change()

    def misbehave(self, faults: Faults = NO_FAULTS) -> None:
        """Let messages meet faults from now on; without an argument, none.

        Messages of a process to itself are spared: losing one would lose the link, and `cut` does that.
        """
        self._fates.begin(faults)

    def freeze(self) -> None:
        """Let nothing pass and lose nothing, as a paused NATS does; `thaw` lets everything pass."""
        self._is_frozen = True

    def thaw(self) -> None:
        """Undo `freeze`."""
        self._is_frozen = False
        self._change()

    def cut(self, process: str) -> None:
        """Cut a process off silently: nothing passes in either direction.

        Messages to it wait until the switch finds it dead, as NATS would by its pings, and are lost then.
        """
        cut = self._cuts[process] = object()
        for link in self._links_of(process):
            link.loop.call_later(_NOTICED_AFTER * link.settings.bus_question_every, self._notice, link, cut)

    def heal(self, process: str) -> None:
        """Undo `cut`: a link that survived it goes on, with all that waited."""
        self._cuts.pop(process, None)
        for link in self._links_of(process):
            if link.lost.is_set():
                self.drop(link)
        self._change()

    def end(self, process: str) -> None:
        """End the links of a process that died: it sends nothing more, and its groups go on without it."""
        for link in self._links_of(process):
            self.drop(link)

    def _links_of(self, process: str) -> list[MemoryLink]:
        return [link for link in self._links if link.process == process]

    def _notice(self, link: MemoryLink, cut: object) -> None:
        """Find a link dead that is still cut off; its own question has told its process meanwhile."""
        if self._cuts.get(link.process) is cut:
            self.drop(link)

    def _change(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
        for link in list(self._links):
            link.go_on()

    # -- what links do ------------------------------------------------------------------------------------------------

    def passes(self, process: str) -> bool:
        """Whether anything passes between the switch and a process."""
        return self._is_running and not self._is_frozen and process not in self._cuts

    def is_cut(self, process: str) -> bool:
        """Whether a process is cut off."""
        return process in self._cuts

    async def admit(self, user: str, process: str) -> UserPermissions:
        """Let a process in, once anything passes. The caller bounds the wait.

        Raises:
            ConnectionError: the switch does not run.
            ConnectFailed: there is no such user.
        """
        while not self.passes(process):
            if not self._is_running:
                raise ConnectionError("the switch does not run")
            await self._changed.wait()
        if user not in self._users:
            raise ConnectFailed(f"there is no user {user!r}")
        return self._users[user]

    def add(self, link: MemoryLink) -> None:
        """Add a link."""
        self._links.append(link)

    def drop(self, link: MemoryLink) -> None:
        """End a link with all its subscriptions."""
        self._subscriptions = [each for each in self._subscriptions if each.link is not link]
        if link in self._links:
            self._links.remove(link)
        link.lose()

    def subscribe(self, subscription: SwitchSubscription) -> None:
        """Let a link hear a subject, if its user may."""
        link = subscription.link
        if link.permissions.may_subscribe(subscription.pattern):
            self._subscriptions.append(subscription)
        else:
            link.tell_refused("subscribe to", ".".join(subscription.pattern))

    def unsubscribe(self, subscription: SwitchSubscription, left: anyio.Event) -> None:
        """Hear no more, and set the event after the messages on their way."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        subscription.link.tell_left(left)

    def route(self, sender: MemoryLink, message: Incoming) -> None:
        """Pass a message on to all hearers of its subject, and to one member of each group of them."""
        subject = tokens_of(message.subject)
        if not sender.permissions.may_publish(subject) and not sender.answers.take(message.subject):
            sender.tell_refused("publish to", message.subject)
            return
        hearers = self._hearers(subject)
        for subscription in hearers:
            self._send(sender, subscription, subject, message)
        if not hearers and message.reply:
            self._answer_for_nobody(sender, message.reply)

    def _hearers(self, subject: Tokens) -> list[SwitchSubscription]:
        alone: list[SwitchSubscription] = []
        groups: dict[str, list[SwitchSubscription]] = {}
        for subscription in self._subscriptions:
            if matches(subscription.pattern, subject):
                (groups.setdefault(subscription.group, []) if subscription.group else alone).append(subscription)
        return alone + [self._members.choice(members) for members in groups.values()]

    def _send(self, sender: MemoryLink, subscription: SwitchSubscription, subject: Tokens, message: Incoming) -> None:
        receiver = subscription.link
        if receiver.waiting > _WAITING_LIMIT:
            self.drop(receiver)
            return
        if receiver is sender:
            receiver.take(subscription, message)
            return
        order = (id(sender), message.subject, id(receiver))
        for due in self._fates.draw(subject, order, receiver.loop.time()):
            receiver.take(subscription, message, due)

    def _answer_for_nobody(self, sender: MemoryLink, reply: str) -> None:
        """Answer a question to a subject without hearers, at the asker's inbox."""
        subject = tokens_of(reply)
        for subscription in self._subscriptions:
            if subscription.link is sender and matches(subscription.pattern, subject):
                sender.take(subscription, Incoming(reply, "", b"", no_responders=True))
                return


class MemoryConnector:
    """Connects one process to a switch."""

    def __init__(self, switch: Switch, user: str, settings: ProcessSettings, process: str) -> None:
        self._switch = switch
        self._user = user
        self._settings = settings
        self._process = process

    def where(self) -> str:
        """Name the switch for the log."""
        return "memory"

    async def connect(self, on_refused: OnRefused) -> Link:
        """Make one link; see `mcpfleet.bus.port.Connector`."""
        with anyio.fail_after(self._settings.bus_connect_timeout):
            permissions = await self._switch.admit(self._user, self._process)
        link = MemoryLink(self._switch, permissions, self._process, self._settings, on_refused)
        self._switch.add(link)
        return link
