"""Fetches the declared texts of a snapshot's languages, before its views are built (X38)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import anyio
from pydantic_core import from_json
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.catalog import Snapshot
from mcpfleet.contracts.files import FilesClient
from mcpfleet.contracts.manifest import FileRef
from mcpfleet.views.languages import OfferedLanguages, Texts

_AT_ONCE: Final = 8
"""Files that are fetched at once."""
_Key = tuple[str, str]
"""A pool and a digest."""


class LanguageFiles:
    """Keeps the texts that the newest snapshots name, of each endpoint."""

    def __init__(self, client: FilesClient, room: int, *, log: FilteringBoundLogger) -> None:
        """Keep nothing yet.

        Args:
            client: asks the catalog.
            room: bytes of texts that an endpoint's snapshot may have (MCPFLEET_FILE_ROOM).
            log: for what an operator should know.
        """
        self._client = client
        self._room = room
        self._log = log
        self._kept: dict[str, dict[_Key, Texts]] = {}
        """By endpoint."""

    async def offered(self, snapshot: Snapshot) -> OfferedLanguages | None:
        """Return the languages of a snapshot, with their texts; None where it has none.

        Raises:
            BusError: the catalog did not answer with a file.
        """
        if not snapshot.languages:
            self._kept.pop(snapshot.endpoint, None)
            return None
        refs = dict(self._within_room(snapshot))
        known = self._kept.get(snapshot.endpoint, {})
        wanted = {(pool, ref.digest) for (pool, _), ref in refs.items()}
        texts = {key: each for key, each in known.items() if key in wanted}
        await self._fetch(refs, texts)
        self._kept[snapshot.endpoint] = texts
        return OfferedLanguages(snapshot, {name: texts[name[0], ref.digest] for name, ref in refs.items()})

    def _within_room(self, snapshot: Snapshot) -> Iterator[tuple[_Key, FileRef]]:
        """Yield the files by pool and tag, of each pool for all of whose files there is room."""
        left = self._room
        for pool, languages in sorted(snapshot.languages.items()):
            size = sum(ref.size for ref in languages.files.values())
            if size > left:
                self._log.error(
                    "languages left out", endpoint=snapshot.endpoint, pool=pool, setting="MCPFLEET_FILE_ROOM"
                )
                continue
            left -= size
            for tag, ref in languages.files.items():
                yield (pool, tag), ref

    async def _fetch(self, refs: Mapping[_Key, FileRef], texts: dict[_Key, Texts]) -> None:
        """Fetch the files that are not known yet, each once."""
        missing = {(pool, ref.digest): ref for (pool, _), ref in refs.items() if (pool, ref.digest) not in texts}
        places = anyio.Semaphore(_AT_ONCE)
        failures: list[BusError] = []

        async def fetch(key: _Key, ref: FileRef) -> None:
            async with places:
                try:
                    texts[key] = self._read(key[0], ref, await self._client.get(key[0], ref))
                except BusError as error:  # raised outside of the group, which would wrap it
                    failures.append(error)

        async with anyio.create_task_group() as tasks:
            for key, ref in missing.items():
                tasks.start_soon(fetch, key, ref)
        if failures:
            raise failures[0]

    def _read(self, pool: str, ref: FileRef, body: bytes) -> Texts:
        """Read a compiled file; a malformed one translates nothing, since one pool must not stop the others."""
        try:
            value = from_json(body)
        except ValueError:
            value = None
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            self._log.error("malformed messages", pool=pool, path=ref.path)
            return {}
        return value
