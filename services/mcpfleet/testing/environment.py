"""The environment of a local fleet's services: settings, a store, a log, and a switch or NATS between them."""

from __future__ import annotations

import secrets
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import structlog
from pydantic_settings import EnvSettingsSource
from structlog.processors import TimeStamper, add_log_level, format_exc_info
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from mcpfleet.bus.memory.switch import Switch
from mcpfleet.cli.embedded_nats import EmbeddedNats
from mcpfleet.cli.services import migrate_store
from mcpfleet.contracts.permissions import permissions, users
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.keys import make_keys
from mcpfleet.process.logs import ConsoleLines
from mcpfleet.process.settings import ProcessSettings, Settings, loaded
from mcpfleet.process.settings_table import scaled, unknown_names
from mcpfleet.store.settings import StoreSettings
from mcpfleet.testing.service import LocalService, S, Serve

AnySettings = TypeVar("AnySettings", bound=Settings)

AT_ONCE: Final[Mapping[str, str]] = MappingProxyType({"MCPFLEET_LAME": "0", "MCPFLEET_DRAIN_GRACE": "0"})
"""Variables by which an edge that drains waits for what runs, and for no client that may come yet."""
_NOBODYS: Final = "NOT_IN_THIS_ENVIRONMENT_"

POOL: Final = "app"
"""The pool of a local fleet's workers."""
_KEPT: Final = 10_000
"""Lines; the oldest go first."""
_MIGRATED: Final[deque[bytes]] = deque(maxlen=1)
"""The file of a migrated store, once this process has made one: migrations take a third of a fleet's start."""


class LogLines:
    """The newest lines of all services."""

    def __init__(self) -> None:
        self._kept: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._render = ConsoleLines(colours=False)

    def logger(self, level: str) -> FilteringBoundLogger:
        """A logger whose lines are kept here, from a level on."""
        time = TimeStamper(fmt="%H:%M:%S.%f", utc=False, key="time")
        log: FilteringBoundLogger = structlog.wrap_logger(
            None,
            processors=[add_log_level, time, format_exc_info, self._keep],
            wrapper_class=structlog.make_filtering_bound_logger(level),
        )
        return log

    def of(self, event: str) -> list[dict[str, Any]]:
        """The lines of one event, with what each says of it."""
        return [line for line in self._kept if line["event"] == event]

    def text(self) -> str:
        """All lines, for people."""
        return "\n".join(self._render(None, "", dict(line)) for line in self._kept)

    def _keep(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        self._kept.append(dict(event))
        raise structlog.DropEvent


@dataclass(frozen=True)
class LocalEnvironment:
    """Made by `local_environment`."""

    variables: Mapping[str, str]
    """The settings of every service."""
    switch: Switch | None
    """None where NATS connects the services."""
    passwords: Mapping[str, str] = field(default_factory=dict)
    """Of the users of that NATS."""
    lines: LogLines = field(default_factory=LogLines)
    """What the services log."""

    def service(self, name: str, cls: type[S], serve: Serve[S], *, user: str) -> LocalService[S]:
        """Make a service that is one of the users."""
        password = {"MCPFLEET_NATS_PASSWORD": self.passwords[user]} if self.passwords else {}
        settings = read(cls, {**self.variables, **password})
        return LocalService(name, user, settings, serve, switch=self.switch, log=self.lines.logger(settings.log_level))


@asynccontextmanager
async def local_environment(variables: Mapping[str, str], *, nats: bool, seed: int) -> AsyncIterator[LocalEnvironment]:
    """Lay the ground for the length of a block.

    Args:
        variables: the settings of every service.
        nats: embed a NATS server, instead of a switch.
        seed: the switch's.
    """
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcpfleet-")))
        file = directory / "store.db"
        store = {"MCPFLEET_EMBEDDED": "true", "MCPFLEET_STORE_URL": f"sqlite:///{file}"}
        own = {**store, "MCPFLEET_SEAL_KEYS": str(make_keys(directory)), **variables}
        await _make_tables(read(StoreSettings, own), None if "MCPFLEET_STORE_URL" in variables else file)
        settings = read(ProcessSettings, own)
        if not nats:
            prefix = settings.subject_prefix
            rights = {user: permissions(user, pool, prefix) for user, pool in users([POOL]).items()}
            yield LocalEnvironment(own, Switch(rights, seed=seed))
            return
        passwords = {user: secrets.token_urlsafe(24) for user in users([POOL])}
        server = EmbeddedNats(directory, [POOL], settings, passwords.__getitem__)
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


def read(cls: type[AnySettings], variables: Mapping[str, str]) -> AnySettings:
    """Read settings as a process would that has these variables, and none of this process's own.

    Raises:
        ConfigurationError: a value breaks its field's rule.
    """
    source = EnvSettingsSource(cls)
    source.env_vars = {name.lower(): value for name, value in variables.items()}
    return loaded(lambda: cls(_env_prefix=_NOBODYS, **source()))


def check_names(variables: Mapping[str, str], classes: Iterable[type[Settings]]) -> None:
    """Refuse a variable that no service knows.

    Raises:
        ConfigurationError: there is one.
    """
    strangers = unknown_names(variables, classes)
    if strangers:
        raise ConfigurationError(*map(str, strangers))


def durations(classes: Iterable[type[Settings]], factor: float) -> dict[str, str]:
    """The variables that divide every duration among the settings; none gets below 0.1 s."""
    if factor == 1.0:
        return {}
    return {name: value for cls in classes for name, value in scaled(cls, factor).items()}
