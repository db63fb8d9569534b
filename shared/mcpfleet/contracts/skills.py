"""The form of skills, which authors, the catalog and edges share: their URIs and their rules (X21, X26)."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote

from mcpfleet.contracts.manifest import Skill

SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"
SKILLS_SCHEME: Final = "skill://"
SKILL_FILE: Final = "SKILL.md"
MARKDOWN: Final = "text/markdown"
DIRECTORY: Final = "inode/directory"
"""The media type of a directory."""
LARGEST_SKILL: Final = 16 * 1024 * 1024
"""Bytes of all files of a skill, which every host takes."""
LONGEST_DESCRIPTION: Final = 1_024
_NAME: Final = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_UNESCAPED: Final = "!$&'()*+,;=:@~"


def file_uri(base: str, path: str) -> str:
    """Return the URI of a file below a directory's URI that ends with a slash."""
    return base + "/".join(quote(part, safe=_UNESCAPED) for part in path.split("/"))


def base_of(uri: str) -> str:
    """Return the URI of a skill's folder, with a slash at its end, of the URI of its SKILL.md."""
    return uri.removesuffix(SKILL_FILE)


def check_skill(uri: str, skill: Skill) -> None:
    """Check a skill by the rules that every host checks.

    Raises:
        ValueError: it breaks one; the sentence is for its author.
    """
    fields = skill.frontmatter
    name, description = fields.get("name"), fields.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            "name: must be 1 to 64 letters a-z, digits and hyphens, without a hyphen at an end or two in a row"
        )
    if not uri.endswith(f"/{name}/{SKILL_FILE}"):
        raise ValueError(f"name: must be that of its folder, and {name!r} is not")
    if not isinstance(description, str) or not 0 < len(description) <= LONGEST_DESCRIPTION:
        raise ValueError(f"description: must be a text of 1 to {LONGEST_DESCRIPTION} characters")
    paths = [ref.path for ref in skill.files]
    if len(set(paths)) != len(paths) or SKILL_FILE not in paths:
        raise ValueError(f"its files must differ, and {SKILL_FILE} be one of them")
    if (size := sum(ref.size for ref in skill.files)) > LARGEST_SKILL:
        raise ValueError(f"a skill has up to {LARGEST_SKILL} bytes, and this one has {size}")


def entry(uri: str, skill: Skill) -> dict[str, Any]:
    """Return the entry of a skill, as `skills/list` and `skills/get` have it."""
    base = base_of(uri)
    files = sorted((file_uri(base, ref.path), ref) for ref in skill.files)
    return {
        "uri": uri,
        "frontmatter": skill.frontmatter,
        "resources": [{"uri": each, "digest": ref.digest, "size": ref.size} for each, ref in files],
    }
