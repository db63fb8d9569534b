"""An App with documents of MCP Apps, for tests of whole fleets, and requests of clients with Apps and without."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import httpx2

from mcpfleet.app import App, Context
from mcpfleet.contracts.apps import APP_TYPE, APPS_EXTENSION
from tests.unit.app.test_ui import declare_file
from tests.unit.edge.asgi import MODERN, request

BOARD: Final = "ui://shop/board"
SECRET: Final = "ui://shop/secret"
HTML: Final = "<!doctype html>\r\n<title>Bö\u2028ard</title><script>1 </ 2</script>"
WITH_APPS: Final[Mapping[str, Any]] = MappingProxyType({"extensions": {APPS_EXTENSION: {"mimeTypes": [APP_TYPE]}}})
NAMES: Final = MappingProxyType({"tools/call": "name", "resources/read": "uri"})
"""The parameter of each method that a header repeats."""


def shop(folder: Path) -> App:
    """Declare a document of a file, one that is unlisted, and tools for models and documents."""
    (folder / "board.html").write_text(HTML, newline="")
    app = App("shop", version="1")
    board = declare_file(app, folder, border=True, ttl=60.0)

    @app.tool(ui=board)
    async def stock(ctx: Context) -> str:
        """Count the stock."""
        return str(ctx.client.has_apps)

    @app.tool(ui=board, visibility={"app"})
    async def refresh() -> str:
        """Count it again."""
        return "refreshed"

    @app.ui(SECRET, listed=False)
    async def secret() -> str:
        """Stay out of lists."""
        return "<!doctype html>secret"

    @app.resource("shop://x")
    async def other() -> str:
        """Is no document."""
        return "x"

    return app


async def answer(http: httpx2.AsyncClient, method: str, *, apps: bool = False, token: str = "", **params: Any) -> Any:
    """Send a request, and return its result, or its error's code with its message."""
    headers = {"Mcp-Method": method, "MCP-Protocol-Version": MODERN}
    if method in NAMES:
        headers["Mcp-Name"] = params[NAMES[method]]
    if token:
        headers["Authorization"] = f"Bearer {token}"
    meta = {"io.modelcontextprotocol/clientCapabilities": dict(WITH_APPS)} if apps else {}
    response = await http.post("/mcp", json=request(method, params, meta=meta), headers=headers)
    assert response.headers["x-content-type-options"] == "nosniff"
    found = response.json()
    return found["result"] if "result" in found else (found["error"]["code"], found["error"]["message"])


def metas(found: Any, member: str = "tools") -> dict[str, Any]:
    """The `_meta.ui` of each entry of a list, by name."""
    return {each["name"]: each.get("_meta", {}).get("ui") for each in found[member]}
