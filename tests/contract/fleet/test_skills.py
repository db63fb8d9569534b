"""Skills in a whole fleet: methods, reads and changes at every edge, by the rights of each caller (X20 to X29)."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from mcpfleet.app import App
from mcpfleet.contracts.manifest import file_digest
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.listener import ACK, UPDATED, changed
from tests.contract.fleet.test_files import QUICK, written
from tests.contract.fleet.test_stream_permission import ANN, BOB
from tests.contract.fleet.test_stream_permission import fleet as guarded
from tests.contract.fleet.test_streams import at_every_edge, each
from tests.kit.waiting import until
from tests.unit.app.test_skills import folder, skill
from tests.unit.edge.asgi import MODERN, request

SKILLS = "io.modelcontextprotocol/skills"
LIST, GET, DIRECTORY = "skills/list", "skills/get", "resources/directory/read"
A = "skill://acme/a/SKILL.md"


async def answer(http: httpx2.AsyncClient, method: str, token: str = "", **params: Any) -> Any:
    """Send a request, and return its result, or its error's code with its message."""
    headers = {"Mcp-Method": method, "MCP-Protocol-Version": MODERN}
    if method == "resources/read":
        headers["Mcp-Name"] = params["uri"]
    if token:
        headers["Authorization"] = f"Bearer {token}"
    found = (await http.post("/mcp", json=request(method, params), headers=headers)).json()
    return found["result"] if "result" in found else (found["error"]["code"], found["error"]["message"])


def skilled(root: Path, **options: Any) -> App:
    app = App("shop", version="1")
    app.skills(str(root), prefix="acme", **options)
    return app


def small(root: Path) -> Path:
    files: Mapping[str, str | bytes] = {
        "a/SKILL.md": skill("a"),
        "a/b/SKILL.md": skill("b"),
        "a/docs/x.md": "# X\r\n",
        "a/logo.png": b"\x89PNG\xff",
        "c/SKILL.md": skill("c"),
    }
    return folder(root, files)


def uris(found: Any) -> list[str]:
    return [each["uri"] for each in found]


def text(content: Mapping[str, Any]) -> bytes:
    return content["text"].encode() if "text" in content else base64.b64decode(content["blob"])


@pytest.mark.rule("X20", "X21", "X22", "X28")
async def test_every_edge_lists_skills_whose_files_have_their_digests(tmp_path: Path) -> None:
    """The endpoint declares the extension, entries are the same in both methods, and reads fit them byte for byte."""
    async with LocalFleet(skilled(small(tmp_path)), edges=2) as fleet:
        for edge in range(2):
            async with fleet.http(edge) as http:
                discovered = (await answer(http, "server/discover"))["capabilities"]
                assert discovered["extensions"][SKILLS] == {"directoryRead": True}
                assert "resources" in discovered
                listed = await answer(http, LIST)
                assert (listed["resultType"], listed["cacheScope"]) == ("complete", "public")
                assert listed["ttlMs"] >= 0
                assert uris(listed["skills"]) == [A, "skill://acme/a/b/SKILL.md", "skill://acme/c/SKILL.md"]
                for found in listed["skills"]:
                    got = await answer(http, GET, uri=found["uri"])
                    assert got["skill"] == found
                    assert "nextCursor" not in got
                    assert got.keys() >= {"resultType", "ttlMs", "cacheScope"}
                    for resource in found["resources"]:
                        read = await answer(http, "resources/read", uri=resource["uri"])
                        body = text(read["contents"][0])
                        assert (file_digest(body), len(body)) == (resource["digest"], resource["size"])
                assert len(listed["skills"][0]["resources"]) == 4


