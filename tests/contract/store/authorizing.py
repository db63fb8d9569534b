"""An authorizer of a test's own."""

from __future__ import annotations

import anyio

from mcpfleet.app import Principal


async def slowly(token: str, endpoint: str, resource: str) -> Principal | None:  # as it is called
    """Admit whoever a token names; one takes long, and one fails."""
    if token == "slow":  # no secret
        await anyio.sleep(1.0)
    if token == "broken":  # no secret
        raise RuntimeError("the directory does not answer")
    return Principal(subject=token)
