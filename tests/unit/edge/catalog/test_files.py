"""An edge's files: fetched once, kept within their room, and verified (X3)."""

from __future__ import annotations

from collections import Counter

import anyio
import anyio.lowlevel
import pytest
import structlog

from mcpfleet.bus.errors import Failed, Fault
from mcpfleet.contracts.files import FilesClient
from mcpfleet.contracts.manifest import FileRef, file_digest
from mcpfleet.edge.catalog.files import Files
from mcpfleet.telemetry.instruments import FileInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.wire.errors import Rejection


class Catalog(FilesClient):
    """Has these files, and counts the questions for them."""

    def __init__(self, *bodies: bytes) -> None:
        self.bodies = {file_digest(body): body for body in bodies}
        self.asked: Counter[str] = Counter()

    async def get(self, pool: str, ref: FileRef) -> bytes:
        del pool
        self.asked[ref.digest] += 1
        await anyio.lowlevel.checkpoint()
        if ref.digest not in self.bodies:
            raise Failed(Fault.UNKNOWN, "no such file")
        return self.bodies[ref.digest]


def ref(body: bytes, mime: str = "text/plain") -> FileRef:
    return FileRef(path="a", digest=file_digest(body), size=len(body), mime=mime)


def files(catalog: Catalog, room: int = 100) -> Files:
    return Files(catalog, room, instruments=FileInstruments(Metrics()), log=structlog.get_logger())


@pytest.mark.rule("X3")
async def test_many_readers_of_a_file_cause_one_fetch() -> None:
    """Whether they come at once or later."""
    catalog = Catalog(b"a")
    found = files(catalog)

    async def read() -> None:
        assert await found.fetch("shop", ref(b"a")) == b"a"

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(read)
    await read()
    assert catalog.asked.total() == 1


@pytest.mark.rule("X3")
async def test_the_longest_unused_files_go_where_room_lacks() -> None:
    """A file that is larger than the room is kept alone."""
    first, second, third = (letter * 40 for letter in (b"a", b"b", b"c"))
    catalog = Catalog(first, second, third, b"d" * 100)
    found = files(catalog)
    for body in (first, second, first, third):
        await found.fetch("shop", ref(body))
    assert found.size == 80
    await found.fetch("shop", ref(first))
    assert catalog.asked[file_digest(first)] == 1, "it was used last"
    await found.fetch("shop", ref(second))
    assert catalog.asked[file_digest(second)] == 2
    await found.fetch("shop", ref(b"d" * 100))
    assert found.size == 100


@pytest.mark.rule("X3", "X4")
async def test_pools_and_forms_have_their_own() -> None:
    """The same bytes may be a text in one place and a blob in another."""
    catalog = Catalog(b"a")
    found = files(catalog)
    assert await found.member("shop", ref(b"a")) == b'"text":"a"'
    assert await found.member("shop", ref(b"a", "image/png")) == b'"blob":"YQ=="'
    assert await found.member("other", ref(b"a")) == b'"text":"a"'
    assert catalog.asked.total() == 3


@pytest.mark.rule("X3")
async def test_a_reader_that_is_cancelled_leaves_the_fetch_to_the_next() -> None:
    """The others get the file."""
    catalog = Catalog(b"a")
    found = files(catalog)
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await found.fetch("shop", ref(b"a"))
        tasks.start_soon(found.fetch, "shop", ref(b"a"))
    assert await found.fetch("shop", ref(b"a")) == b"a"


@pytest.mark.rule("X3")
async def test_a_file_that_cannot_be_fetched_is_504_and_asked_for_again() -> None:
    """A failure is not kept."""
    catalog = Catalog()
    found = files(catalog)
    with pytest.raises(Rejection) as raised:
        await found.fetch("shop", ref(b"a"))
    assert raised.value.status == 504
    catalog.bodies[file_digest(b"a")] = b"a"
    assert await found.fetch("shop", ref(b"a")) == b"a"
