"""Documents of MCP Apps as an author declares them, and each mistake with its place (X9, X10, X17 to X19)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mcpfleet.app import (
    App,
    Client,
    Context,
    Csp,
    DeclarationError,
    DeclarationWarning,
    OutputError,
    Request,
    Router,
    ui,
)
from mcpfleet.app import ui as ui_module
from mcpfleet.app.html_check import html_faults
from mcpfleet.contracts.apps import APP_TYPE, APPS_EXTENSION

BOARD = "ui://shop/board"
HTML = "<!doctype html><title>Board</title>"
WITH_APPS = {"extensions": {APPS_EXTENSION: {"mimeTypes": [APP_TYPE]}}}


def boarded(tmp_path: Path, text: str = HTML, **options: Any) -> App:
    """An App with a document of a file."""
    (tmp_path / "board.html").write_text(text)
    app = App("shop", version="1")
    declare_file(app, tmp_path, **options)
    return app


def declare_file(app: Router, folder: Path, **options: Any) -> Any:
    """Declare `board.html` of a folder as a module there would."""
    names: dict[str, Any] = {"__name__": "shop_app"}
    code = compile("def declare(app, options):\n    return app.ui('ui://shop/board', file='board.html', **options)\n",
                   str(folder / "shop_app.py"), "exec")  # fmt: skip
    (folder / "shop_app.py").touch()
    exec(code, names)  # a file's place decides where its document is
    return names["declare"](app, options)


def ui_meta(app: App, kind: str, name: str) -> Any:
    [found] = [each.definition for each in app.handlers if (each.definition.kind, each.definition.name) == (kind, name)]
    return found.wire.get("_meta", {}).get("ui")


@pytest.mark.rule("X9")
def test_a_file_is_a_document_with_all_that_it_says_to_hosts(tmp_path: Path) -> None:
    csp = Csp(
        connect=["https://api.example.com", "wss://*.example.com:8443"],
        resources=["https://cdn.example.com"],
        frames=["https://frames.example.com"],
        base=["https://base.example.com"],
    )
    permissions = {"clipboard-write", "camera", "microphone", "geolocation"}
    app = boarded(tmp_path, csp=csp, permissions=permissions, border=False, domain="a1.example.com", title="Board")
    [handler] = app.handlers
    assert handler.definition.file is not None
    assert (handler.definition.file.mime, handler.definition.file.size) == (APP_TYPE, len(HTML))
    assert handler.definition.wire == {
        "uri": BOARD,
        "name": "board",
        "title": "Board",
        "mimeType": APP_TYPE,
        "_meta": {
            "ui": {
                "csp": {
                    "connectDomains": ["https://api.example.com", "wss://*.example.com:8443"],
                    "resourceDomains": ["https://cdn.example.com"],
                    "frameDomains": ["https://frames.example.com"],
                    "baseUriDomains": ["https://base.example.com"],
                },
                "permissions": {"camera": {}, "microphone": {}, "geolocation": {}, "clipboardWrite": {}},
                "domain": "a1.example.com",
                "prefersBorder": False,
            }
        },
    }


@pytest.mark.rule("X9")
async def test_contents_have_the_meta_of_the_list(tmp_path: Path) -> None:
    """From a file and from a function alike; a function knows whether its client has Apps."""
    app = boarded(tmp_path, border=True, meta={"own": 1})

    @app.ui("ui://shop/report", border=True, per_caller=True)
    async def report(ctx: Context) -> str:
        """Report."""
        return f"<!doctype html>{ctx.client.has_apps}"

    for handler, text in zip(app.handlers, (HTML, "<!doctype html>True"), strict=True):
        ctx = Context(client=Client(capabilities=WITH_APPS))
        answer = await handler.answer(Request(uri=handler.definition.name), ctx)
        [content] = answer.fields()["contents"]
        assert content == {
            "uri": handler.definition.name,
            "mimeType": APP_TYPE,
            "text": text,
            "_meta": handler.definition.wire["_meta"],
        }
    assert app.handlers[0].definition.wire["_meta"] == {"own": 1, "ui": {"prefersBorder": True}}
    assert app.handlers[1].definition.per_caller


@pytest.mark.rule("X9")
@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (lambda app: app.ui("ui://shop/{x}"), "is exact"),
        (lambda app: app.ui("https://shop/x"), "must begin with ui://"),
        (lambda app: app.ui("ui://shop/../x"), "ui://shop/../x"),
        (lambda app: app.ui(BOARD, file="none.html"), "none.html cannot be read"),
        (lambda app: app.ui(BOARD, file="../x.html"), "relative"),
        (lambda app: app.ui(BOARD, file="x.html", package="no_such_package"), "no installed package"),
        (lambda app: app.ui(BOARD, file="x.html", timeout=1.0), "timeout is for functions"),
        (lambda app: app.ui(BOARD, package="shop"), "package is for a file"),
        (lambda app: app.ui(BOARD, permissions={"midi"}), "permissions has 'midi'; known are 'camera'"),
        (lambda app: app.ui(BOARD, permissions="camera"), "permissions is a set of strings"),
        (lambda app: app.ui(BOARD, csp={"connect": []}), "csp must be a Csp"),
        (lambda app: app.ui(BOARD, domain="a b"), "domain must have"),
        (lambda app: app.ui(BOARD, border="yes"), "border must be"),
        (lambda app: app.ui(BOARD, ttl=-1.0), "ttl must be"),
        (lambda app: app.ui(BOARD, meta={"ui": {}})(lambda: ""), "meta has 'ui'"),
        (lambda app: app.ui(BOARD, bordr=True), "did you mean 'border'"),
        (lambda app: app.resource(BOARD)(lambda: ""), "declare it by `app.ui`"),
        (lambda app: app.resource("ui://shop/{x}")(lambda x: x), "declare it by `app.ui`"),
        (lambda app: app.ui(BOARD)(_of_bytes), "annotate the function with `-> str`"),
        (lambda app: app.ui(BOARD)(lambda x: ""), "is not a variable of the URI"),
        (lambda app: app.tool(ui=7)(_tool), "is no document of this App"),
        (lambda app: app.tool(ui="ui://shop/none")(_tool), "is no document of this App"),
        (lambda app: app.tool(visibility={"user"})(_tool), "visibility has 'user'; known are 'app', 'model'"),
        (lambda app: app.tool(visibility=set())(_tool), "visibility is empty"),
        (lambda app: app.tool(visibility="app")(_tool), "visibility is a set of strings"),
        (lambda app: app.tool(meta={"ui/resourceUri": BOARD})(_tool), "meta has 'ui/resourceUri'"),
        (lambda app: app.tool(meta={"ui": {"resourceUri": BOARD}})(_tool), "write `ui=`"),
    ],
)
def test_a_mistake_in_a_declaration_is_told_with_its_place(declare: Callable[[App], Any], why: str) -> None:
    with pytest.raises(DeclarationError, match=why) as raised:
        declare(App("shop", version="1"))
    assert "test_ui.py:" in str(raised.value)


async def _tool() -> str:
    """Do nothing."""
    return ""


async def _of_bytes() -> bytes:
    return b""


@pytest.mark.rule("X10")
def test_a_tool_names_its_document_by_object_function_or_uri(tmp_path: Path) -> None:
    app = App("shop", version="1")
    (tmp_path / "board.html").write_text(HTML)
    board = declare_file(app, tmp_path)

    @app.ui("ui://shop/report")
    async def report() -> str:
        return HTML

    each: tuple[tuple[str, Any, Any], ...] = (
        ("stock", board, None),
        ("refresh", BOARD, {"app"}),
        ("report", report, ["app", "model"]),
    )
    for name, given, visibility in each:
        app.tool(name, ui=given, visibility=visibility)(_tool)
    app.tool("hidden", visibility={"app"})(_tool)
    assert {name: ui_meta(app, "tool", name) for name in app.tools} == {
        "stock": {"resourceUri": BOARD, "visibility": ["model", "app"]},
        "refresh": {"resourceUri": BOARD, "visibility": ["app"]},
        "report": {"resourceUri": "ui://shop/report", "visibility": ["model", "app"]},
        "hidden": {"visibility": ["app"]},
    }
    app.check_documents()


@pytest.mark.rule("X10")
def test_a_document_of_another_app_is_a_mistake() -> None:
    """One of an included Router is the App's own."""
    other, router, app = App("other", version="1"), Router(), App("shop", version="1")
    foreign, own = other.ui("ui://other/board"), router.ui(BOARD)
    foreign(lambda: HTML)
    own(lambda: HTML)
    for each in (foreign, own):
        with pytest.raises(DeclarationError, match="is no document of this App"):
            app.tool(ui=each)(_tool)
    app.include(router)
    app.tool("one", ui=own)(_tool)
    app.check_documents()


