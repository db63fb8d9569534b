"""A server of MCP over stdio in some lines, which does what a test asks of it: `python server.py ERA`.

It speaks raw JSON, so that a test sees which members come and go. Its tools:

- `echo` returns its arguments and `_meta`, with members that no SDK knows.
- `pid` returns its process, and takes a `key` and a `number`.
- `linger` returns its process, too, which the end of its input does not end then.
- `sleep` notes that it ran in a file, if its arguments name one, and waits for a cancel, which it notes.
- `steps` reports progress.
- `fail` answers with the error in its arguments.
- `die` ends the process in the call.
- `declare` declares another tool, and tells it.
- `write` writes a raw line.
- `touch` tells that the watched resources have changed, and returns them.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

ERA = sys.argv[1]
MODERN = "2026-07-28"
TOOLS: list[dict[str, Any]] = [
    {"name": name, "description": name, "inputSchema": {"type": "object"}, "x-unknown": {"kept": None}}
    for name in ("echo", "pid", "sleep", "steps", "fail", "die", "declare", "write", "cancelled", "touch", "linger")
]
TOOLS[1]["inputSchema"]["properties"] = {"key": {"type": "string"}, "number": {"type": "integer"}}
cancels: list[Any] = []
watched: list[str] = []
lingers: list[bool] = []
waiting: dict[Any, threading.Event] = {}
lock = threading.Lock()


def say(message: dict[str, Any]) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


class Refused(Exception):
    """An error of JSON-RPC."""


def call(identifier: Any, name: str, given: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:  # noqa: C901, PLR0912
    text = ""
    match name:
        case "echo":
            return {
                "content": [{"type": "text", "text": "", "annotations": None}, {"type": "hologram", "depth": 3}],
                "structuredContent": {"arguments": given, "meta": meta, "big": 12345678901234567890123, "none": None},
                "_meta": {"com.example/kept": [1]},
                "isError": given.get("bad", False),
                "unknown": {"kept": True},
            }
        case "pid" | "linger":
            lingers.extend([True] * (name == "linger"))
            text = str(os.getpid())
        case "sleep":
            if "file" in given:
                with Path(given["file"]).open("a") as file:
                    file.write("ran\n")
            if "progressToken" in meta:
                params = {"progressToken": meta["progressToken"], "progress": 1, "total": 2, "message": "half"}
                say({"method": "notifications/progress", "params": params})
            waiting[identifier] = threading.Event()
            waiting[identifier].wait(30)
        case "cancelled":
            text = json.dumps(cancels)
        case "touch":
            text = json.dumps(watched)
            for uri in watched:
                say({"method": "notifications/resources/updated", "params": {"uri": uri}})
        case "steps":
            for number in range(1, 4):
                told = {"progress": number, "total": 3, "message": f"step {number}"}
                params = {"progressToken": meta["progressToken"], **told}
                say({"method": "notifications/progress", "params": params})
        case "fail":
            raise Refused(given["error"])
        case "die":
            sys.stderr.write("dying as asked\n")
            sys.stderr.flush()
            os._exit(given.get("status", 3))
        case "declare":
            for index in range(given.get("times", 1)):
                TOOLS.append({**TOOLS[0], "name": f"{given['name']}{index}"})
                say({"method": "notifications/tools/list_changed"})
        case "write":
            with lock:
                sys.stdout.write(given["text"] * given.get("times", 1) + "\n")
                sys.stdout.flush()
        case _:
            raise Refused({"code": -32602, "message": f"Unknown tool: {name}"})
    return {"content": [{"type": "text", "text": text}]}


CAPABILITIES = {
    "tools": {"listChanged": True}, "prompts": {}, "resources": {"subscribe": True}, "completions": {}, "logging": {},
}  # fmt: skip
SERVER = {"name": "fixture", "version": os.environ.get("VERSION", "7"), "title": "A fixture"}


def answer(identifier: Any, method: str, params: dict[str, Any]) -> dict[str, Any]:  # noqa: C901, PLR0912
    meta = params.get("_meta", {})
    if ERA == "2026" and "io.modelcontextprotocol/protocolVersion" not in meta:
        raise Refused({"code": -32602, "message": "no protocolVersion"})
    match method:
        case "server/discover" if ERA == "2026":
            named = {"io.modelcontextprotocol/serverInfo": SERVER}
            told = {"supportedVersions": [MODERN], "capabilities": CAPABILITIES, "instructions": "Use it."}
            return {"resultType": "complete", "_meta": named, **told}
        case "initialize" if ERA != "2026":
            told = {"protocolVersion": params["protocolVersion"], "capabilities": CAPABILITIES, "serverInfo": SERVER}
            return {**told, "instructions": "Use it."}
        case "tools/list":
            begin = int(params.get("cursor", "0"))
            page = {"tools": TOOLS[begin : begin + 5]}
            return page | ({"nextCursor": str(begin + 5)} if begin + 5 < len(TOOLS) else {})
        case "prompts/list":
            return {"prompts": [{"name": "review", "arguments": [{"name": "title"}]}]}
        case "prompts/get":
            content = {"type": "text", "text": json.dumps(params["arguments"])}
            return {"messages": [{"role": "user", "content": content}]}
        case "resources/list":
            odd = {"uri": "no uri", "name": "odd"}
            return {"resources": [{"uri": "fixture://one", "name": "one", "annotations": {"priority": 1}}, odd]}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": "fixture://books/{book}", "name": "books"}]}
        case "resources/read":
            if params["uri"] == "fixture://books/none":
                raise Refused({"code": -32002, "message": "Resource not found", "data": {"uri": params["uri"]}})
            return {"contents": [{"uri": params["uri"], "text": "read", "x": None}], "ttlMs": 5, "cacheScope": "public"}
        case "completion/complete":
            return {"completion": {"values": [json.dumps(params["ref"]), params["argument"]["value"]]}}
        case "tools/call":
            return call(identifier, params["name"], params.get("arguments", {}), meta)
        case "subscriptions/listen" if ERA == "2026":
            watched[:] = params["notifications"].get("resourceSubscriptions", [])
            threading.Event().wait()
        case "resources/subscribe" if ERA == "2025":
            if params["uri"] == "fixture://books/silence":
                threading.Event().wait()
            watched.append(params["uri"])
            return {}
        case "resources/unsubscribe" if ERA == "2025":
            watched.remove(params["uri"])
            return {}
    raise Refused({"code": -32601, "message": f"Method not found: {method}"})


def serve(message: dict[str, Any]) -> None:
    try:
        say({"id": message["id"], "result": answer(message["id"], message["method"], message.get("params", {}))})
    except Refused as error:
        say({"id": message["id"], "error": error.args[0]})


def main() -> None:
    if ERA == "broken":
        sys.stderr.write(f"cannot open the database {os.environ.get('TOKEN')}\n")
        sys.exit(4)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            threading.Thread(target=serve, args=[message], daemon=True).start()
        elif message.get("method") == "notifications/cancelled":
            cancels.append(message["params"]["requestId"])
            if (event := waiting.get(message["params"]["requestId"])) is not None:
                event.set()
    if lingers:
        time.sleep(60)


if __name__ == "__main__":
    main()
