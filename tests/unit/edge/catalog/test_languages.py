"""An edge's message files: fetched once for a snapshot, within their room; a bad one translates nothing (X38)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import structlog
from structlog.testing import capture_logs

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.catalog import Listed, Snapshot
from mcpfleet.contracts.manifest import Definition, Languages
from mcpfleet.edge.catalog.languages import LanguageFiles
from mcpfleet.views.languages import OfferedLanguages
from tests.unit.edge.catalog.test_files import Catalog, ref

TEXTS, OTHER = b'{"tool:a:title\\u0004A":"\xc3\x84"}', b'{"tool:a:title\\u0004A":"B"}'
LARGE = b'{"tool:a:title\\u0004A":"%b"}' % (b"x" * 40)
TOOL = Definition(kind="tool", name="a", wire={"name": "a", "title": "A", "inputSchema": {}})


def snapshot(number: int, pools: Mapping[str, Mapping[str, bytes]]) -> Snapshot:
    """A snapshot of pools with these files, by language."""
    languages = {
        pool: Languages(default="en", files={tag: ref(body) for tag, body in files.items()})
        for pool, files in pools.items()
    }
    listed = tuple(Listed(pool=pool, digest=TOOL.digest, definition=TOOL) for pool in pools or ("shop",))
    return Snapshot(endpoint="mcp", number=number, name="shop", version="1", languages=languages, listed=listed)


def title(offered: OfferedLanguages | None, found: Snapshot, language: str = "de") -> str:
    """The title of the tool in a language."""
    assert offered is not None
    translation = offered.translation(language)
    entry = TOOL.wire if translation is None else translation.entry(found.listed[0], TOOL.wire)
    return str(entry["title"])


def files(catalog: Catalog, room: int = 1_000) -> LanguageFiles:
    return LanguageFiles(catalog, room, log=structlog.get_logger())


@pytest.mark.rule("X38")
async def test_a_file_is_fetched_once_over_snapshots_that_name_it() -> None:
    catalog = Catalog(TEXTS, OTHER)
    kept = files(catalog)
    first = snapshot(1, {"shop": {"de": TEXTS, "at": TEXTS}})
    assert title(await kept.offered(first), first) == "Ä"
    second = snapshot(2, {"shop": {"de": TEXTS, "fr": OTHER}})
    assert title(await kept.offered(second), second, "fr") == "B"
    assert catalog.asked.total() == 2
    assert await kept.offered(snapshot(3, {})) is None
    await kept.offered(second)
    assert catalog.asked.total() == 4  # nothing of a former snapshot is kept


@pytest.mark.rule("X38")
@pytest.mark.parametrize("body", [b"[]", b"no JSON", b'{"a":1}', b"\xff"])
async def test_a_malformed_file_translates_nothing_and_stops_no_other_pool(body: bytes) -> None:
    found = snapshot(1, {"shop": {"de": TEXTS}, "spoilt": {"de": body}})
    with capture_logs() as logs:
        offered = await files(Catalog(TEXTS, body)).offered(found)
    assert title(offered, found) == "Ä"
    assert [(line["event"], line["pool"]) for line in logs] == [("malformed messages", "spoilt")]


async def test_files_beyond_the_room_are_left_out_and_told_and_smaller_ones_are_not() -> None:
    found = snapshot(1, {"b": {"de": TEXTS}, "a": {"de": LARGE}, "c": {"de": LARGE}})
    with capture_logs() as logs:
        offered = await files(Catalog(TEXTS, LARGE), room=len(TEXTS)).offered(found)
    assert offered is not None
    assert title(offered, found) == "Ä"
    assert [(line["event"], line["pool"]) for line in logs] == [
        ("languages left out", "a"),
        ("languages left out", "c"),
    ]


async def test_a_file_that_the_catalog_does_not_answer_with_is_an_error() -> None:
    """The edge goes on with its former snapshot, and asks again."""
    with pytest.raises(BusError):
        await files(Catalog()).offered(snapshot(1, {"shop": {"de": TEXTS}}))