@pytest.mark.rule("X10")
def test_a_routers_tool_may_name_a_document_that_is_declared_where_it_is_included() -> None:
    """Whether it is, is known once all is declared."""
    router, app = Router(), App("shop", version="1")
    router.tool(ui=BOARD)(_tool)
    app.include(router)
    with pytest.raises(DeclarationError, match=r"is no document of this App.*_tool|_tool.*is no document"):
        app.check_documents()
    app.ui(BOARD)(lambda: HTML)
    app.check_documents()


@pytest.mark.rule("X10")
@pytest.mark.parametrize(
    ("document", "tool", "why"),
    [
        ({"only_for": ["tenant:acme"]}, {}, "only_for"),
        ({"only_for": ["tenant:acme"]}, {"only_for": ["tenant:acme", "tenant:other"]}, "only_for"),
        ({"only_for": ["tenant:acme", "tenant:x"]}, {"only_for": ["tenant:acme"]}, ""),
        ({"scopes": ["read"]}, {}, "scopes"),
        ({"scopes": ["read"]}, {"scopes": ["read", "write"]}, ""),
        ({"revisions": ["2026-07-28"]}, {}, "revisions"),
        ({"revisions": ["2026-07-28"]}, {"revisions": ["2026-07-28"]}, ""),
        ({}, {"only_for": ["tenant:acme"], "scopes": ["read"], "revisions": ["2026-07-28"]}, ""),
    ],
)
def test_a_document_is_no_more_hidden_than_its_tool(document: dict[str, Any], tool: dict[str, Any], why: str) -> None:
    app = App("shop", version="1")
    board = app.ui(BOARD, **document)
    board(lambda: HTML)
    if not why:
        app.tool(ui=board, **tool)(_tool)
        return
    with pytest.raises(DeclarationError, match=f"is hidden by its {why} from callers"):
        app.tool(ui=board, **tool)(_tool)


