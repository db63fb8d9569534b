"""An authorizer of a test's own."""

from __future__ import annotations

import anyio

from mcpfleet.app import Principal


async def slowly(token: str, endpoint: str, resource: str) -> Principal | None:  # as it is called
    """Admit whoever a token names; one takes long, one fails, and one gives a name that cannot be written."""
    if token == "slow":  # no secret
        await anyio.sleep(3.0)
    if token == "broken":  # no secret
        raise RuntimeError("the directory does not answer")
    return Principal(subject="half a pair: \ud800" if token == "odd" else token)  # no secret
