"""The port over NATS: one nats-py client, used once and thrown away.

The client has traps that each made a process deaf (`docs/decisions/bus.md`). So it may not reconnect by itself or
buffer while disconnected. It counts as connected only while the bus's own question comes back through it.
"""

from __future__ import annotations

import re
import ssl
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import anyio
import nats.errors
from nats.aio.subscription import Subscription
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import TooLarge, Unavailable
from mcpfleet.bus.nats_client import ShortClient
from mcpfleet.bus.port import ConnectFailed, Deliver, Link, LinkSubscription, OnRefused
from mcpfleet.process.host import is_loopback
from mcpfleet.process.settings import ProcessSettings

_REFUSAL: Final = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]+)\"", re.IGNORECASE)
_HEADER_ROOM: Final = 64
"""Bytes that NATS counts as headers beside our line: its version line, the name and line ends."""
_LOST: Final = (nats.errors.Error, OSError, RuntimeError)
"""Errors of the client on a lost connection; a closed transport of uvloop raises RuntimeError."""
_CLOSE_TIMEOUT: Final = 1.0
_LEAVE_TIMEOUT: Final = 5.0


class NatsConnector:
    """Connects to NATS as one user."""

    def __init__(self, settings: ProcessSettings, *, user: str, name: str, log: FilteringBoundLogger) -> None:
        """Prepare to connect.

        Args:
            settings: the address, the password and the bounds.
            user: the NATS user, whose permissions bound this process.
            name: the name of this process in `nats server report connections`.
            log: tells of the client's own troubles.
        """
        self._settings = settings
        self._user = user
        self._name = name
        self._log = log

    def where(self) -> str:
        """Name the address for an operator, without credentials."""
        parts = urlsplit(self._settings.nats_url)
        return f"{parts.scheme}://{parts.hostname}:{parts.port or 4222}"

    async def connect(self, on_refused: OnRefused) -> Link:
        """Make one connection; see `mcpfleet.bus.port.Connector`."""
        settings = self._settings
        link = NatsLink(settings, on_refused, self._log)
        password = settings.nats_password.get_secret_value()
        trusted = _trusted(settings.nats_ca)
        try:
            with anyio.fail_after(settings.bus_connect_timeout):
                await link.client.connect(
                    settings.nats_url,
                    user=self._user if password else None,
                    password=password or None,
                    name=self._name,
                    tls=trusted,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,  # a refused connect sleeps this long
                    connect_timeout=max(1, int(settings.bus_connect_timeout)),
                    pending_size=-1,  # with a bound, `publish` waits for ever and swallows cancellation
                    ping_interval=3600,  # the bus asks its own question, which proves more
                    error_cb=link.on_error,
                    closed_cb=link.on_closed,
                )
        except nats.errors.NoServersError as error:
            await link.close()
            raise ConnectionError("no NATS server answers") from error
        except nats.errors.Error as error:
            await link.close()
            # Any other error, for example of a proxy that closes at once, is no refusal by a NATS server.
            refused = "authorization" in str(error).lower()
            raise (ConnectFailed if refused else ConnectionError)(str(error)) from error
        except RuntimeError as error:  # the connection was lost before the client knew that it was made
            await link.close()
            raise ConnectionError(str(error)) from error
        except BaseException:
            await link.close()
            raise
        if (
            not settings.allow_open_nats
            and not is_loopback(urlsplit(settings.nats_url).hostname or "")
            and not link.authenticated
        ):
            await link.close()
            raise ConnectFailed(
                f"{self.where()} is neither on loopback nor authenticated: anyone may call tools through it; "
                "set MCPFLEET_NATS_USER and MCPFLEET_NATS_PASSWORD, or MCPFLEET_ALLOW_OPEN_NATS=true"
            )
        link.came_up()
        return link


def _trusted(file: str) -> ssl.SSLContext | None:
    """Return the context that checks a server's certificate; read for each link, so a new file needs no restart."""
    if not file:
        return None  # nats-py takes the machine's
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:  # errors of ssl are among these
        raise ConnectFailed(f"MCPFLEET_NATS_CA: cannot read {file}: {error.strerror or error}") from error


