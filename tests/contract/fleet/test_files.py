"""Files by digest in a whole fleet: workers name them, the catalog keeps them, edges answer with them (X1 to X7)."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import BlobResourceContents, TextResourceContents

from mcpfleet.app import App
from mcpfleet.app.file_source import OneFile
from mcpfleet.app.folder import FileContent, Folder
from mcpfleet.app.site import Site
from mcpfleet.contracts.manifest import Definition, FileRef, file_digest
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.listener import ACK, UPDATED
from tests.contract.fleet.test_streams import at_every_edge, each
from tests.kit.waiting import until
from tests.unit.edge.asgi import MODERN, request

NOTE = "notes://a"
QUICK = {"MCPFLEET_FILES_REREAD": "0.2", "MCPFLEET_ANNOUNCE_INTERVAL": "0.3"}


def noting(app: App, path: Path, uri: str = NOTE) -> App:
    """Declare a file as a resource of an App."""

    def define(content: FileContent, ref: FileRef) -> Definition:
        del content
        return Definition(kind="resource", name=uri, wire={"uri": uri, "name": path.name}, file=ref)

    app.declared.add_source(OneFile(Folder(path.parent), path.name, Site.of_caller(), define))
    return app


def written(path: Path, body: bytes) -> None:
    """Put a file in its place at once."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(body)
    new.rename(path)


async def read(fleet: LocalFleet, uri: str = NOTE, edge: int = 0) -> bytes:
    """Read a resource as a client does."""
    async with fleet.client(edge) as client:
        [found] = (await client.read_resource(uri, cache_mode="refresh")).contents
    if isinstance(found, TextResourceContents):
        return found.text.encode()
    assert isinstance(found, BlobResourceContents)
    return base64.b64decode(found.blob)


@pytest.mark.rule("X1", "X3")
async def test_a_file_is_read_at_any_edge_when_all_workers_are_gone(tmp_path: Path) -> None:
    """No worker is asked: its manifest has the digest, and the catalog the bytes."""
    body = bytes(range(256)) * 9_000  # three chunks, and no text
    (tmp_path / "a.bin").write_bytes(body)
    app = noting(App("notes", version="1"), tmp_path / "a.bin")
    [handler] = app.handlers
    assert handler.definition.file is not None
    assert handler.definition.file.digest == file_digest(body)
    async with LocalFleet(app, edges=2) as fleet:
        await fleet.workers[0].kill()
        assert await read(fleet) == body
        assert await read(fleet, edge=1) == body


@pytest.mark.rule("X3")
async def test_an_edge_keeps_a_file_without_the_catalog_and_has_504_for_another(tmp_path: Path) -> None:
    """A file that was read once is answered from memory; a client learns that nothing was run for the other."""
    app = App("notes", version="1")
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
        noting(app, tmp_path / name, f"notes://{name}")
    async with LocalFleet(app, factor=5) as fleet, fleet.http() as http:
        assert await read(fleet) == b"a"
        await fleet.catalog.kill()
        assert await read(fleet) == b"a"
        answer = await http.post("/mcp", **_reading("notes://b"), timeout=30)
        assert answer.status_code == 504
        assert answer.json()["error"]["message"].startswith("the catalog did not answer")


def _reading(uri: str) -> dict[str, Any]:
    names = {"Mcp-Method": "resources/read", "Mcp-Name": uri, "MCP-Protocol-Version": MODERN}
    return {"json": request("resources/read", {"uri": uri}), "headers": names}


@pytest.mark.rule("X2", "X7")
async def test_a_changed_file_is_served_once_the_catalog_has_it_and_its_watchers_hear(tmp_path: Path) -> None:
    """At every edge; a definition that is the same tells no list."""
    path = tmp_path / "a.md"
    path.write_text("old")
    async with (
        LocalFleet(noting(App("notes", version="1"), path), edges=2, workers=2, environment=QUICK) as fleet,
        at_every_edge(fleet, 2, resourceSubscriptions=[NOTE], resourcesListChanged=True) as streams,
    ):
        assert await read(fleet) == b"old"
        written(path, b"new")
        await each(streams, lambda stream: stream.kinds() == [ACK, UPDATED])
        for edge in range(2):
            assert await read(fleet, edge=edge) == b"new"


@pytest.mark.rule("X7")
@pytest.mark.parametrize(
    "harm", [Path.unlink, lambda path: (path.unlink(), path.symlink_to("/etc/passwd"))], ids=["gone", "a link"]
)
async def test_files_that_cannot_be_served_leave_the_former_ones(
    tmp_path: Path, harm: Callable[[Path], object]
) -> None:
    """The log says it once, and the next good state is served."""
    path = tmp_path / "a.md"
    path.write_text("old")
    async with LocalFleet(noting(App("notes", version="1"), path), environment=QUICK) as fleet:
        harm(path)
        await until(lambda: fleet.lines("files not served, former ones stay"))
        await anyio.sleep(0.7)  # three more looks
        assert len(fleet.lines("files not served, former ones stay")) == 1
        assert await read(fleet) == b"old"
        written(path, b"new")
        await until(lambda: fleet.lines("files read again"))
        await until(lambda: len(fleet.lines("snapshot taken")) > 1)
        assert await read(fleet) == b"new"


@pytest.mark.rule("X5")
@pytest.mark.parametrize("setting", ["MCPFLEET_FILE_LIMIT", "MCPFLEET_FILES_LIMIT"])
async def test_a_worker_with_too_large_files_does_not_start(tmp_path: Path, setting: str) -> None:
    """The error names the file and the setting."""
    (tmp_path / "a.md").write_bytes(bytes(1_001))
    app = noting(App("notes", version="1"), tmp_path / "a.md")
    with pytest.raises(ConfigurationError, match=rf"{setting}: .*a\.md"):
        async with LocalFleet(app, environment={setting: "1000"}):
            pass


@pytest.mark.rule("X7")
async def test_a_change_of_the_same_size_and_moment_is_noticed_by_its_inode(tmp_path: Path) -> None:
    """A file that is put in place with an old date is another file."""
    path = tmp_path / "a.md"
    path.write_text("old")
    about = path.stat()
    async with LocalFleet(noting(App("notes", version="1"), path), environment=QUICK) as fleet:
        new = tmp_path / ".new"
        new.write_text("new")
        os.utime(new, ns=(about.st_atime_ns, about.st_mtime_ns))
        new.rename(path)
        await until(lambda: len(fleet.lines("snapshot taken")) > 1)
        assert await read(fleet) == b"new"
