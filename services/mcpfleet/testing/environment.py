"""What the parts of a local fleet stand on: their settings, a store, a log, and a switch or NATS between them."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mcpfleet.bus.memory import Switch
from mcpfleet.cli.embedded_nats import EmbeddedNats
from mcpfleet.cli.migrations import migrate_store
from mcpfleet.contracts.permissions import permissions, users
from mcpfleet.process.keys import make_keys
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.store.settings import StoreSettings
from mcpfleet.testing.lines import Lines
from mcpfleet.testing.reading import read
from mcpfleet.testing.service import Part, S, Serve

POOL: Final = "app"
"""The pool of a local fleet's workers."""


@dataclass(frozen=True)
class Ground:
    """Made by `laid`."""

    variables: Mapping[str, str]
    """The settings of every part."""
    switch: Switch | None
    """None where NATS connects the parts."""
    passwords: Mapping[str, str] = field(default_factory=dict)
    """Of the users of that NATS."""
    lines: Lines = field(default_factory=Lines)
    """What the parts log."""

    def part(self, name: str, cls: type[S], serve: Serve[S], *, user: str) -> Part[S]:
        """Make a part that is one of the users."""
        password = {"MCPFLEET_NATS_PASSWORD": self.passwords[user]} if self.passwords else {}
        settings = read(cls, {**self.variables, **password})
        return Part(name, user, settings, serve, switch=self.switch, log=self.lines.logger(settings.log_level))


@asynccontextmanager
async def laid(variables: Mapping[str, str], *, nats: bool, seed: int) -> AsyncIterator[Ground]:
    """Lay the ground for the length of a block.

    Args:
        variables: the settings of every part.
        nats: embed a NATS server, instead of a switch.
        seed: the switch's.
    """
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcpfleet-")))
        store = {"MCPFLEET_EMBEDDED": "true", "MCPFLEET_STORE_URL": f"sqlite:///{directory / 'store.db'}"}
        own = {**store, "MCPFLEET_SEAL_KEYS": str(make_keys(directory)), **variables}
        await migrate_store(read(StoreSettings, own))
        settings = read(ProcessSettings, own)
        if not nats:
            prefix = settings.subject_prefix
            rights = {user: permissions(user, pool, prefix) for user, pool in users([POOL]).items()}
            yield Ground(own, Switch(rights, seed=seed))
            return
        passwords = {user: secrets.token_urlsafe(24) for user in users([POOL])}
        server = EmbeddedNats(directory, [POOL], settings, passwords.__getitem__)
        stack.push_async_callback(server.child.kill)
        await server.start()
        yield Ground({**own, "MCPFLEET_NATS_URL": server.url}, None, passwords)
