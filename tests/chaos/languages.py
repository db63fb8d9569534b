"""Changes a German message file over many streams of four languages: German ones are told once, and no other.

    .venv/bin/python -m tests.chaos.languages --streams 4000

The streams are at two edges, a fourth in each language. Once all German ones have heard, the edges get one more
snapshot, which changes nothing that anybody sees, so that whatever was still under way has come.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from rich.console import Console

from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.languages_app import GERMAN, Shop, write
from tests.contract.fleet.listener import ACK, Listener, changed
from tests.contract.fleet.test_files import QUICK
from tests.kit.waiting import until

LANGUAGES: Final = ("de", "pl", "en", "fr")
_AT_ONCE: Final = 20
"""Streams that open at once."""


@dataclass(frozen=True, slots=True)
class Found:
    """The number of streams of each language that heard the same after their acknowledgments."""

    heard: dict[str, dict[tuple[str, ...], int]]


async def change(streams: int, root: Path) -> Found:
    """Open streams, change the German file, and see who hears of it."""
    shop = Shop.at(root)
    environment = {**QUICK, "MCPFLEET_PARTITION_STREAMS": str(streams), "MCPFLEET_MAX_STREAMS": str(streams)}
    async with LocalFleet(shop.app, environment=environment, edges=2) as fleet, AsyncExitStack() as stack:
        https = {
            language: [await stack.enter_async_context(fleet.http(edge)) for edge in range(2)] for language in LANGUAGES
        }
        for language, clients in https.items():
            for http in clients:
                http.headers["Accept-Language"] = language
        listeners = [Listener(number) for number in range(streams)]

        async def listen(number: int) -> None:
            http = https[LANGUAGES[number % 4]][number // 4 % 2]
            while not listeners[number].messages:  # a busy machine refuses some, which ask again
                listeners[number].is_over = False
                await listeners[number].run(http, "/mcp", {"toolsListChanged": True})

        async with anyio.create_task_group() as tasks:
            for number in range(streams):
                tasks.start_soon(listen, number)
                if number % _AT_ONCE == 0:
                    await until(partial(_have_begun, listeners[:number]), within=60)
            await until(lambda: _have_begun(listeners), within=120)
            write(root, "de", {**GERMAN, "tool:search:title\x04Search": "Finden"})
            await until(lambda: all(len(each.messages) > 1 for each in listeners[::4]), within=120)
            taken = len(fleet.lines("snapshot taken"))
            write(root, "de", {**GERMAN, "tool:search:title\x04Search": "Finden", "tool:none:title\x04None": "Keines"})
            await until(lambda: len(fleet.lines("snapshot taken")) >= taken + 2, within=60)
            await anyio.sleep(1.0)  # nothing says that nobody was told
            tasks.cancel_scope.cancel()
    heard = {
        language: dict(Counter(tuple(each.kinds()[1:]) for each in listeners[number::4]))
        for number, language in enumerate(LANGUAGES)
    }
    assert all(each.kinds()[0] == ACK for each in listeners)
    return Found(heard)


def expected(streams: int) -> Found:
    """The counts that must be found."""
    heard: dict[str, dict[tuple[str, ...], int]] = {language: {(): streams // 4} for language in LANGUAGES}
    return Found({**heard, "de": {(changed("tools"),): streams // 4}})


def _have_begun(listeners: list[Listener]) -> bool:
    return all(each.messages for each in listeners)


def main() -> None:
    """Run it, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=4000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        Console().print(anyio.run(change, given.streams, Path(root)))


if __name__ == "__main__":
    main()
