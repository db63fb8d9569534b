"""An application in English, German and Polish, whose message files are a test's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx2
from pydantic import BaseModel, Field

from mcpfleet.app import App, Context, ProtocolError, ToolError
from mcpfleet.wire.language import ACCEPT_LANGUAGE_META_KEY, CONTENT_LANGUAGE_META_KEY
from tests.unit.edge.asgi import MODERN, request

ACCEPT, CONTENT = ACCEPT_LANGUAGE_META_KEY, CONTENT_LANGUAGE_META_KEY
GERMAN: Mapping[str, str | tuple[str, ...]] = {
    "server:title\x04The shop": "Der Laden",
    "tool:search\x04Search": "",
    "tool:search:title\x04Search": "Suchen",
    "tool:search:annotations.title\x04Search quickly": "Schnell suchen",
    "tool:search:description\x04Search the shop.": "Durchsuche den Laden.",
    "prompt:advise:title\x04Advise": "Beraten",
    "prompt:advise:arguments.topic.title\x04Topic": "Thema",
    "resource:shop://today:title\x04Today": "Heute",
    "{n} item": ("{n} Stück", "{n} Stücke"),
    "Looking": "Ich suche",
    "How many?": "Wie viele?",
    "Copies": "Exemplare",
    "Size": "Größe",
    "Nothing has {name}": "Nichts heißt {name}",
    "Advise on {topic}": "Berate zu {topic}",
    "Closed": "Geschlossen",
}
POLISH: Mapping[str, str | tuple[str, ...]] = {
    "tool:search:title\x04Search": "Szukaj",
    "{n} item": ("{n} rzecz", "{n} rzeczy", "{n} rzeczy razem"),
}
PLURALS = {"{n} item": "{n} items"}


class Copies(BaseModel):
    """A form with labels, whose names and values are no labels."""

    copies: Annotated[int, Field(title="Copies")]
    size: Annotated[Literal["Size", "other"], Field(description="Size")] = "Size"


def write(root: Path, language: str, messages: Mapping[str, str | tuple[str, ...]], *, domain: str = "shop") -> Path:
    """Write a message file; contexts stand before a U+0004."""
    path = root / language / "LC_MESSAGES" / f"{domain}.po"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ['msgid ""', 'msgstr ""', '"Content-Type: text/plain; charset=UTF-8\\n"']
    for key, text in messages.items():
        context, separator, source = key.rpartition("\x04")
        lines += ["", *([f'msgctxt "{context}"'] if separator else []), f'msgid "{source}"']
        if isinstance(text, tuple):
            lines += [f'msgid_plural "{PLURALS[source]}"', *(f'msgstr[{i}] "{each}"' for i, each in enumerate(text))]
        else:
            lines.append(f'msgstr "{text}"')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@dataclass
class Shop:
    """The application, and where its message files are."""

    root: Path
    app: App

    @classmethod
    def at(cls, root: Path, **options: Any) -> Shop:
        """Write the files, and declare the application."""
        write(root, "de", GERMAN)
        write(root, "pl", POLISH)
        return cls(root, shop(root, **options))


def shop(root: Path, **options: Any) -> App:
    """An application whose texts can be translated."""
    app = App("shop", version="1", title="The shop", instructions="Search first.")
    app.languages(str(root), default="en", domain="shop", **options)

    @app.tool(title="Search", annotations=_annotations())
    async def search(n: int, ctx: Context) -> str:
        """Search the shop."""
        await ctx.progress(1, message=ctx.t("Looking"))
        return ctx.t("{n} item", "{n} items", n=n)

    @app.tool(name="order")
    async def order(ctx: Context) -> str:
        """Order copies."""
        wanted = await ctx.elicit("How many?", Copies)
        return ctx.t("{n} item", "{n} items", n=wanted.copies)

    @app.tool(name="find")
    async def find(name: str, ctx: Context) -> str:
        """Find a thing."""
        if name == "closed":
            raise ProtocolError(7, ctx.t("Closed"), {"when": "today"})
        raise ToolError(ctx.t("Nothing has {name}", name=name))

    @app.tool(name="pack", task="required")
    async def pack(n: int, ctx: Context) -> str:
        """Pack some."""
        await ctx.progress(1, message=ctx.t("Looking"))
        return ctx.t("{n} item", "{n} items", n=n)

    @app.prompt(title="Advise")
    async def advise(topic: Annotated[str, Field(title="Topic")], ctx: Context) -> str:
        """Advise on a topic."""
        return ctx.t("Advise on {topic}", topic=topic)

    @app.resource("shop://today", "today", title="Today")
    async def today() -> str:
        """What is new today."""
        return "new"

    return app


def _annotations() -> Any:
    from mcp_types import ToolAnnotations

    return ToolAnnotations(title="Search quickly")


async def ask(
    http: httpx2.AsyncClient, method: str, language: str | None = None, header: str | None = None, **params: Any
) -> httpx2.Response:
    """Send a request that prefers a language by `_meta`, by the header, or by both."""
    headers = {"Mcp-Method": method, "MCP-Protocol-Version": MODERN}
    for name in ("name", "uri", "taskId"):
        if name in params and not method.endswith("/list"):
            headers["Mcp-Name"] = params[name]
    if header is not None:
        headers["Accept-Language"] = header
    body = request(method, params)
    if language is not None:
        body["params"]["_meta"][ACCEPT] = language
    return await http.post("/mcp", json=body, headers=headers)
