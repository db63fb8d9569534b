"""Run by FastMCP's own Python: reads all skills at each URL, and verifies them; `skills.py URL …` prints JSON."""

from __future__ import annotations

import asyncio
import json
import sys

from fastmcp import Client  # type: ignore[import-not-found]  # it lives in an environment of its own
from fastmcp.skills import SkillsClientExtension  # type: ignore[import-not-found]  # the same


async def verified(url: str) -> dict[str, int]:
    """Return the number of verified files of each skill."""
    found = {}
    async with Client(url, extensions=[SkillsClientExtension()]) as client:
        for entry in await client.list_skills():
            skill = await client.read_skill(str(entry.uri))  # it checks sizes, digests, names and the frontmatter
            found[str(entry.uri)] = len(skill.manifest.files)
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps([asyncio.run(verified(url)) for url in sys.argv[1:]]))
