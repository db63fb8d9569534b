"""The catalog's files: whole and right, or not there; named by a manifest, or gone after a while (X2, X5)."""

from __future__ import annotations

import base64

import pytest

from mcpfleet.bus.errors import Failed
from mcpfleet.catalog.files import FileRepository
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.contracts.catalog import Announce, Announced
from mcpfleet.contracts.files import PutChunk
from mcpfleet.contracts.manifest import CHUNK, Definition, FileRef, Manifest, file_digest
from mcpfleet.store.engine import Store
from tests.contract.store.announcing import repository

BODY = bytes(range(256)) * 5_000  # two chunks


def ref(body: bytes = BODY) -> FileRef:
    return FileRef(path="a.bin", digest=file_digest(body), size=len(body))


def noting(*bodies: bytes) -> Manifest:
    """The manifest of an application whose resources are these files."""
    texts = (
        Definition(kind="resource", name=f"notes://{n}", wire={"uri": f"notes://{n}", "name": "n"}, file=ref(body)).text
        for n, body in enumerate(bodies)
    )
    return Manifest(name="notes", version="1", definitions=tuple(texts))


def chunk(body: bytes, number: int, *, of: FileRef | None = None) -> PutChunk:
    of = of or ref(body)
    data = base64.b64encode(body[number * CHUNK : (number + 1) * CHUNK]).decode()
    return PutChunk(digest=of.digest, size=of.size, number=number, data=data)


def kept(store: Store, **settings: int | float) -> FileRepository:
    return FileRepository(store, CatalogSettings.model_validate(settings))


async def put(files: FileRepository, body: bytes, pool: str = "notes") -> None:
    for number in range(ref(body).chunks):
        await files.put(pool, chunk(body, number))


async def is_there(files: FileRepository, body: bytes, pool: str = "notes") -> bool:
    try:
        await files.get(pool, ref(body).digest, 0)
    except Failed:
        return False
    return True


@pytest.mark.rule("X2")
async def test_a_file_is_there_once_all_its_parts_are(store: Store) -> None:
    """Its parts come back as they were; bringing it again changes nothing."""
    files = kept(store)
    assert not await files.put("notes", chunk(BODY, 0))
    assert not await is_there(files, BODY), "half a file"
    assert await files.put("notes", chunk(BODY, 1))
    parts = [await files.get("notes", ref().digest, number) for number in range(2)]
    assert b"".join(parts) == BODY
    assert await files.put("notes", chunk(BODY, 0)), "nothing more is needed"
    assert not await is_there(files, BODY, pool="others"), "a file of another pool"
    await put(files, b"")
    assert await is_there(files, b"")


@pytest.mark.rule("X2")
async def test_bytes_of_another_digest_are_refused_and_forgotten(store: Store) -> None:
    """The right bytes may still come."""
    files, wrong = kept(store), bytes(len(BODY))
    await files.put("notes", chunk(wrong, 0, of=ref()))
    with pytest.raises(Failed, match="must be the digest"):
        await files.put("notes", chunk(wrong, 1, of=ref()))
    await put(files, BODY)
    assert await is_there(files, BODY)


@pytest.mark.rule("X2", "X5")
async def test_parts_of_another_length_and_too_large_files_are_refused(store: Store) -> None:
    """The sentence names the rule, and the setting."""
    files = kept(store, file_limit=len(BODY), files_limit=len(BODY))
    short = chunk(BODY, 0).model_copy(update={"data": "AAAA"})
    for broken in (short, chunk(BODY, 2), chunk(BODY, 0).model_copy(update={"data": "?"})):
        with pytest.raises(Failed, match="data: "):
            await files.put("notes", broken)
    with pytest.raises(Failed, match="MCPFLEET_FILE_LIMIT"):
        await files.put("notes", chunk(BODY + b"x", 0))
    await put(files, BODY)
    await put(files, bytes(len(BODY)))
    with pytest.raises(Failed, match="MCPFLEET_FILES_LIMIT"):
        await files.put("notes", chunk(b"x", 0))
    await put(files, b"x", pool="others")


@pytest.mark.rule("X2")
async def test_a_worker_counts_once_all_files_of_its_manifest_are_there(store: Store) -> None:
    """Until then no snapshot has it, and each answer says what is missing."""
    books, files, what = repository(store), kept(store), noting(b"a", b"b")
    whole = Announce(process="w", digest=what.digest, manifest=what.text)
    missing = {ref(b"a").digest, ref(b"b").digest}
    assert set((await books.count_in("notes", whole)).files) == missing
    await put(files, b"a")
    await put(files, b"b", pool="others")
    known = Announce(process="w", digest=what.digest)
    assert (await books.count_in("notes", known)).files == (ref(b"b").digest,)
    assert not (await books.sweep(lost=None)).seen.tallies
    await put(files, b"b")
    # The sweep has deleted the manifest, which nothing referred to.
    assert (await books.count_in("notes", known)).wanted
    assert await books.count_in("notes", whole) == Announced()
    assert (await books.sweep(lost=None)).seen.tallies


@pytest.mark.rule("X5")
@pytest.mark.parametrize("setting", ["file_limit", "files_limit"])
async def test_a_manifest_of_too_large_files_is_refused(store: Store, setting: str) -> None:
    """A catalog with a lower setting says so, and which one."""
    books, what = repository(store, None, **{setting: 1}), noting(b"ab")
    with pytest.raises(Failed, match=f"MCPFLEET_{setting.upper()}"):
        await books.count_in("notes", Announce(process="w", digest=what.digest, manifest=what.text))


@pytest.mark.rule("X5")
async def test_bytes_go_once_nothing_has_named_them_for_a_while(store: Store) -> None:
    """Those of a listed manifest stay, and so do those that a worker is about to announce."""
    books, files = repository(store, linger=0.001), kept(store, files_kept=0)
    patient = kept(store, files_kept=3600)
    for body in (b"a", b"b"):
        await put(files, body)
    what = noting(b"a")
    assert await books.count_in("notes", Announce(process="w", digest=what.digest, manifest=what.text)) == Announced()
    await books.sweep(lost=None)
    await patient.collect()
    assert await is_there(files, b"b"), "for an hour"
    await files.collect()
    assert await is_there(files, b"a")
    assert not await is_there(files, b"b")
    await books.leave("notes", "w")
    await books.sweep(lost=None)
    await files.collect()
    assert await is_there(files, b"a"), "its pool still lists it"
    await books.withdraw("notes")
    await files.collect()
    assert not await is_there(files, b"a")
