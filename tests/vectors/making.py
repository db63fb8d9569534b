"""The words in which vectors are written down in `groups`, and the files that are made of them.

A vector is one request and what must come back. `python -m tests.vectors.making` writes the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

HERE: Final = Path(__file__).parent
VERSION: Final = "2026-07-28"
VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"

Text: TypeAlias = str | dict[str, Any]
"""A text, or one of the forms for what is none or too long: base64, repeat, join."""
Value: TypeAlias = Text | list[Text] | None
"""A header's value; several where it is repeated, None where it is left out."""

ABSENT: Final = {"$absent": True}
TEXT: Final = {"$text": True}
NOTHING: Final[Mapping[str, Any]] = {}
UNREAD: Final[Mapping[str, Any]] = {"code": -32600, "identifier": None}
"""The error of a request that is refused before its id is read."""
_SAME: Final = object()


def request(
    method: str,
    params: Mapping[str, Any] = NOTHING,
    *,
    meta: Mapping[str, Any] = NOTHING,
    identifier: Any = 1,
) -> dict[str, Any]:
    """A request as a conforming client sends it, with further members of `_meta`."""
    own = {VERSION_KEY: VERSION, CAPABILITIES_KEY: {}, **meta}
    return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": {**params, "_meta": own}}


def call(name: str = "echo", arguments: Any = NOTHING, **others: Any) -> dict[str, Any]:
    """A `tools/call`; that of `echo` says hi."""
    said = {"text": "hi"} if name == "echo" and arguments is NOTHING else arguments
    return request("tools/call", {"name": name, "arguments": said}, **others)


def notification(method: str = "notifications/cancelled", **members: Any) -> dict[str, Any]:
    """A notification."""
    return {"jsonrpc": "2.0", "method": method, **members}


def base64_form(encoded: str) -> str:
    """A header's value in its Base64 form."""
    return f"=?base64?{encoded}?="


@dataclass
class Ask:
    """An HTTP request that may be spoilt before it becomes a vector."""

    message: Any = field(default_factory=call)
    headers: dict[str, Value] = field(default_factory=dict)
    """Beside those that every request has, and those that mirror the message."""
    method: str = "POST"
    path: str = "/mcp"
    raw: Text | None = None
    """The body, where it is not the message; `""` is none at all."""
    padding: int = 0
    """Spaces behind the body."""
    framing: str | None = None

    @property
    def body(self) -> Text:
        """The request that is sent."""
        text = json.dumps(self.message) if self.raw is None else self.raw
        return {"join": [text, {"repeat": [" ", self.padding]}]} if self.padding else text

    def pairs(self) -> list[list[Text]]:
        """The headers in their order."""
        found: list[list[Text]] = []
        for name, value in {**self._own(), **self.headers}.items():
            values = value if isinstance(value, list) else [value] if value is not None else []
            found.extend([name, each] for each in values)
        return found

    def _own(self) -> dict[str, Value]:
        params = self.message.get("params") if isinstance(self.message, dict) else None
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        mirrored = {
            "MCP-Protocol-Version": meta.get(VERSION_KEY) if isinstance(meta, dict) else None,
            "Mcp-Method": self.message.get("method") if isinstance(self.message, dict) else None,
            "Mcp-Name": params.get("name", params.get("uri")),
        }
        own: dict[str, Value] = {
            "Host": "localhost",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        return own | {name: value for name, value in mirrored.items() if isinstance(value, str)}


def vector(
    name: str,
    rules: str,
    ask: Ask,
    status: int,
    *,
    code: int | None = None,
    data: Any = None,
    result: Mapping[str, Any] | None = None,
    body: Any = None,
    identifier: Any = _SAME,
    headers: Mapping[str, str] = NOTHING,
    lacks: Iterable[str] = (),
    hides: Iterable[str] = (),
    row: str | None = None,
    http: Iterable[str] = (),
) -> dict[str, Any]:
    """Write one vector down.

    Args:
        name: what is odd about the request.
        rules: the codes of the rules that it shows, with spaces between them.
        ask: the request.
        status: HTTP's.
        code: of the error that answers, if it is one.
        data: `error.data`, or a pattern of it.
        result: a pattern of the result that answers, if it is one.
        body: a pattern of the whole body, where it is neither; nothing for no body.
        identifier: the answer's id; by default the message's own, None for an answer that has none.
        headers: of the answer, each there once with this value.
        lacks: headers that the answer does not have.
        hides: texts that must stand nowhere in the body.
        row: the short name of the error table's row.
        http: the versions of HTTP that can carry it, where it is not both.
    """
    sent: dict[str, Any] = {"method": ask.method, "path": ask.path, "headers": ask.pairs()}
    if ask.body != "":
        sent["body"] = ask.body
    if ask.framing is not None:
        sent["framing"] = ask.framing
    expected: dict[str, Any] = {"status": status}
    if headers:
        expected["headers"] = [list(pair) for pair in headers.items()]
    if lacks := list(lacks):
        expected["lacks"] = lacks
    if identifier is _SAME:
        identifier = ask.message.get("id") if isinstance(ask.message, dict) and ask.raw is None else None
    expected["body"] = _body(code, data, result, body, identifier)
    if hides := list(hides):
        expected["hides"] = hides
    made: dict[str, Any] = {"name": name, "rules": list(dict.fromkeys(rules.split()))}
    if row is not None:
        made["row"] = row
    if http := list(http):
        made["http"] = http
    return made | {"request": sent, "expect": expected}


def _body(code: int | None, data: Any, result: Mapping[str, Any] | None, body: Any, identifier: Any) -> Any:
    head = {"jsonrpc": "2.0", "id": ABSENT if identifier is None else identifier}
    if code is not None:
        error = {"code": code, "message": TEXT} | ({"data": data} if data is not None else {})
        return {**head, "result": ABSENT, "error": error}
    if result is not None:
        return {**head, "error": ABSENT, "result": {"resultType": "complete", **result}}
    return body


@dataclass(frozen=True)
class Group:
    """The vectors of one file."""

    name: str
    about: str
    vectors: list[dict[str, Any]]
    server: str = "plain"
    """Which server they are for; the README says what each is."""
    needs: tuple[str, ...] = ()
    """The kinds that the application must offer beside tools."""

    def text(self) -> str:
        """The file: JSON with one line for each request and each expectation."""
        head = {"group": self.name, "about": self.about, "server": self.server, "needs": list(self.needs)}
        lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
        vectors = ",\n".join(_lines(each) for each in self.vectors)
        return "\n".join(["{", *lines, ' "vectors": [', vectors, " ]", "}", ""])


def _lines(made: Mapping[str, Any]) -> str:
    members = ",\n".join(f"   {json.dumps(name)}: {json.dumps(value)}" for name, value in made.items())
    return f"  {{\n{members}\n  }}"


def write() -> None:
    """Write all files, and take away those that no group makes."""
    from tests.vectors.groups.every import GROUPS

    for stale in {path.name for path in HERE.glob("*.json")} - {f"{group.name}.json" for group in GROUPS}:
        (HERE / stale).unlink()
    for group in GROUPS:
        (HERE / f"{group.name}.json").write_text(group.text())


if __name__ == "__main__":
    write()
