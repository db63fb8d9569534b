"""Keeps a link to the others: makes one after another, and trusts each while our own question comes back."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import Unavailable
from mcpfleet.bus.port import ConnectFailed, Connector, Link, OnRefused
from mcpfleet.process.retry import pauses
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.telemetry.instruments import BusInstruments

_COMPLAIN_EVERY: Final = 10.0
"""Seconds between two log lines about an unreachable NATS."""
_SLEPT: Final = 1.0
"""Seconds beyond a wait's bound that show that this process itself was not running."""
_FIRST_PAUSE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Hooks:
    """The callbacks into the owner of the links."""

    hear: Callable[[Link], Awaitable[None]]
    """Hears all subjects on a new link, the answer to our own question first."""
    ask: Callable[[Link], None]
    """Sends the question to ourselves; `ConnectionManager.heard_self` takes its answer."""
    lost: Callable[[], None]
    """Hears that a link is gone, with all that waited on it."""
    refused: OnRefused


class ConnectionManager:
    """Holds at most one link, and tells how far to trust it."""

    def __init__(
        self,
        connector: Connector,
        settings: ProcessSettings,
        hooks: Hooks,
        *,
        instruments: BusInstruments,
        log: FilteringBoundLogger,
    ) -> None:
        self.link: Link | None = None
        """The current link, which may not hear everything yet."""
        self._connector = connector
        self._settings = settings
        self._hooks = hooks
        self._instruments = instruments
        self._log = log
        self._up = anyio.Event()
        self._heard_self = anyio.Event()
        self._last_proof = -math.inf
        self._proven_since = -math.inf
        self._on_link: list[Callable[[bool], None]] = []
        self._next_complaint = -math.inf

    @property
    def is_up(self) -> bool:
        """Whether there is a link that hears everything."""
        return self._up.is_set()

    async def wait_up(self) -> None:
        """Wait for such a link. The caller bounds the wait."""
        await self._up.wait()

    @property
    def proven_since(self) -> float | None:
        """Since when (monotonic seconds) the link has been proven without a gap; None while it is not proven."""
        settings = self._settings
        fresh = time.monotonic() - self._last_proof <= settings.bus_question_every + settings.bus_dead_after
        return self._proven_since if fresh and self.link is not None else None

    def on_link(self, hear: Callable[[bool], None]) -> None:
        """Call `hear` with True for each link that comes up, and with False for each that is lost."""
        self._on_link.append(hear)

    def heard_self(self) -> None:
        """Note that our own question came back."""
        self._heard_self.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep a link until cancelled; starts at once, whether or not anybody answers."""
        task_status.started()
        while True:
            link = await self._connect()
            try:
                await self._watch(link)
                self._log.warning("link lost", nats=self._connector.where())
            finally:
                await self._discard(link)

    async def _connect(self) -> Link:
        """Try until there is a link."""
        growing = pauses(_FIRST_PAUSE, self._settings.bus_reconnect_jitter)
        while True:
            if (link := await self._establish()) is not None:
                return link
            await anyio.sleep(random.uniform(0, next(growing)))  # noqa: S311

    async def _establish(self) -> Link | None:
        try:
            link = await self._connector.connect(self._hooks.refused)
        except (OSError, ConnectFailed, TimeoutError) as error:
            self._complain(error)
            return None
        try:
            # From here on a handler can answer: the next subscriptions may bring questions.
            self.link = link
            await self._hooks.hear(link)
            if await self._question(link):
                self._come_up()
                return link
            self._complain(TimeoutError("it accepts connections, and does not answer through them"))
        except Unavailable as error:
            self._complain(error)
        except BaseException:
            await self._discard(link)
            raise
        await self._discard(link)
        return None

    async def _watch(self, link: Link) -> None:
        """Ask ourselves at every interval; return when no answer comes, whatever the client says."""
        while not link.lost.is_set():
            with anyio.move_on_after(self._settings.bus_question_every):
                await link.lost.wait()
                return
            if not await self._question(link):
                return

    async def _question(self, link: Link) -> bool:
        """Ask ourselves once, and once more if our own clock shows that this process slept."""
        limit = self._settings.bus_dead_after
        for _ in range(2):
            asked = time.monotonic()
            self._heard_self = anyio.Event()
            try:
                self._hooks.ask(link)
            except Unavailable:
                return False
            with anyio.move_on_after(limit):
                await self._heard_self.wait()
                self._prove()
                return not link.lost.is_set()
            if link.lost.is_set() or time.monotonic() - asked < limit + _SLEPT:
                return False
        return False

    def _prove(self) -> None:
        if self.proven_since is None:
            self._proven_since = time.monotonic()
        self._last_proof = time.monotonic()

    def _come_up(self) -> None:
        self._instruments.links.add(1)
        self._instruments.link_up.set(1)
        self._next_complaint = -math.inf
        self._up.set()
        self._log.info("link up", nats=self._connector.where())
        for hear in self._on_link:
            hear(True)

    async def _discard(self, link: Link) -> None:
        """Drop a link, tell everybody at once, and close it."""
        self.link = None
        self._last_proof = -math.inf
        self._hooks.lost()
        if self._up.is_set():
            self._up = anyio.Event()
            self._instruments.link_up.set(0)
            for hear in self._on_link:
                hear(False)
        await link.close()

    def _complain(self, error: Exception) -> None:
        if time.monotonic() < self._next_complaint:
            return
        self._next_complaint = time.monotonic() + _COMPLAIN_EVERY
        self._log.warning(
            "waiting for NATS",
            nats=self._connector.where(),
            setting="MCPFLEET_NATS_USER" if isinstance(error, ConnectFailed) else "MCPFLEET_NATS_URL",
            error=str(error) or type(error).__name__,
        )