@pytest.mark.rule("X20", "X22", "X23")
async def test_what_is_no_skill_and_no_directory_is_refused(tmp_path: Path) -> None:
    """Unknown URIs, other files, trailing slashes and bad cursors are -32602; without skills there are no methods."""
    async with LocalFleet(skilled(small(tmp_path))) as fleet, fleet.http() as http:
        unknown = {
            (await answer(http, GET, uri=uri))[:2]
            for uri in ("skill://acme/z/SKILL.md", "skill://acme/a", "skill://acme/a/docs/x.md", "file:///etc/passwd")
        }
        assert len(unknown) == 1, "the same words for each"
        assert unknown.pop()[0] == -32602
        for uri in (A, "skill://acme/a/docs/x.md", "skill://acme/a/", "skill://acme/z", "skill://", "skill:"):
            assert (await answer(http, DIRECTORY, uri=uri))[0] == -32602
        for method, more in ((LIST, {}), (DIRECTORY, {"uri": "skill://acme"})):
            assert (await answer(http, method, cursor="x", **more))[0] == -32602
        assert (await answer(http, "resources/read", uri="skill://acme/z/SKILL.md"))[0] == -32602
    bare = App("bare", version="1")

    @bare.resource("bare://x")
    async def some() -> str:
        return "x"

    async with LocalFleet(bare) as fleet, fleet.http() as http:
        for method in (LIST, GET, DIRECTORY):
            assert (await answer(http, method, uri=A))[0] == -32601


@pytest.mark.rule("X20")
async def test_clients_of_2025_see_no_skills(tmp_path: Path) -> None:
    """The methods do not exist, and neither do the resources."""
    app = skilled(small(tmp_path))

    @app.resource("shop://x")
    async def some() -> str:
        return "x"

    async with LocalFleet(app) as fleet, fleet.http() as http:

        async def old(method: str) -> Any:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"uri": A}}
            return (await http.post("/mcp", json=body, headers={"MCP-Protocol-Version": "2025-11-25"})).json()

        for method in (LIST, GET, DIRECTORY):
            assert (await old(method))["error"]["code"] == -32601
        assert (await old("resources/read"))["error"]["code"] == -32002
        assert uris((await old("resources/list"))["result"]["resources"]) == ["shop://x"]


@pytest.mark.rule("X23", "X24")
async def test_directories_have_their_direct_children_and_lists_each_skill_md_alone(tmp_path: Path) -> None:
    """Prefixes are directories too; a file has its media type and a skill its name."""
    async with LocalFleet(skilled(small(tmp_path))) as fleet, fleet.http() as http:

        async def children(uri: str) -> list[tuple[str, str, str]]:
            found = await answer(http, DIRECTORY, uri=uri)
            assert found["resultType"] == "complete"
            return [(each["uri"], each["name"], each["mimeType"]) for each in found["resources"]]

        folder_type, a = "inode/directory", "skill://acme/a"
        assert await children("skill://acme") == [(a, "a", folder_type), ("skill://acme/c", "c", folder_type)]
        assert await children(a) == [
            (A, "a", "text/markdown"),
            (f"{a}/b", "b", folder_type),
            (f"{a}/docs", "docs", folder_type),
            (f"{a}/logo.png", "logo.png", "image/png"),
        ]
        assert await children(f"{a}/docs") == [(f"{a}/docs/x.md", "x.md", "text/markdown")]
        listed = (await answer(http, "resources/list"))["resources"]
        assert uris(listed) == [A, f"{a}/b/SKILL.md", "skill://acme/c/SKILL.md"]
        assert listed[0] == {"uri": A, "name": "a", "description": "Do it.", "mimeType": "text/markdown"}


@pytest.mark.rule("X22", "X23")
async def test_long_lists_come_in_pages_at_any_edge(tmp_path: Path) -> None:
    """50 entries, 200 children and 1 MiB a page; a cursor is good at another edge, and dies when the list changes."""
    files = {f"s{n:03}/SKILL.md": skill(f"s{n:03}") for n in range(51)}
    files |= {f"s000/f{n:03}.txt": "x" for n in range(250)}
    root = folder(tmp_path, files)
    async with (
        LocalFleet(skilled(root), edges=2, environment=QUICK) as fleet,
        fleet.http(0) as http,
        fleet.http(1) as other,
    ):
        first = await answer(http, LIST)
        second = await answer(other, LIST, cursor=first["nextCursor"])
        assert [len(first["skills"]), len(second["skills"])] == [50, 1]
        assert uris(first["skills"] + second["skills"]) == sorted(f"skill://acme/s{n:03}/SKILL.md" for n in range(51))
        some = await answer(http, DIRECTORY, uri="skill://acme/s000")
        rest = await answer(other, DIRECTORY, uri="skill://acme/s000", cursor=some["nextCursor"])
        assert [len(some["resources"]), len(rest["resources"])] == [200, 51]
        assert (await answer(other, DIRECTORY, uri="skill://acme", cursor=some["nextCursor"]))[0] == -32602
        written(root / "s050/SKILL.md", skill("s050", "Other.").encode())
        await until(lambda: len(fleet.lines("snapshot taken")) > 3)
        assert (await answer(http, LIST, cursor=first["nextCursor"]))[0] == -32602


