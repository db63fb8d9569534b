"""Files by digest: a worker announces what they are, the catalog keeps their bytes, edges fetch them (X1 to X3).

A definition, or another member of a manifest, names a file by a `FileRef`. A manifest is listed only once the catalog
has the bytes of all files that it names, so no snapshot names a missing file.

A feature whose content comes from files needs three things:

- a message of its manifest that has `FileRef`s, and a line in `Manifest.files` that returns them;
- a `mcpfleet.app.file_source.FileSource` in its App, which reads them at the start and at each reload;
- on the edge, `Files.fetch(pool, ref)`, which returns the verified bytes from its cache or the catalog.

A resource that is one file needs the first alone: edges answer reads of a definition whose `file` is set.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from pydantic import Field

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import UnreadableAnswer
from mcpfleet.bus.rpc import Rpc, ask
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.manifest import CHUNK, FileDigest, FileRef, file_digest
from mcpfleet.process.settings import Bytes, Settings

_TIMEOUT: Final = 10.0
"""Seconds for a chunk to be stored or fetched."""


class FileSettings(Settings):
    """The bounds of files, which workers and the catalog share (X5)."""

    file_limit: Bytes = Field(
        5 * 1024 * 1024,
        le=64 * 1024 * 1024,
        description="the largest file of an application; 5 MiB of Base64 fit a result",
    )
    files_limit: Bytes = Field(256 * 1024 * 1024, description="the size of all files of a pool's application together")


class PutChunk(Message):
    """A worker brings a part of a file."""

    digest: FileDigest
    size: int = Field(ge=0)
    """Bytes of the whole file."""
    number: int = Field(ge=0)
    """The chunk's place, from 0 on."""
    data: str
    """The bytes, in Base64."""


class ChunkStored(Message):
    """The catalog has the part."""

    whole: bool = False
    """The file is complete, and its digest is right: no further part is needed."""


class ChunkWanted(Message):
    """An edge asks for a part of a file."""

    pool: str
    digest: FileDigest
    number: int = Field(ge=0)


class Chunk(Message):
    """A part of a file."""

    data: str
    """The bytes, in Base64."""


FILE_PUT = Rpc("catalog.file.put.{pool}", PutChunk, ChunkStored, asked_by="pool-{pool}", repeat=True)
FILE_GET = Rpc("catalog.file.get", ChunkWanted, Chunk, asked_by="edge", repeat=True)


class FilesClient:
    """Brings files to the catalog, and fetches them.

    Both methods raise `BusError`: `Failed` with the kind `unknown` where the catalog does not have the file.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def put(self, pool: str, ref: FileRef, body: bytes) -> None:
        """Bring a file, chunk by chunk; doing it twice changes nothing."""
        for number in range(ref.chunks):
            data = base64.b64encode(body[number * CHUNK : (number + 1) * CHUNK]).decode()
            chunk = PutChunk(digest=ref.digest, size=ref.size, number=number, data=data)
            stored = await ask(self._bus, FILE_PUT, chunk, timeout=_TIMEOUT, pool=pool)
            if stored.whole:
                return

    async def get(self, pool: str, ref: FileRef) -> bytes:
        """Fetch a file, and verify its size and digest.

        Raises:
            UnreadableAnswer: the bytes are not those that the digest names.
        """
        parts = []
        for number in range(ref.chunks):
            wanted = ChunkWanted(pool=pool, digest=ref.digest, number=number)
            chunk = await ask(self._bus, FILE_GET, wanted, timeout=_TIMEOUT)
            parts.append(decoded(chunk.data))
        body = b"".join(parts)
        if len(body) != ref.size or file_digest(body) != ref.digest:
            raise UnreadableAnswer(f"{FILE_GET.subject}: the bytes are not those of the digest")
        return body


def decoded(data: str) -> bytes:
    """Read Base64; raises `UnreadableAnswer`."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise UnreadableAnswer("data: must be Base64") from None
