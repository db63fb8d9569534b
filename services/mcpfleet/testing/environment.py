"""The environment of a local fleet's services: their settings, store and log, and a switch or NATS between them."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import structlog
from structlog.processors import TimeStamper, add_log_level, format_exc_info
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from mcpfleet.bus.memory.switch import Switch
from mcpfleet.cli.embedded_nats import EmbeddedNats
from mcpfleet.cli.services import migrate_store
from mcpfleet.contracts.permissions import permissions, users
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.keys import make_keys
from mcpfleet.process.logs import ConsoleLines
from mcpfleet.process.settings import ProcessSettings, Settings
from mcpfleet.process.settings_table import scaled, unknown_names
from mcpfleet.store.settings import StoreSettings
from mcpfleet.testing.service import LocalService, S, Serve

AT_ONCE: Final[Mapping[str, str]] = MappingProxyType({"MCPFLEET_LAME": "0", "MCPFLEET_DRAIN_GRACE": "0"})
"""Variables by which a draining edge waits only for running requests, and not for clients that may still come."""
_KEPT: Final = 10_000
"""Log lines that are kept; the oldest are dropped first."""
_MIGRATED: Final[deque[bytes]] = deque(maxlen=1)
"""The file of a migrated store, once this process has made one: migrations take a third of a fleet's start."""


class LogLines:
    """The newest log lines of all services, kept in memory."""

    def __init__(self) -> None:
        self._kept: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._render = ConsoleLines(colours=False)

    def logger(self, level: str) -> FilteringBoundLogger:
        """Return a logger whose lines of at least this level are kept here."""
        time = TimeStamper(fmt="%H:%M:%S.%f", utc=False, key="time")
        log: FilteringBoundLogger = structlog.wrap_logger(
            None,
            processors=[add_log_level, time, format_exc_info, self._keep],
            wrapper_class=structlog.make_filtering_bound_logger(level),
        )
        return log

    def keep_composed(self, lines: str) -> None:
        """Keep lines that a service has composed itself: JSON, or text."""
        for line in lines.splitlines():
            self._kept.append(json.loads(line) if line.startswith("{") else {"event": line})

    def of(self, event: str) -> list[dict[str, Any]]:
        """The lines of one event, with their fields."""
        return [line for line in self._kept if line["event"] == event]

    def text(self) -> str:
        """All lines as text."""
        return "\n".join(self._render(None, "", dict(line)) for line in self._kept)

    def _keep(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        self._kept.append(dict(event))
        raise structlog.DropEvent


@dataclass(frozen=True)
class LocalEnvironment:
    """The settings, switch, passwords and log of a local fleet; `local_environment` opens one."""

    variables: Mapping[str, str]
    """The settings of every service."""
    switch: Switch | None
    """Connects the services; None where NATS does."""
    passwords: Mapping[str, str] = field(default_factory=dict)
    """The passwords of NATS' users."""
    lines: LogLines = field(default_factory=LogLines)
    """The services' log."""

    def service(self, name: str, cls: type[S], serve: Serve[S], *, user: str) -> LocalService[S]:
        """Describe a service that connects as one of the users."""
        password = {"MCPFLEET_NATS_PASSWORD": self.passwords[user]} if self.passwords else {}
        settings = cls.of({**self.variables, **password})
        log = self.lines.logger(settings.log_level)
        return LocalService(
            name, user, settings, serve, switch=self.switch, log=log, write_composed=self.lines.keep_composed
        )


@asynccontextmanager
async def local_environment(
    variables: Mapping[str, str], *, pool: str, nats: bool, seed: int
) -> AsyncIterator[LocalEnvironment]:
    """Open the environment for the length of a block.

    Args:
        variables: the settings of every service.
        pool: the pool of the workers.
        nats: embed a NATS server instead of a switch.
        seed: the switch's seed.
    """
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcpfleet-")))
        file = directory / "store.db"
        store = {"MCPFLEET_EMBEDDED": "true", "MCPFLEET_STORE_URL": f"sqlite:///{file}"}
        own = {**store, "MCPFLEET_SEAL_KEYS": str(make_keys(directory)), **variables}
        await _make_tables(StoreSettings.of(own), None if "MCPFLEET_STORE_URL" in variables else file)
        settings = ProcessSettings.of(own)
        if not nats:
            prefix = settings.subject_prefix
            rights = {user: permissions(user, own, prefix) for user, own in users([pool]).items()}
            yield LocalEnvironment(own, Switch(rights, seed=seed))
            return
        passwords = {user: secrets.token_urlsafe(24) for user in users([pool])}
        server = EmbeddedNats(directory, [pool], settings, passwords.__getitem__)
        stack.push_async_callback(server.child.kill)
        await server.start()
        yield LocalEnvironment({**own, "MCPFLEET_NATS_URL": server.url}, None, passwords)


async def _make_tables(settings: StoreSettings, own: Path | None) -> None:
    """Migrate a store; for a fleet's own file do that once a process, and copy the result from then on."""
    if own is None:
        await migrate_store(settings)
    elif not _copy(own):
        await migrate_store(settings)
        _keep(own)


def _copy(file: Path) -> bool:
    """Copy the store that was migrated before; whether one was."""
    for migrated in _MIGRATED:
        file.write_bytes(migrated)
    return bool(_MIGRATED)


def _keep(file: Path) -> None:
    _MIGRATED.append(file.read_bytes())


def check_names(variables: Mapping[str, str], classes: Iterable[type[Settings]]) -> None:
    """Refuse variables that no service knows.

    Raises:
        ConfigurationError: a variable is not known.
    """
    strangers = unknown_names(variables, classes)
    if strangers:
        raise ConfigurationError(*map(str, strangers))


def durations(classes: Iterable[type[Settings]], factor: float) -> dict[str, str]:
    """Return variables that divide every duration among the settings; none falls below 0.1 s."""
    if factor == 1.0:
        return {}
    return {name: value for cls in classes for name, value in scaled(cls, factor).items()}