class NatsLink:
    """One nats-py client, from its connection to its loss."""

    def __init__(self, settings: ProcessSettings, on_refused: OnRefused, log: FilteringBoundLogger) -> None:
        self.client = ShortClient()
        self.lost = anyio.Event()
        self._settings = settings
        self._on_refused = on_refused
        self._log = log
        self._is_up = False
        """The client was connected once. Before that, the caller of `connect` tells the error."""

    @property
    def authenticated(self) -> bool:
        """Whether the server demands credentials; nats-py tells it in a private field only."""
        return bool(self.client._server_info.get("auth_required"))  # noqa: SLF001

    def came_up(self) -> None:
        """Note that the client is connected."""
        self._is_up = True

    def publish(self, subject: str, body: bytes, reply: str = "", header: str | None = None) -> None:
        """Hand a message over without waiting; see `mcpfleet.bus.port.Link.publish`."""
        settings = self._settings
        size = len(body) + (len(header) + _HEADER_ROOM if header else 0)
        if size > settings.bus_max_payload:
            raise TooLarge(f"a message to {subject}", size, settings.bus_max_payload, "MCPFLEET_BUS_MAX_PAYLOAD")
        if self.lost.is_set() or not self.client.is_connected:
            raise Unavailable(f"{subject}: the link to NATS is lost")
        if self.client.pending_data_size > settings.bus_pending_bytes:
            raise Unavailable(f"{subject}: {self.client.pending_data_size} bytes wait for NATS already")
        try:
            self.client.send(subject, body, reply, header)
        except _LOST as error:
            self.lost.set()
            raise Unavailable(f"{subject}: {error}") from error

    async def subscribe(self, subject: str, deliver: Deliver, group: str = "") -> LinkSubscription:
        """Hear a subject; see `mcpfleet.bus.port.Link.subscribe`."""
        try:
            return await self.client.hear(subject, group, deliver)
        except _LOST as error:
            self.lost.set()
            raise Unavailable(f"{subject}: {error}") from error

    async def leave(self, interest: LinkSubscription) -> None:
        """Leave by a drain: unsubscribing drops the messages on their way."""
        assert isinstance(interest, Subscription)
        # A cancelled drain ends the client's reader silently. So it is shielded, and ends with its link at the latest.
        with anyio.CancelScope(shield=True), anyio.move_on_after(_LEAVE_TIMEOUT) as patience:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._cancel_when_lost, tasks.cancel_scope)
                with suppress(*_LOST):
                    # nats-py writes the PING of a drain straight to the socket, past the UNSUB that still waits for its
                    # flusher. It stops hearing at the PONG, so the messages between the two would be lost.
                    await self.client._send_unsubscribe(interest._id)  # noqa: SLF001
                    await self.client._flush_pending(force_flush=True)  # noqa: SLF001
                    await interest.drain()  # type: ignore[no-untyped-call]  # nats-py does not say what it returns
                tasks.cancel_scope.cancel()
        if patience.cancelled_caught:
            self.lost.set()

    async def _cancel_when_lost(self, scope: anyio.CancelScope) -> None:
        await self.lost.wait()
        scope.cancel()

    async def close(self) -> None:
        """Close within a second, else abort the socket: unsent bytes to a vanished peer hold it for minutes."""
        self.lost.set()
        # Closing a client that never opened, or that lost its link with unsent bytes, fails in several ways. None may
        # end this process; the abort below is what counts.
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_TIMEOUT), suppress(Exception):
            await self.client.close()
        writer = getattr(self.client._transport, "_io_writer", None)  # noqa: SLF001  # nats-py has no abort
        if writer is not None:
            writer.transport.abort()

    async def on_error(self, error: Exception) -> None:
        """Hear the client's own errors, and pass refusals on."""
        refusal = _REFUSAL.search(str(error))
        if refusal:
            verb = "publish to" if refusal[1].lower() == "publish" else "subscribe to"
            self._on_refused(verb, refusal[2])
            return
        if self._is_up and not self.lost.is_set():
            self._log.warning("NATS client failed", error=f"{type(error).__name__}: {error}")

    async def on_closed(self) -> None:
        """Hear that the client gave up its connection."""
        self.lost.set()