@pytest.mark.rule("X10")
def test_a_permit_hides_a_document_more_than_its_tool() -> None:
    app = App("shop", version="1")
    board = app.ui(BOARD)
    board(lambda: HTML)
    app.tool(ui=board)(_tool)

    @app.permit(BOARD)
    async def may_read(caller: Any, asked: list[Any]) -> list[bool]:
        del caller
        return [True for _ in asked]

    with pytest.raises(DeclarationError, match="is hidden by its permit"):
        app.check_documents()


def test_a_file_is_no_decorator(tmp_path: Path) -> None:
    (tmp_path / "board.html").write_text(HTML)
    board = declare_file(App("shop", version="1"), tmp_path)
    assert repr(board) == f"Ui({BOARD!r})"
    with pytest.raises(DeclarationError, match="is a file already"):
        board(_tool)


@pytest.mark.rule("X17")
@pytest.mark.parametrize(
    "origin",
    [
        "http://api.example.com",
        "https://api.example.com/",
        "https://api.example.com/x",
        "https://*.*.example.com",
        "https://a.*.example.com",
        "https://*",
        "*",
        "https:",
        "data:",
        "'unsafe-eval'",
        "https://api.example.com; script-src *",
        "https://user@example.com",
        "https://API.example.com",
        "https://example.com:0",
        "ws://example.com",
        "http://localhost:5173",
        7,
    ],
)
def test_a_csp_has_secure_origins_alone(origin: Any) -> None:
    with pytest.raises(DeclarationError, match=r"test_ui\.py:.*Csp: connect has|Csp: connect has"):
        Csp(connect=[origin])


@pytest.mark.rule("X17")
def test_a_csp_takes_origins_of_this_machine_under_dev_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeclarationError, match="under `mcpfleet dev` alone"):
        Csp(connect=["http://localhost:5173"])
    monkeypatch.setattr(ui_module, "_local", {"localhost"})
    assert Csp(connect=["http://localhost:5173", "http://localhost"]).connect[0] == "http://localhost:5173"
    for wrong in ("http://localhost.example.com", "http://127.0.0.1", "http://localhost:5173/x"):
        with pytest.raises(DeclarationError, match="must be an `https:`"):
            Csp(connect=[wrong])
    with pytest.raises(DeclarationError, match="frames is a list of origins"):
        Csp(frames="https://a.example.com")