@pytest.mark.rule("X25")
async def test_changes_are_told_to_those_whom_they_concern(tmp_path: Path) -> None:
    """A file: its watchers, and those of its SKILL.md. Another description, a skill that goes: the list."""
    root, x = small(tmp_path), "skill://acme/a/docs/x.md"
    async with (
        LocalFleet(skilled(root), edges=2, environment=QUICK) as fleet,
        at_every_edge(fleet, 1, resourceSubscriptions=[x]) as of_file,
        at_every_edge(fleet, 1, resourceSubscriptions=[A], resourcesListChanged=True) as of_skill,
        at_every_edge(fleet, 1, resourceSubscriptions=["skill://acme/c/SKILL.md"]) as of_other,
        at_every_edge(fleet, 1, resourcesListChanged=True) as of_list,
    ):
        written(root / "a/docs/x.md", b"new")
        await each([*of_file, *of_skill], lambda stream: stream.kinds() == [ACK, UPDATED])
        assert {*of_skill[0].uris()} == {A}
        written(root / "c/SKILL.md", skill("c", "Do other things.").encode())
        await each(of_other, lambda stream: stream.kinds() == [ACK, UPDATED])
        await each(of_list, lambda stream: stream.kinds() == [ACK, changed("resources")])
        shutil.rmtree(root / "c")
        await each(of_list, lambda stream: stream.kinds() == [ACK, *[changed("resources")] * 2])
        assert [stream.kinds() for stream in of_file] == [[ACK, UPDATED]] * 2


@pytest.mark.rule("X25")
async def test_a_skill_that_becomes_invalid_stays_as_it_was(tmp_path: Path) -> None:
    """All skills of the folder stay, and the log says which file is wrong."""
    root = small(tmp_path)
    async with LocalFleet(skilled(root), environment=QUICK) as fleet, fleet.http() as http:
        before = await answer(http, LIST)
        written(root / "a/SKILL.md", skill("a", more="on: 1\n").encode())
        await until(lambda: fleet.lines("files not served, former ones stay"))
        assert "a/SKILL.md: line 4" in fleet.lines("files not served, former ones stay")[0]["error"]
        assert (await answer(http, LIST))["skills"] == before["skills"]


@pytest.mark.rule("X2", "X28")
async def test_a_folder_that_is_rewritten_all_the_time_has_no_entry_without_its_bytes(tmp_path: Path) -> None:
    """A read fits the entry, or the one that `skills/get` has a moment later."""
    root = small(tmp_path)
    async with LocalFleet(skilled(root), edges=2, workers=2, environment=QUICK) as fleet:

        async def rewrite() -> None:
            for number in itertools.count():
                written(root / "a/docs/x.md", b"%d" % number * 100_000)
                written(root / "a/SKILL.md", skill("a", f'"{number}"').encode())
                await anyio.sleep(0.8)

        async with anyio.create_task_group() as tasks, fleet.http(0) as http, fleet.http(1) as other:
            tasks.start_soon(rewrite)
            seen: set[str] = set()

            async def fits(uri: str) -> bool:
                """Whether a read fits the entry from a moment before; no read has an error."""
                entry = (await answer(http, GET, uri=A))["skill"]
                seen.add(json.dumps(entry))
                await answer(other, "resources/read", uri=uri)
                body = text((await answer(http, "resources/read", uri=uri))["contents"][0])
                return file_digest(body) in {each["digest"] for each in entry["resources"]}

            with anyio.move_on_after(60):
                while len(seen) < 4:
                    for uri in (A, "skill://acme/a/docs/x.md"):
                        # A snapshot may come between the two, as often as the two workers differ for a moment.
                        for _ in range(50):
                            await anyio.sleep(0.02)
                            if await fits(uri):
                                break
                        else:
                            raise AssertionError(f"no read of {uri} fitted its entry")
            tasks.cancel_scope.cancel()
        assert len(seen) >= 4, fleet.logs()


