"""Entries of the files in which clients name their servers: Claude, Cursor, FastMCP and VS Code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from mcpfleet.sources.config_file import ConfigFile, Keys, kind_of
from mcpfleet.sources.expansion import Expansion, literal_secrets

_SECTIONS: Final = ("mcpServers", "servers")
"""The members that hold entries; the second is VS Code's."""
OWN_SECTION: Final = "mcpfleet"
"""The member with our own tables."""
_USED: Final = frozenset({"command", "args", "env", "envFile", "cwd", "url", "headers", "type", "disabled", "timeout"})
_TRANSPORT: Final = "transport"
"""FastMCP's name of `type`."""
_OF_COMMANDS: Final = frozenset({"stdio"})
_OF_URLS: Final = frozenset({"http", "streamable-http", "streamableHttp", "streamable_http"})
_ELSEWHERE: Final[Mapping[str, str]] = {"serverUrl": "url", "httpUrl": "url", "uri": "url"}
"""Members of other clients, and the one to write instead."""
_SHORTEST: Final = 1_000
"""A `timeout` from here on is in milliseconds, as most clients write it; below, it is in seconds."""
LONGEST: Final = 86_400


@dataclass(frozen=True)
class Entry:
    """An entry of a client's file.

    Attributes:
        keys: the way to it.
        members: those that say how the server is reached, as our own tables name them.
        timeout: seconds of a call, where it says so.
        left_out: why it is not served; None if it is.
        notes: sentences about members that have no effect, each with its way.
    """

    keys: Keys
    members: Mapping[str, Any]
    timeout: float | None = None
    left_out: str | None = None
    notes: tuple[tuple[Keys, str], ...] = ()


def section_of(file: ConfigFile) -> str | None:
    """Return the member of a file that holds its entries; None without one."""
    return next((name for name in _SECTIONS if name in file.value), None)


def expansion_of(file: ConfigFile, environment: Mapping[str, str]) -> Expansion:
    """Return what expands a client's file: VS Code's declares its inputs.

    Raises:
        ConfigurationError: `inputs` is malformed.
    """
    if section_of(file) != "servers" and "inputs" not in file.value:
        return Expansion(file, environment)
    given = file.value.get("inputs", [])
    if not isinstance(given, list):
        raise file.fault(("inputs",), f"must be a list, not {kind_of(given)}")
    for at, each in enumerate(given):
        if not isinstance(each, dict) or not isinstance(each.get("id"), str):
            raise file.fault(("inputs", at), "must be a table with an id")
    return Expansion(file, environment, inputs=[each["id"] for each in given])


def entries_of(file: ConfigFile) -> Iterator[tuple[str, Keys, Any]]:
    """Yield the name, the way and the raw members of each entry.

    Raises:
        ConfigurationError: the file has none, or they are no table.
    """
    section = section_of(file)
    if section is None:
        if OWN_SECTION in file.value:
            return
        raise file.fault((), f"the file has neither {' nor '.join(map(repr, _SECTIONS))}, which name servers")
    entries = file.value[section]
    if not isinstance(entries, dict):
        raise file.fault((section,), f"must be a table of servers by name, not {kind_of(entries)}")
    for name, raw in entries.items():
        yield name, (section, name), raw


def read_entry(file: ConfigFile, keys: Keys, raw: Any) -> Entry:
    """Read an entry; nothing in it is expanded yet.

    Raises:
        ConfigurationError: it is no table, does not say how to reach its server, or a member has a wrong kind.
    """
    notes = [
        ((*keys, name), "is not used") for name in file.table(keys, raw) if name not in _USED and name != _TRANSPORT
    ]
    if raw.get("disabled") is True:
        return Entry(keys, {}, left_out="it is disabled")
    kind = _kind(file, keys, raw)
    if kind is not None and kind not in _OF_COMMANDS | _OF_URLS:
        why = "the old SSE transport is not served: use the server's Streamable HTTP" if kind == "sse" else ""
        return Entry(keys, {}, left_out=why or f"the type {kind!r} is not served: stdio and http are")
    _check_way(file, keys, raw, kind)
    over = {"command", "args", "cwd", "envFile", "env"} if "url" in raw else {"headers"}
    notes += [((*keys, name), "is not used beside " + ("url" if "url" in raw else "command")) for name in raw
              if name in over]  # fmt: skip
    members = {name: raw[name] for name in _USED - over - {"type", "disabled", "timeout"} if name in raw}
    members = {name: value for name, value in members.items() if value is not None}
    remedy = "the secret stands in the file: write ${NAME} for a variable"
    notes += [((*keys, *secret), remedy) for secret in literal_secrets(members)]
    timeout, note = _timeout(file, keys, raw.get("timeout"))
    return Entry(keys, members, timeout=timeout, notes=(*notes, *note))


def _kind(file: ConfigFile, keys: Keys, raw: Mapping[str, Any]) -> str | None:
    for name in ("type", _TRANSPORT):
        kind = raw.get(name)
        if kind is not None:
            if not isinstance(kind, str):
                raise file.fault((*keys, name), f"must be a text, not {kind_of(kind)}")
            return kind
    return None


def _check_way(file: ConfigFile, keys: Keys, raw: Mapping[str, Any], kind: str | None) -> None:
    has = [name for name in ("command", "url") if raw.get(name) is not None]
    if not has:
        other = next((name for name in raw if name in _ELSEWHERE), None)
        mistyped = [
            (name, close[0]) for name in raw if name not in _USED and (close := get_close_matches(name, _USED, n=1))
        ]
        hint = f": {mistyped[0][0]!r} is not read: did you mean {mistyped[0][1]!r}?" if mistyped else ""
        remedy = (
            f"must have command or url{hint}" if other is None else f"{other} is not read: write {_ELSEWHERE[other]}"
        )
        raise file.fault(keys if other is None else (*keys, other), remedy)
    if len(has) > 1:
        raise file.fault(keys, "has both command and url: which one is meant?")
    if kind in _OF_URLS and has == ["command"]:
        raise file.fault((*keys, "command"), f"the type {kind} has a url, not a command")
    if kind in _OF_COMMANDS and has == ["url"]:
        raise file.fault((*keys, "url"), f"the type {kind} has a command, not a url")


def _timeout(file: ConfigFile, keys: Keys, given: Any) -> tuple[float | None, list[tuple[Keys, str]]]:
    if given is None:
        return None, []
    at = (*keys, "timeout")
    if isinstance(given, bool) or not isinstance(given, int | float) or given <= 0:
        raise file.fault(at, f"must be a number over 0, not {given!r}")
    seconds = given / 1_000 if given >= _SHORTEST else float(given)
    if seconds > LONGEST:
        raise file.fault(at, f"must be at most {LONGEST * 1_000} milliseconds")
    return seconds, [(at, f"is read as {seconds:g} s")]
