"""The names that an endpoint listed last, kept for the completion of a shell in a small file of this user."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

_MOST_URLS: Final = 8
"""Endpoints that are remembered, the newest first."""
_MOST_NAMES: Final = 500
"""Names of one endpoint."""
_LONGEST: Final = 1024 * 1024
"""Bytes that are read of the file."""
_WORD: Final = re.compile(r"[A-Za-z0-9_./:-]{1,128}")
"""A name that a shell takes as it is. Any other may come from a server that wants it in somebody's command line."""
Names: TypeAlias = dict[str, list[str]]
"""Tools, each with the names of its arguments."""


class KnownNames:
    """The file of names. Whatever is wrong with it, a command goes on: completion is a convenience."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of_user(cls) -> KnownNames:
        """The file of this user, below XDG_CACHE_HOME."""
        folder = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return cls(Path(folder).expanduser() / "mcpfleet" / "names.json")

    def urls(self) -> list[str]:
        """The endpoints, the newest first."""
        return list(self._read())

    def tools(self, url: str | None) -> Names:
        """The tools of an endpoint; those of the newest one where the URL is not known."""
        known = self._read()
        return known.get(url or "") or next(iter(known.values()), {})

    def replace(self, url: str, tools: Iterable[Mapping[str, Any]]) -> None:
        """Keep the tools of an endpoint that listed all; none for a URL that may hold a secret."""
        self._keep(url, _names(tools))

    def add(self, url: str, tools: Iterable[Mapping[str, Any]]) -> None:
        """Keep tools of an endpoint beside those that are known of it."""
        self._keep(url, {**self._read().get(url, {}), **_names(tools)})

    def _keep(self, url: str, names: Names) -> None:
        parts = urlsplit(url)
        known = self._read()
        if parts.username or parts.query or parts.fragment or (known.get(url) == names and next(iter(known)) == url):
            return
        known.pop(url, None)
        known = {url: dict(list(names.items())[:_MOST_NAMES]), **known}
        with suppress(OSError, ValueError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = self._path.with_suffix(f".{os.getpid()}")
            made.touch(mode=0o600)
            made.write_text(json.dumps(dict(list(known.items())[:_MOST_URLS])))
            made.replace(self._path)

    def _read(self) -> dict[str, Names]:
        """The file's content, if it belongs to this user and nobody else can write it."""
        try:
            with self._path.open("rb") as file:
                about = os.fstat(file.fileno())
                if about.st_uid != os.getuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    return {}
                found = json.loads(file.read(_LONGEST))
            return {str(url): {str(tool): [str(name) for name in names] for tool, names in tools.items()}
                    for url, tools in found.items()}  # fmt: skip
        except (OSError, ValueError, AttributeError, TypeError):
            return {}


def _names(tools: Iterable[Mapping[str, Any]]) -> Names:
    names: Names = {}
    for tool in tools:
        name = str(tool.get("name"))
        if not _WORD.fullmatch(name):
            continue
        schema = tool.get("inputSchema")
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        arguments = properties if isinstance(properties, Mapping) else {}
        names[name] = [each for each in arguments if _WORD.fullmatch(each)]
    return names


def complete_url(incomplete: str) -> list[str]:
    """The endpoints that were used last, for a shell."""
    return [url for url in KnownNames.of_user().urls() if url.startswith(incomplete)]


def complete_tool(url: str | None, incomplete: str) -> list[str]:
    """The names of an endpoint's tools, for a shell."""
    return [name for name in KnownNames.of_user().tools(url) if name.startswith(incomplete)]


def complete_argument(url: str | None, tool: str | None, given: Sequence[str], incomplete: str) -> list[str]:
    """The arguments of a tool that are not given yet, each with `=`, for a shell."""
    names = KnownNames.of_user().tools(url).get(tool or "", [])
    taken = {pair.partition("=")[0] for pair in given}
    return [f"{name}=" for name in names if name not in taken and name.startswith(incomplete)]
