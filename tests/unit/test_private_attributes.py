"""The undocumented parts of libraries that we build on: a release that lacks one fails here first, and says so.

`pyproject.toml` bounds these libraries below the first release that was not tried. To raise a bound, read the places
in our code that use the names below, try the release, and change the bound.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement

from tests.kit.tree import ROOT, python_files

BUILT_UPON: Final = {
    "h11": "h11",
    "h2": "h2",
    "hpack": "hpack",
    "hypercorn": "hypercorn",
    "mcp": "mcp",
    "nats": "nats-py",
    "pydantic_core": "pydantic",
}
"""Packages that we build on, by their names as distributions."""

INHERITED: Final = {
    "h11._connection:Connection": "_get_io_object _receive_buffer",
    "h11._receivebuffer:ReceiveBuffer": "_data _extract _multiple_lines_search",
    "h2.connection:H2Connection": """
        _begin_new_stream _closed_streams _frame_dispatch_table _handle_data_on_closed_stream _prepare_for_sending
        _receive_goaway_frame
        _receive_data_frame _receive_frame _receive_headers_frame _receive_rst_stream_frame _stream_is_closed_by_end
        _stream_is_closed_by_reset decoder encoder highest_inbound_stream_id incoming_buffer local_settings
        state_machine streams
    """,
    "h2.frame_buffer:FrameBuffer": "_data _headers_buffer _validate_frame_length max_frame_size",
    "hpack.hpack:Encoder": "header_table header_table_size table_size_changes",
    "hypercorn.asyncio.tcp_server:TCPServer": """
        _initiate_server_close _read_data _task_group app config idle_task loop protocol protocol_send reader run state
        writer
    """,
    "hypercorn.config:Config": """
        accesslog backlog errorlog graceful_timeout h2_max_concurrent_streams keep_alive_max_requests response_headers
    """,
    "hypercorn.protocol.h11:H11Protocol": """
        _check_protocol _create_stream _send_error_response app can_read client config connection connection_state
        context keep_alive_requests send server ssl stream stream_send task_group
    """,
    "hypercorn.protocol.h2:H2Protocol": """
        _close_stream _create_stream _flush _handle_events _send_data _window_updated closed config connection
        connection_state context handle has_data keep_alive_requests send send_task stream_buffers stream_send streams
        task_group
    """,
    "hypercorn.protocol.h2:StreamBuffer": "_complete _is_empty _paused buffer close pop push",
    "hypercorn.protocol.http_stream:HTTPStream": "app_send stream_id",
    "mcp.client.auth.oauth2:OAuthClientProvider": "_perform_authorization context",
    "mcp.client.auth.oauth2:TokenStorage": "get_client_info get_tokens set_client_info set_tokens",
    "nats.aio.client:Client": """
        _connect_command _current_server _error_cb _flush_pending _flush_queue _pending _pending_data_size _process_msg
        _remove_sub _server_info _subs _transport is_connected subscribe
    """,
}
"""Members of library classes that our subclasses use or replace, documented or not."""

REACHED: Final = {
    "asyncio.taskgroups:TaskGroup": "_aborting",
    "h11._events:Request": "_parsed",
    "h11._readers": "ChunkedReader expect_nothing maybe_read_from_IDLE_client",
    "h11._receivebuffer": "ReceiveBuffer",
    "h2.exceptions:StreamClosedError": "_events",
    "h2.frame_buffer:FrameBuffer": "_data _headers_buffer",
    "h2.stream:H2Stream": """
        _expected_content_length _track_content_length closed closed_by receive_headers state_machine
    """,
    "h2.stream:H2StreamStateMachine": "state stream_closed_by",
    "h2.utilities": "SizeLimitDict",
    "hypercorn.asyncio.task_group:TaskGroup": "_task_group spawn",
    "hypercorn.asyncio.worker_context:WorkerContext": "event_class mark_request terminated",
    "hypercorn.protocol": "H11Protocol H2Protocol",
    "hypercorn.protocol:ProtocolWrapper": "protocol",
    "hypercorn.protocol.http_stream:ASGIHTTPState": "CLOSED REQUEST",
    "hypercorn.protocol.http_stream:HTTPStream": "handle scope state",
    "hypercorn.utils": "filter_pseudo_headers wrap_app",
    "mcp.client.auth.oauth2:OAuthClientProvider": "_handle_token_response _perform_authorization",
    "nats.aio.client:Client": "_flush_pending _send_unsubscribe _server_info _transport",
    "nats.aio.client:Server": "uri",
    "nats.aio.subscription:Subscription": "_id",
    "nats.aio.transport:TcpTransport": "_io_writer",
    "pydantic_core:SchemaSerializer": "_use_prebuilt",
    "pydantic_core:SchemaValidator": "_use_prebuilt",
}
"""Members that our code uses from outside of a class: the private ones, and those that are documented nowhere."""

DOCUMENTED: Final = {"_current_frames", "_env_prefix", "_fields", "_exit", "_replace"}
"""Names with an underscore that Python or Pydantic documents."""


def rows(table: dict[str, str]) -> list[Any]:
    """Each name of a table, with its owner."""
    return [pytest.param(owner, name, id=f"{owner}.{name}") for owner, names in table.items() for name in names.split()]


def owner_of(path: str) -> Any:
    """The module or class at `package.module:Class`."""
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    return getattr(found, name) if name else found


@cache
def members(owner: Any) -> frozenset[str]:
    """The names of a module, or those of a class by itself: its attributes, its instances' and its constructor's."""
    names = set(vars(owner))
    if inspect.isclass(owner):
        names |= set(inspect.signature(owner).parameters)
    if inspect.isclass(owner) and owner.__module__.partition(".")[0] != "pydantic_core":  # which has no source
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        assert isinstance(tree, ast.ClassDef)
        names |= _annotated(tree)
        stored = (
            node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        )
        names |= {node.attr for node in stored if _is_self(node.value)}
    return frozenset(names)


@pytest.mark.parametrize(("owner", "name"), [*rows(INHERITED), *rows(REACHED)])
def test_the_installed_release_has_what_we_build_on(owner: str, name: str) -> None:
    package = owner.partition(".")[0].partition(":")[0]
    release = f"{package} {version(BUILT_UPON[package])}" if package in BUILT_UPON else "this Python"
    found = owner_of(owner)
    has = any(name in members(each) for each in found.__mro__[:-1]) if inspect.isclass(found) else hasattr(found, name)
    assert has, (
        f"{release} has no {owner}.{name}: our code builds on it, so keep the bound in pyproject.toml or mend it"
    )


def test_the_table_names_all_that_our_classes_take_from_theirs() -> None:
    found: dict[str, set[str]] = {}
    for ours in our_classes():
        theirs = [each for each in ours.__mro__ if each.__module__.partition(".")[0] in BUILT_UPON]
        for name in names_used_by(ours) if theirs else ():
            for each in theirs:
                if name in members(each):
                    found.setdefault(f"{each.__module__}:{each.__qualname__}", set()).add(name)
                    break
    assert found == {owner: set(names.split()) for owner, names in INHERITED.items()}


def test_the_table_names_all_private_attributes_that_we_reach_for() -> None:
    known = {name for names in REACHED.values() for name in names.split()} | DOCUMENTED
    strangers = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in python_files("services", "shared")
        for name in private_names(path)
        if name not in known
    }
    assert strangers == set()


def test_the_table_names_nothing_that_we_do_not_use() -> None:
    text = "\n".join(path.read_text() for path in python_files("services", "shared"))
    words = set(re.findall(r"\w+", text))
    assert {name for names in REACHED.values() for name in names.split()} - words == set()


@pytest.mark.parametrize("distribution", BUILT_UPON.values())
def test_a_library_that_we_build_on_is_bounded_and_the_locked_release_is_within(distribution: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [requirement] = [each for each in map(Requirement, project["dependencies"]) if each.name == distribution]
    assert {each.operator for each in requirement.specifier} == {">=", "<"}
    for lock in ("requirements.lock", "requirements-test.lock"):
        [locked] = re.findall(rf"^{distribution}==(\S+)", (ROOT / lock).read_text(), re.MULTILINE)
        assert requirement.specifier.contains(locked)
    assert requirement.specifier.contains(version(distribution))


def our_classes() -> Iterator[type]:
    """The classes of the modules that import a library of the table."""
    imports = re.compile(rf"^(?:from|import) (?:{'|'.join(BUILT_UPON)})\b", re.MULTILINE)
    for path in python_files("services", "shared"):
        if imports.search(path.read_text()):
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts[1:]))
            yield from (each for each in vars(module).values() if _is_of(each, module))


def names_used_by(ours: type) -> set[str]:
    """The names that a class uses of itself, or defines."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(ours))).body[0]
    assert isinstance(tree, ast.ClassDef)
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_self(node.value)}
    used |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    used |= _annotated(tree)
    return {name for name in used if not name.startswith("__")}


def private_names(path: Path) -> Iterator[str]:
    """The private names that a file uses of what is neither itself nor its own."""
    tree = ast.parse(path.read_text())
    own = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_self(node.value)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=value, attr=name) if not _is_self(value) and name not in own:
                names = [name]
            case ast.Attribute(value=ast.Attribute(value=value), attr=name) if _is_self(value):
                names = [name]
            case ast.Call(
                func=ast.Name(id="getattr" | "setattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]
            ):
                names = [name]
            case ast.ImportFrom(module=str(module)) if any(_is_private(part) for part in module.split(".")):
                names = [each.name for each in node.names]
                yield from names
                continue
            case ast.Call(keywords=keywords):
                names = [each.arg or "" for each in keywords]
            case _:
                continue
        yield from filter(_is_private, names)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_self(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _annotated(tree: ast.ClassDef) -> set[str]:
    targets = [node.target for node in tree.body if isinstance(node, ast.AnnAssign)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _is_of(each: object, module: object) -> bool:
    return inspect.isclass(each) and each.__module__ == getattr(module, "__name__", "")
