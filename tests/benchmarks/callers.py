"""Fleets whose callers have tokens, listed or signed, with limits and without, for `tests.benchmarks.calls`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from mcpfleet.testing.fleet import Fleet
from tests.kit.issuer import Issuer, issuer
from tests.kit.postgres import postgres_server

APP: Final = Path(__file__).parent.parent / "fleet" / "app.py"
RESOURCE: Final = "http://benchmark.example/mcp"
WITH, WITHOUT = "with limits", "without"
KINDS: Final = ("static", "jwt")
_DEFAULT: Final = 100
"""Calls a second that a caller has by default."""
_FASTEST: Final = 5_000
"""Calls a second that no fleet here reaches. Fewer callers share a limit that holds as much."""
_TOKEN_LASTS: Final = 86_400
"""Seconds; longer than any benchmark."""


class Named(NamedTuple):
    """A fleet, and the tokens of its callers."""

    kind: str
    """One of `KINDS`."""
    limits: str
    """`WITH` or `WITHOUT`."""
    fleet: Fleet
    tokens: Path
    """A token a line."""


@asynccontextmanager
async def named_fleets(count: int, folder: Path, *, postgresql: bool) -> AsyncIterator[list[Named]]:
    """Run a fleet for each kind of token, with limits and without.

    Args:
        count: how many callers; each has its own partition.
        folder: for files of tokens.
        postgresql: keep limits there, each commit on its disk, instead of in SQLite.
    """
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(issuer())
        server = stack.enter_context(postgres_server(durable=True)) if postgresql else None
        found = []
        for kind, limits, environment, tokens in named_settings(count, folder, made):
            store = None if server is None else await stack.enter_async_context(server.database())
            fleet = await stack.enter_async_context(Fleet(APP, environment=environment, store=store))
            found.append(Named(kind, limits, fleet, tokens))
        yield found


class Settings(NamedTuple):
    """The settings of a fleet of named callers, and their tokens."""

    kind: str
    limits: str
    environment: dict[str, str]
    tokens: Path


def named_settings(count: int, folder: Path, made: Issuer) -> Iterator[Settings]:
    """The fleets for so many callers: for each kind of token, with limits and without.

    Args:
        count: how many callers; each has its own partition.
        folder: for files of tokens.
        made: signs tokens, and has their keys.
    """
    made.lasts = _TOKEN_LASTS
    for kind in KINDS:
        tokens = _tokens(kind, count, made)
        file = folder / f"{kind}-{count}"
        file.write_text("\n".join(tokens))
        environment = _environment(kind, tokens, folder, made)
        for limits, rate in ((WITH, _rate(count)), (WITHOUT, "none")):
            yield Settings(kind, limits, {**environment, "MCPFLEET_RATE_TOOLS": rate}, file)


def _rate(count: int) -> str:
    """The default, or as much as all callers of the default would have together, where there are few."""
    return f"{60 * max(_DEFAULT, _FASTEST // count)}/60"


def _tokens(kind: str, count: int, made: Issuer) -> list[str]:
    if kind == "static":
        return [f"token-{number}" for number in range(count)]
    return [made.token(RESOURCE, sub=f"s{number}", client_id=f"c{number}") for number in range(count)]


def _environment(kind: str, tokens: Sequence[str], folder: Path, made: Issuer) -> dict[str, str]:
    public = {"MCPFLEET_AUTHORIZATION": kind, "MCPFLEET_PUBLIC_URL": RESOURCE.removesuffix("/mcp")}
    if kind == "jwt":
        return {**public, "MCPFLEET_ISSUER": made.url}
    listed = [
        {"token": token, "subject": f"s{number}", "client": f"c{number}", "audience": RESOURCE}
        for number, token in enumerate(tokens)
    ]
    file = folder / f"listed-{len(tokens)}.json"
    file.write_text(json.dumps({"tokens": listed}))
    return {**public, "MCPFLEET_TOKENS_FILE": str(file)}
