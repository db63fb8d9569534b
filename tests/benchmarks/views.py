"""Lists a CPU second in four languages and by a policy, beside plain ones; and reads of a skill beside a handler's.

    .venv/bin/python -m tests.benchmarks.views [--rounds 11] [--seconds 1.0]

All sides run in alternating rounds of one process: LocalFleets with one edge and one worker. So a rate has the cost of
all parts and of the client, by the processor's time, which other processes change little. The ratios are medians of the
rounds' own. A list should reach 0.9 of the plain one, and a cached skill twice the reads of a handler.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import httpx2

from mcpfleet.app import App
from mcpfleet.testing.local import LocalFleet
from mcpfleet.wire.language import ACCEPT_LANGUAGE_META_KEY
from tests.unit.edge.asgi import MODERN, request

CALLERS: Final = 8
"""Requests that are under way at once."""
TOOLS: Final = 30
LANGUAGES: Final = ("de", "fr", "pl")
"""Besides English."""
# Sent to all sides, so that the client costs the same.
PREFERENCES: Final = ("de-CH,*;q=0.1", "fr", "pl;q=0.9,en;q=0.5", "it,en;q=0.2")
QUIET: Final = {"MCPFLEET_AUDIT": "false"}
SKILL: Final = "skill://rules/SKILL.md"
TEXT: Final = "---\nname: rules\ndescription: The rules.\n---\n\n" + "One rule a line.\n" * 100


class Everything:
    """A policy that shows everything to everybody."""

    def group(self, caller: object) -> str:
        """Put all callers into one group."""
        del caller
        return "all"

    async def visible(self, group: str, items: Collection[Any]) -> Collection[Any]:
        """Show all items."""
        del group
        return items


policy = Everything()


def shop(root: Path, *, languages: bool) -> App:
    """An application with titled tools, a skill, and a resource with the skill's text."""
    app = App("shop", version="1")
    for number in range(TOOLS):

        @app.tool(f"tool_{number}", title=f"Tool number {number}")
        async def tool(text: str, count: int = 1) -> str:
            """Repeat a text."""
            return text * count

    @app.resource("shop://rules", mime_type="text/markdown", ttl=0.0)
    async def rules() -> str:
        """The rules."""
        return TEXT

    app.skills(str(root / "skills"))
    if languages:
        app.languages(str(root / "locale"), domain="shop")
    return app


def write_files(root: Path) -> None:
    """Write the skill and the message files."""
    skill = root / "skills" / "rules" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(TEXT)
    for language in LANGUAGES:
        path = root / "locale" / language / "LC_MESSAGES" / "shop.po"
        path.parent.mkdir(parents=True)
        path.write_text(
            'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n'
            + "".join(
                f'\nmsgctxt "tool:tool_{number}:title"\nmsgid "Tool number {number}"\nmsgstr "{language} {number}"\n'
                for number in range(TOOLS)
            )
        )


def post_of(method: str, params: Mapping[str, Any], preference: str | None = None) -> dict[str, Any]:
    """The arguments of a POST."""
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": MODERN, "mcp-method": method}
    body = request(method, params)
    if "uri" in params:
        headers["mcp-name"] = params["uri"]
    if preference is not None:
        headers["accept-language"] = body["params"]["_meta"][ACCEPT_LANGUAGE_META_KEY] = preference
    return {"json": body, "headers": headers}


LISTS: Final = tuple(post_of("tools/list", {}, each) for each in PREFERENCES)


async def rate(http: httpx2.AsyncClient, posts: Iterator[Mapping[str, Any]], seconds: float) -> float:
    """Ask from several callers for a while; return the answers a second of the processor."""
    until, count = time.perf_counter() + seconds, 0

    async def ask() -> None:
        nonlocal count
        while time.perf_counter() < until:
            response = await http.post("/mcp", **next(posts))
            assert b'"result"' in response.content
            count += 1

    began = time.process_time()
    await asyncio.gather(*(ask() for _ in range(CALLERS)))
    return count / (time.process_time() - began)


async def measure(rounds: int, seconds: float, root: Path) -> dict[str, list[float]]:
    """Return the rates of each side by rounds."""
    write_files(root)
    ruled = {**QUIET, "MCPFLEET_POLICY": "tests.benchmarks.views:policy"}
    async with AsyncExitStack() as stack:

        async def client(*, languages: bool, environment: Mapping[str, str]) -> httpx2.AsyncClient:
            fleet = LocalFleet(shop(root, languages=languages), environment=environment)
            return await stack.enter_async_context((await stack.enter_async_context(fleet)).http())

        plain = await client(languages=False, environment=QUIET)
        spoken = await client(languages=True, environment=QUIET)
        seen = await client(languages=False, environment=ruled)
        both = await client(languages=True, environment=ruled)
        sides = {
            "tools/list": (plain, LISTS),
            "in four languages": (spoken, LISTS),
            "with a policy": (seen, LISTS),
            "with both": (both, LISTS),
            "a handler's read": (plain, (post_of("resources/read", {"uri": "shop://rules"}),)),
            "a cached skill's read": (plain, (post_of("resources/read", {"uri": SKILL}),)),
        }
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(rounds + 1):
            for name, (http, posts) in sides.items() if number % 2 else reversed(sides.items()):
                found = await rate(http, itertools.cycle(posts), seconds)
                if number:  # the first round warms up
                    rates[name].append(found)
    return rates


def main() -> None:
    """Print the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        rates = asyncio.run(measure(options.rounds, options.seconds, Path(root)))
    for name, found in rates.items():
        beside = "a handler's read" if "read" in name else "tools/list"
        ratio = statistics.median(each / other for each, other in zip(found, rates[beside], strict=True))
        sys.stdout.write(f"{name:22} {statistics.median(found):8.0f} answers/CPU s   {ratio:.3f} of {beside}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
