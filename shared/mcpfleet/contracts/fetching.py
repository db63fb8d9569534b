"""How long a large result may take from its worker to an edge: settings that both read alike."""

from __future__ import annotations

from pydantic import Field

from mcpfleet.process.settings import Seconds, Settings


class FetchSettings(Settings):
    """What edges and workers read alike: a worker must keep an end for longer than its edge may take to fetch it."""

    result_wait: Seconds = Field(8.0, gt=0, description="how long a large result may wait for memory of its edge")
    result_fetch: Seconds = Field(5.0, gt=0, description="how long fetching a large result from its worker may take")
