"""How an edge leaves: its clients are led away first, what runs is finished, and the server stops last (D14)."""

from __future__ import annotations

import anyio

from mcpfleet.edge.http import Application
from mcpfleet.edge.settings import EdgeSettings


async def drain(application: Application, settings: EdgeSettings) -> None:
    """Serve what still arrives for `lame`, then wait for what runs, at most as long as `drain` says.

    From the first moment each answer tells its client to make a new connection, which leads to another edge, since this
    one is not ready any more.
    """
    application.is_draining = True
    await anyio.sleep(settings.lame)
    with anyio.move_on_after(settings.drain):
        await application.wait_idle()
