"""The order of checks: the first failure wins (T11)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from mcpfleet.wire.protocol import SERVED
from tests.unit.edge.asgi import CAPABILITIES_KEY, MODERN, VERSION_KEY, Post, call, request
from tests.unit.edge.server.checks import ROWS, climb, fails, refusal

NAMED = {row.name: row.names for row in ROWS if row.names is not None}
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"


# -- the order -------------------------------------------------------------------------------------------------------


def elsewhere(post: Post) -> None:
    post.path = "/other"


def foreign_host(post: Post) -> None:
    post.headers["host"] = "evil.example.com"


def foreign_origin(post: Post) -> None:
    post.headers["origin"] = "https://evil.example.com"


def get(post: Post) -> None:
    post.method = "GET"


def as_text(post: Post) -> None:
    post.headers["content-type"] = "text/plain"


def accepts_html(post: Post) -> None:
    post.headers["accept"] = "text/html"


def zipped(post: Post) -> None:
    post.headers["content-encoding"] = "gzip"


def no_json(post: Post) -> None:
    post.raw = b"{"


def bad_envelope(post: Post) -> None:
    post.message["jsonrpc"] = "1.0"


def no_capabilities(post: Post) -> None:
    post.message["params"]["_meta"].pop(CAPABILITIES_KEY, None)


def no_method_header(post: Post) -> None:
    post.headers["mcp-method"] = None


def another_name(post: Post) -> None:
    post.headers["mcp-name"] = "other"


def unserved_version(post: Post) -> None:
    post.message["params"]["_meta"][VERSION_KEY] = "2099-01-01"


def unknown_method(post: Post) -> None:
    post.message["method"] = "tools/burn"
    post.headers.setdefault("mcp-method", "tools/burn")


def bad_structure(post: Post) -> None:
    post.message["params"]["arguments"] = []


LADDER: list[tuple[Callable[[Post], None], tuple[int, int | None]]] = [
    (elsewhere, (404, -32600)),
    (foreign_host, (403, -32600)),
    (foreign_origin, (403, -32600)),
    (get, (405, -32600)),
    (as_text, (415, -32600)),
    (accepts_html, (406, -32600)),
    (zipped, (415, -32600)),
    (no_json, (400, -32700)),
    (bad_envelope, (400, -32600)),
    (no_capabilities, (400, -32602)),
    (no_method_header, (400, -32020)),
    (another_name, (400, -32020)),
    (unserved_version, (400, -32022)),
    (unknown_method, (404, -32601)),
    (bad_structure, (400, -32602)),
]
"""From top to bottom: a fault, and what it is answered with."""


def test_a_request_without_a_fault_passes() -> None:
    assert climb(Post()).method == "tools/call"


@pytest.mark.parametrize(("spoil", "answer"), LADDER, ids=lambda value: getattr(value, "__name__", ""))
def test_t11_each_fault_has_its_answer(spoil: Callable[[Post], None], answer: tuple[int, int | None]) -> None:
    post = Post()
    spoil(post)
    assert fails(post) == answer


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(first, second, id=f"{first[0].__name__} and {second[0].__name__}")
        for first, second in itertools.combinations(LADDER, 2)
        # Both change the same header.
        if (first[0], second[0]) != (another_name, unknown_method)
    ],
)
def test_t11_of_two_faults_the_first_wins(first: Any, second: Any) -> None:
    post = Post()
    second[0](post)
    first[0](post)
    assert fails(post) == first[1]


# -- the head --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/mcp//", "/MCP", "/mcp/x", "//mcp", "/x/../mcp", "/mcp%2f", "/.well-known/mcp"])
def test_t1_no_other_path_is_an_endpoints(path: str) -> None:
    assert fails(Post(path=path)) == (404, -32600)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "post"])
def test_m13_only_post_is_served_and_405_names_it(method: str) -> None:
    rejection = refusal(Post(method=method))
    assert (rejection.status, rejection.headers) == (405, {"Allow": "POST"})


@pytest.mark.parametrize("path", ["/mcp/", "/%6dcp", "/%6D%63%70/"])
def test_t35_another_spelling_of_a_path_is_the_path(path: str) -> None:
    climb(Post(path=path))


@pytest.mark.parametrize("value", ["gzip", "br"])
def test_t33_a_coding_that_is_refused_is_told_which_is_taken(value: str) -> None:
    """RFC 9110, 12.5.3; another media type is no matter of coding."""
    assert refusal(Post(headers={"content-encoding": value})).headers == {"Accept-Encoding": "identity"}
    assert refusal(Post(headers={"content-type": "text/plain"})).headers == {}


def test_t34_without_accept_everything_is_acceptable() -> None:
    climb(Post(headers={"accept": None}))


def test_m17_the_origin_is_checked_on_every_method() -> None:
    assert fails(Post(method="GET", headers={"origin": "null"})) == (403, -32600)


@pytest.mark.parametrize(
    "value",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        'application/json; charset="utf-8"',
        "application/json ; charset=utf-8",
    ],
)
def test_t2_the_body_is_json_in_utf8(value: str) -> None:
    climb(Post(headers={"content-type": value}))


@pytest.mark.parametrize(
    "value",
    [None, "", "text/json", "application/json-rpc", "application/*", "*/*", "application/json; charset=latin1"],
)
def test_m13_another_media_type_or_charset_is_415(value: str | None) -> None:
    assert fails(Post(headers={"content-type": value})) == (415, -32600)


@pytest.mark.parametrize("value", ["gzip", "br", "identity, gzip", ""])
def test_m13_a_coding_is_415(value: str) -> None:
    assert fails(Post(headers={"content-encoding": value})) == (415, -32600)


@pytest.mark.parametrize("value", ["identity", "Identity"])
def test_m13_no_coding_is_no_coding(value: str) -> None:
    climb(Post(headers={"content-encoding": value}))


@pytest.mark.parametrize(
    "value",
    [
        "application/json, text/event-stream",
        "text/event-stream,application/json",
        "application/json;q=0.5, text/event-stream;q=0.9",
        "*/*",
        "application/*, text/*",
        "Application/JSON, Text/Event-Stream",
        "text/html, */*;q=0.1",
        "application/json; q=1.000, text/event-stream",
    ],
)
def test_t2_json_and_events_are_both_welcome(value: str) -> None:
    """M13: `*/*` counts."""
    climb(Post(headers={"accept": value}))


@pytest.mark.parametrize(
    "value",
    [
        "",
        "application/json",
        "text/event-stream",
        "text/html",
        "application/json, text/html",
        "application/json, text/event-stream;q=0",
        "application/json, text/event-stream; q=0",
        "application/json, text/event-stream;q=0.0",
        "application/json, text/event-stream;q=0.000",
        "text/event-stream;q=0, */*",
    ],
)
def test_t2_a_client_that_does_not_take_both_is_406(value: str) -> None:
    """A weight of 0 is a refusal, also of what a wider range would take (RFC 9110, 12.5.1)."""
    assert fails(Post(headers={"accept": value})) == (406, -32600)


# -- the era and the version -----------------------------------------------------------------------------------------


def without_claim(message: dict[str, Any]) -> dict[str, Any]:
    message["params"].pop("_meta")
    return message


def test_m1_a_claim_without_the_header_is_a_mismatch() -> None:
    assert fails(Post(headers={"mcp-protocol-version": None})) == (400, -32020)


def test_m1_a_modern_header_without_a_claim_is_invalid_params() -> None:
    """Neither is served as legacy."""
    assert fails(Post(without_claim(call()), {"mcp-protocol-version": MODERN})) == (400, -32602)


def test_a_request_without_any_version_is_invalid_params() -> None:
    assert fails(Post(without_claim(call()))) == (400, -32602)


def test_d5_header_and_body_that_name_different_versions_are_a_mismatch() -> None:
    assert fails(Post(headers={"mcp-protocol-version": "2025-11-25"})) == (400, -32020)
    claimed = call(meta={VERSION_KEY: "2099-01-01"})
    assert fails(Post(claimed, {"mcp-protocol-version": MODERN})) == (400, -32020)


@pytest.mark.parametrize(
    ("post", "requested"),
    [
        pytest.param(Post(call(meta={VERSION_KEY: "2099-01-01"})), "2099-01-01", id="in the claim"),
        pytest.param(Post(call(meta={VERSION_KEY: "2025-11-25"})), "2025-11-25", id="a legacy one in the claim"),
        pytest.param(
            Post(without_claim(call()), {"mcp-protocol-version": "2025-11-25"}), "2025-11-25", id="in the header"
        ),
        pytest.param(
            Post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}),
            "2025-11-25",
            id="in a handshake",
        ),
        pytest.param(Post({"jsonrpc": "2.0", "id": 1, "method": "initialize"}), None, id="in a handshake without one"),
    ],
)
def test_t18_a_version_that_is_not_served_is_told_which_are(post: Post, requested: str | None) -> None:
    """M30, M31: whatever the era, and for the handshake of 2025 too."""
    rejection = refusal(post)
    assert (rejection.status, rejection.code) == (400, -32022)
    assert rejection.data == {"supported": list(SERVED)} | ({"requested": requested} if requested else {})


def test_t17_a_handshake_that_claims_modern_is_unknown_and_names_the_versions() -> None:
    rejection = refusal(Post(request("initialize")))
    assert (rejection.status, rejection.code) == (404, -32601)
    assert MODERN in f"{rejection.message} {rejection.data}"


@pytest.mark.parametrize("version", [None, 7, ["2026-07-28"], {}])
def test_m20_a_claim_that_is_no_string_is_invalid_params(version: Any) -> None:
    assert fails(Post(call(meta={VERSION_KEY: version}), {"mcp-protocol-version": MODERN})) == (400, -32602)


# -- _meta -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capabilities", [None, [], "sampling", True])
def test_m20_client_capabilities_are_an_object(capabilities: Any) -> None:
    assert fails(Post(call(meta={CAPABILITIES_KEY: capabilities}))) == (400, -32602)


@pytest.mark.parametrize("extensions", [None, [], "x", {"com.example/x": None}, {"com.example/x": []}])
def test_t10_a_container_or_setting_of_extensions_that_is_no_object_is_refused(extensions: Any) -> None:
    assert fails(Post(call(meta={CAPABILITIES_KEY: {"extensions": extensions}}))) == (400, -32602)


def test_t10_what_is_unknown_passes_whatever_its_form() -> None:
    unknown = {
        CAPABILITIES_KEY: {"extensions": {"com.example/x": {"a": [1]}}, "experimental": []},
        "com.example/key": [1, None],
        "io.modelcontextprotocol/clientInfo": "no object",
        "progressToken": {},
    }
    assert climb(Post(call(meta=unknown))).meta["com.example/key"] == [1, None]


@pytest.mark.parametrize("level", ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"])
def test_m21_a_log_level_of_the_specification_passes(level: str) -> None:
    climb(Post(call(meta={LOG_LEVEL_KEY: level})))


@pytest.mark.parametrize("level", ["loud", "INFO", "", None, 5, [], {}])
def test_m21_another_log_level_is_invalid_params(level: Any) -> None:
    assert fails(Post(call(meta={LOG_LEVEL_KEY: level}))) == (400, -32602)


# -- the structure ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], "x", 5])
def test_arguments_are_an_object(arguments: Any) -> None:
    message = call()
    message["params"]["arguments"] = arguments
    assert fails(Post(message)) == (400, -32602)


def test_arguments_may_be_absent() -> None:
    message = call()
    del message["params"]["arguments"]
    climb(Post(message))


def test_l22_null_is_as_good_as_no_arguments_and_no_cursor() -> None:
    message = call()
    message["params"]["arguments"] = None
    assert "arguments" not in climb(Post(message)).params
    assert "cursor" not in climb(Post(request("tools/list", {"cursor": None}))).params


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/list", {"cursor": 1}),
        ("tools/call", {"name": "x", "inputResponses": None}),
        ("tools/call", {"name": "x", "inputResponses": []}),
        ("tools/call", {"name": "x", "requestState": 7}),
        ("prompts/get", {}),
        ("prompts/get", {"name": "x", "arguments": {"a": 1}}),
        ("resources/read", {}),
        ("resources/read", {"uri": ""}),
        ("resources/read", {"uri": "x:" + "y" * 2047}),
        ("completion/complete", {"argument": {"name": "a", "value": ""}}),
        ("completion/complete", {"ref": {"type": "ref/tool", "name": "x"}, "argument": {"name": "a", "value": ""}}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a"}}),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "x"},
                "argument": {"name": "a", "value": ""},
                "context": {"arguments": {"b": 1}},
            },
        ),
    ],
)
def test_params_of_another_form_are_invalid(method: str, params: dict[str, Any]) -> None:
    """M51 among them: `inputResponses` that are no object."""
    named: dict[str, str | None] = {"mcp-name": params.get("uri", "x")} if method == "resources/read" else {}
    absent = method in NAMED and NAMED[method] not in params
    assert fails(Post(request(method, params), headers=named)) == (400, -32020 if absent else -32602)


@pytest.mark.parametrize("method", ["tools/Call", "tools", "", "tasks/list", "tasks/result", "ping", "rpc.discover"])
def test_m14_an_unknown_method_is_404(method: str) -> None:
    assert fails(Post(request(method))) == (404, -32601)
