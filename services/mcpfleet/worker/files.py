"""The files that an application serves: checked at the start, brought to the catalog, and read again on change (X7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio
import anyio.to_thread
from structlog.typing import FilteringBoundLogger

from mcpfleet.app.errors import Mistake
from mcpfleet.app.file_source import FileSource, Reading, find_content
from mcpfleet.app.folder import Stamp
from mcpfleet.contracts.apps import APP_TYPE
from mcpfleet.contracts.manifest import FileRef
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.worker.served import ServedApp
from mcpfleet.worker.settings import WorkerSettings

_SETTLED: Final = 0.25
"""Seconds without a change after which a changed folder is read."""
_MOST_TURNS: Final = 40
"""Looks at a folder that goes on changing, before the next regular one."""


class AppFiles:
    """Knows the sources of an App."""

    def __init__(self, app: ServedApp, settings: WorkerSettings, log: FilteringBoundLogger) -> None:
        self._app = app
        self._settings = settings
        self._log = log
        self._told: dict[FileSource, str] = {}
        """The reason that the log has of a source that cannot be read now."""

    def check(self) -> None:
        """Check the files that the App declares now by the settings.

        Raises:
            ConfigurationError: a file, or all of them, are too large; the sentence names the file and the setting.
        """
        try:
            self._check(self._refs())
        except Mistake as mistake:
            raise ConfigurationError(mistake.why) from None

    def _refs(
        self, source: FileSource | None = None, reading: Reading | None = None
    ) -> list[tuple[FileSource, FileRef]]:
        """Return all files, with a source's new reading in place of its former one."""
        return [
            (each, ref)
            for each in self._app.file_sources
            for ref in (reading if reading is not None and each is source else each.reading).refs
        ]

    def _check(self, refs: Sequence[tuple[FileSource, FileRef]]) -> None:
        all_limit = self._settings.files_limit
        limits = [("MCPFLEET_FILE_LIMIT", self._settings.file_limit), ("MCPFLEET_UI_LIMIT", self._settings.ui_limit)]
        for source, ref in refs:
            for name, limit in limits[: 2 if ref.mime == APP_TYPE else 1]:
                if ref.size > limit:
                    place = source.folder.shown(ref.path)
                    raise Mistake(f"{name}: {place} has {ref.size} bytes, over the limit of {limit}")
        sizes = {ref.digest: ref.size for _, ref in refs}
        if sum(sizes.values()) > all_limit:
            source, ref = max(refs, key=lambda each: each[1].size)
            raise Mistake(
                f"MCPFLEET_FILES_LIMIT: the application's files have {sum(sizes.values())} bytes, over the limit of "
                f"{all_limit}; the largest is {source.folder.shown(ref.path)}"
            )

    async def content(self, digest: str) -> bytes:
        """Return the bytes that a digest names; raises `FilesChanged`."""
        return await anyio.to_thread.run_sync(find_content, self._app.file_sources, digest)

    async def run(self) -> None:
        """Follow changes of files until cancelled."""
        while True:
            await anyio.sleep(self._settings.files_reread)
            for source in self._app.file_sources:
                await self._look(source)

    async def _look(self, source: FileSource) -> None:
        """Read a source again if its files have changed; what cannot be served is logged once."""
        try:
            await self._reread(source)
        except (Mistake, OSError) as error:
            why = str(error)
            if self._told.get(source) != why:
                self._told[source] = why
                self._log.error("files not served, former ones stay", error=why, site=str(source.site))
        else:
            self._told.pop(source, None)

    async def _reread(self, source: FileSource) -> None:
        stamp = await anyio.to_thread.run_sync(source.stamp)
        if stamp == source.stamped:
            return
        stamp = await self._settled(source, stamp)
        reading = await anyio.to_thread.run_sync(source.read)
        if reading != source.reading:
            self._check(self._refs(source, reading))
            source.load(reading)
            self._log.info("files read again", files=len(reading.refs), site=str(source.site))
        source.stamped = stamp

    async def _settled(self, source: FileSource, stamp: Stamp) -> Stamp:
        """Wait until nothing has changed for a while; folders that never rest are read as they are."""
        for _ in range(_MOST_TURNS):
            await anyio.sleep(_SETTLED)
            former, stamp = stamp, await anyio.to_thread.run_sync(source.stamp)
            if stamp == former:
                break
        return stamp
