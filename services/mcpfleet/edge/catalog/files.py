"""Files by digest on an edge: from its cache, else from the catalog; no worker is asked (X3)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.files import FilesClient
from mcpfleet.contracts.manifest import FileRef
from mcpfleet.edge.transport.memory_budget import BudgetExhausted, MemoryBudget
from mcpfleet.telemetry.instruments import FileInstruments
from mcpfleet.wire.errors import not_answered
from mcpfleet.wire.file_contents import content_member, is_textual

_SERVICE: Final = "the catalog"
_ROOM_WITHIN: Final = 5.0
"""Seconds for which a file waits for memory, before it is given up."""


class _Key(NamedTuple):
    """A file in one form: as its bytes, or as the member of a contents block (X4)."""

    pool: str
    digest: str
    form: str


class Files:
    """Fetches files and keeps them, the longest unused goes first. The same file is fetched once at a time."""

    def __init__(
        self, client: FilesClient, room: int, *, instruments: FileInstruments, log: FilteringBoundLogger
    ) -> None:
        """Keep nothing yet.

        Args:
            client: asks the catalog.
            room: bytes of files that are kept, and bytes of files that are being fetched (MCPFLEET_FILE_ROOM).
            instruments: counts fetches.
            log: for what an operator should know.
        """
        self._client = client
        self._room = room
        self._arriving = MemoryBudget(room, "MCPFLEET_FILE_ROOM")
        self._instruments = instruments
        self._log = log
        self._kept: OrderedDict[_Key, bytes] = OrderedDict()
        self._size = 0
        self._fetching: dict[_Key, anyio.Event] = {}

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._size

    async def fetch(self, pool: str, ref: FileRef) -> bytes:
        """Return a file's bytes, whose digest is verified.

        Raises:
            Rejection: 504 where it is neither kept, nor the catalog answers with it.
        """
        return await self._find(pool, ref, "bytes")

    async def member(self, pool: str, ref: FileRef) -> bytes:
        """Return the member of a contents block that carries a file: `"text":…` or `"blob":…`; raises as `fetch`."""
        return await self._find(pool, ref, "text" if is_textual(ref.mime) else "blob")

    async def _find(self, pool: str, ref: FileRef, form: str) -> bytes:
        key = _Key(pool, ref.digest, form)
        while (kept := self._kept.get(key)) is None:
            if (fetching := self._fetching.get(key)) is None:
                return await self._fetch(key, ref)
            await fetching.wait()
        self._kept.move_to_end(key)
        return kept

    async def _fetch(self, key: _Key, ref: FileRef) -> bytes:
        fetched = self._fetching[key] = anyio.Event()
        try:
            async with self._arriving.hold(ref.size, within=_ROOM_WITHIN):
                body = await self._client.get(key.pool, ref)
                found = body if key.form == "bytes" else content_member(body, ref.mime)
        except (BusError, BudgetExhausted) as error:
            self._instruments.fetches.add(1, "failed")
            self._log.warning("file not fetched", pool=key.pool, path=ref.path, error=str(error))
            raise not_answered(_SERVICE) from None
        finally:
            del self._fetching[key]
            fetched.set()
        self._instruments.fetches.add(1, "fetched")
        self._keep(key, found)
        return found

    def _keep(self, key: _Key, found: bytes) -> None:
        self._kept[key] = found
        self._size += len(found)
        while self._size > self._room and len(self._kept) > 1:
            self._size -= len(self._kept.popitem(last=False)[1])
