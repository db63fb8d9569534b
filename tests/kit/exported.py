"""Metrics that the processes of a fleet export on their admin ports."""

from __future__ import annotations

import json

import httpx2

from mcpfleet.testing.fleet import Fleet


async def exported(fleet: Fleet) -> dict[str, float]:
    """All of it, by series."""
    lines = (json.loads(line) for line in fleet.logs().splitlines() if line.startswith("{"))
    async with httpx2.AsyncClient() as http:
        pages = [
            (await http.get(f"{line['url']}/metrics")).text for line in lines if line["event"] == "admin port opened"
        ]
    rows = (line.rpartition(" ") for page in pages for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}