@dataclass
class Item:
    name: str


@pytest.mark.rule("X18")
def test_embedded_data_cannot_end_a_script() -> None:
    """It is the same JSON all the same."""
    item = Item("</script><!-- <script> ]]> & \u2028\u2029 ä")
    value = [item, {"</SCRIPT>": None}]
    text = ui.embed(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == [{"name": item.name}, {"</SCRIPT>": None}]
    for wrong in (float("nan"), object()):
        with pytest.raises(ValueError, match=r"JSON|serialize"):
            ui.embed(wrong)


CSP = {"resourceDomains": ["https://*.example.com"], "connectDomains": ["https://api.example.com:8443"]}


@pytest.mark.rule("X19")
@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example.com/x.js"></script><a href="https://elsewhere.example">x</a>',
        "<script>fetch('https://api.example.com:8443/x'); const ns = 'http://www.w3.org/2000/svg'</script>",
        '<img src="data:,x"><img src="/x.png"><link rel="stylesheet" href="//cdn.example.com/x.css">',
        "<style>body { background: url(data:,x) }</style><p>fetch('https://elsewhere.example')</p>",
    ],
)
def test_a_document_within_its_csp_is_warned_of_nothing(text: str) -> None:
    assert list(html_faults(f"<!DOCTYPE html>{text}", CSP)) == []


@pytest.mark.rule("X19")
@pytest.mark.parametrize(
    ("text", "address", "argument"),
    [
        ('<script src="https://example.com/x.js"></script>', "https://example.com/x.js", "resources"),
        ('<script src="https://cdn.example.com:1/x"></script>', "https://cdn.example.com:1/x", "resources"),
        ('<img src="http://cdn.example.com/x">', "http://cdn.example.com/x", "resources"),
        ('<link href="//other.org/x.css" rel="stylesheet">', "//other.org/x.css", "resources"),
        ("<style>@import 'https://other.org/x.css'</style>", "https://other.org/x.css", "resources"),
        ('<p style="background: url(https://other.org/y)">', "https://other.org/y", "resources"),
        ('<video poster="https://other.org/z"></video>', "https://other.org/z", "resources"),
        (
            '<script type="module">import x from "https://other.org/x.mjs"</script>',
            "https://other.org/x.mjs",
            "resources",
        ),
        ("<script>fetch(`https://api.example.com/x`)</script>", "https://api.example.com/x", "connect"),
        ('<script>new WebSocket("wss://other.org")</script>', "wss://other.org", "connect"),
        ('<iframe src="https://other.org"></iframe>', "https://other.org", "frames"),
        ('<base href="https://other.org/">', "https://other.org/", "base"),
        ('<img src="https://[other">', "https://[other", "resources"),
    ],
)
def test_an_address_outside_of_the_csp_is_warned_of(text: str, address: str, argument: str) -> None:
    [fault] = html_faults(f"<!doctype html>{text}", CSP)
    assert f"hosts block {address}, " in fault
    assert f"`{argument}`" in fault


@pytest.mark.rule("X19")
async def test_a_document_without_a_doctype_is_warned_of(tmp_path: Path) -> None:
    """A file where it is read, and what a function makes at its first read."""
    with pytest.warns(DeclarationWarning, match=r"board\.html: the document has no doctype"):
        boarded(tmp_path, "<p>x</p>")
    app = App("shop", version="1")
    app.ui(BOARD)(lambda: "<p>x</p>")
    [handler] = app.handlers
    with pytest.warns(DeclarationWarning, match="no doctype"):
        await handler.answer(Request(uri=BOARD), Context())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await handler.answer(Request(uri=BOARD), Context())


async def test_a_function_that_returns_no_text_has_failed() -> None:
    app = App("shop", version="1")
    app.ui(BOARD)(lambda: 7)
    with pytest.raises(OutputError, match="a document is one text of HTML, and the function returned int"):
        await app.handlers[0].answer(Request(uri=BOARD), Context())