@pytest.mark.rule("X3")
async def test_a_thousand_reads_succeed_without_any_worker(tmp_path: Path) -> None:
    """All workers die at the first one."""
    async with LocalFleet(skilled(small(tmp_path)), edges=2, workers=2) as fleet, fleet.http(1) as http:
        entry = (await answer(http, GET, uri=A))["skill"]
        async with anyio.create_task_group() as tasks:
            for worker in fleet.workers:
                tasks.start_soon(worker.kill)
            for number in range(1_000):
                resource = entry["resources"][number % len(entry["resources"])]
                body = text((await answer(http, "resources/read", uri=resource["uri"]))["contents"][0])
                assert file_digest(body) == resource["digest"]


@pytest.mark.rule("X29")
async def test_a_caller_sees_the_skills_that_exist_for_it_alone(tmp_path: Path) -> None:
    """A skill for others is unknown in all methods; one that has a hidden skill in it is hidden too."""
    outer = folder(tmp_path / "outer", {"a/SKILL.md": skill("a"), "a/b/SKILL.md": skill("b")})
    app = skilled(outer)
    hidden = next(each for each in app.handlers if each.definition.name.endswith("b/SKILL.md"))
    hidden.definition = hidden.definition.model_copy(update={"only_for": ("tenant:acme",)})
    app.skills(str(folder(tmp_path / "own", {"c/SKILL.md": skill("c")})), prefix="all")
    c, b = "skill://all/c/SKILL.md", "skill://acme/a/b/SKILL.md"
    async with guarded(app) as fleet, fleet.http() as http:
        anns, bobs = await answer(http, LIST, ANN), await answer(http, LIST, BOB)
        assert uris(anns["skills"]) == [A, b, c]
        assert uris(bobs["skills"]) == [c]
        assert bobs["cacheScope"] == "private"
        assert uris((await answer(http, "resources/list", BOB))["resources"]) == [c]
        unknown = await answer(http, GET, BOB, uri="skill://acme/z/SKILL.md")
        for uri in (A, b):
            assert await answer(http, GET, BOB, uri=uri) == unknown
            assert (await answer(http, "resources/read", BOB, uri=uri))[0] == -32602
            assert (await answer(http, GET, ANN, uri=uri))["skill"]["uri"] == uri
        for uri in ("skill://acme", "skill://acme/a", "skill://acme/a/b"):
            assert (await answer(http, DIRECTORY, BOB, uri=uri))[0] == -32602


@pytest.mark.rule("X29")
async def test_scopes_hold_in_all_methods(tmp_path: Path) -> None:
    """Without them a skill is listed, and the answer to its use names the scope."""
    app = skilled(small(tmp_path), scopes=["read"])
    uses = [(GET, A), (DIRECTORY, "skill://acme/a/docs"), ("resources/read", "skill://acme/a/docs/x.md")]
    async with guarded(app) as fleet, fleet.http() as http:
        assert len((await answer(http, LIST, BOB))["skills"]) == 3
        for method, uri in uses:
            headers = {"Mcp-Method": method, "MCP-Protocol-Version": MODERN, "Authorization": f"Bearer {BOB}"}
            if method == "resources/read":
                headers["Mcp-Name"] = uri
            refused = await http.post("/mcp", json=request(method, {"uri": uri}), headers=headers)
            assert refused.status_code == 403
            assert 'scope="read"' in refused.headers["WWW-Authenticate"]
            assert "resultType" in await answer(http, method, ANN, uri=uri), json.dumps(refused.json())
