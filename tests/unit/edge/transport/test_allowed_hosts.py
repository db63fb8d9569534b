"""Which Host and Origin may come in (I5, M17)."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from structlog.testing import LogCapture

from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.allowed_hosts import AllowedHosts
from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.headers import Headers
from tests.kit.logs import captured

LOG = captured(LogCapture())
LOOPBACK = AllowedHosts("127.0.0.1:8000", [], log=LOG)
PUBLIC = AllowedHosts("0.0.0.0:8000", ["MCP.example.com", "edge.example.com:8443"], log=LOG)


SPELLED = AllowedHosts(
    "0.0.0.0:8000",
    ["[2001:DB8:0::1]", "2001:db8::2", "[2001:db8::3]:8443", "usual.example.com:443", "dot.example.com."],
    log=LOG,
)


def lets_in(hosts: AllowedHosts, *, host: list[str] | None = None, origin: list[str] | None = None) -> bool:
    headers = Headers(
        [(b"host", name.encode("latin-1")) for name in host or []]
        + [(b"origin", name.encode("latin-1")) for name in origin or []]
    )
    try:
        hosts.check_origin(headers) if host is None else hosts.check_host(headers)
    except Rejection as rejection:
        assert_is_forbidden(rejection)
        return False
    return True


def assert_is_forbidden(rejection: Rejection) -> None:
    assert (rejection.status, rejection.code) == (403, -32600)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8000", "127.0.0.1", "127.8.8.8:1", "localhost", "LOCALHOST:8000", "localhost:9", "[::1]:8000", "[::1]"],
)
def test_an_edge_on_loopback_answers_to_loopbacks_names_on_any_port(host: str) -> None:
    """A balancer or a container's port mapping passes its own address on."""
    assert lets_in(LOOPBACK, host=[host])


@pytest.mark.rule("I5")
@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com",
        "evil.example.com:8000",
        "127.0.0.1.evil.example.com",
        "localhost.evil.example.com",
        "10.0.0.1:8000",
        "0.0.0.0:8000",
        "[2001:db8::1]:8000",
        "localhost:8000@evil.example.com",
        "",
        "[",
        "\xe9",
    ],
)
def test_a_name_that_somebody_else_lets_resolve_to_us_stays_outside(host: str) -> None:
    assert not lets_in(LOOPBACK, host=[host])


@pytest.mark.parametrize("hosts", [[], ["localhost", "localhost"], ["localhost", "evil.example.com"]])
def test_a_request_names_one_host(hosts: list[str]) -> None:
    assert not lets_in(LOOPBACK, host=hosts)


@pytest.mark.parametrize(
    ("host", "welcome"),
    [
        ("mcp.example.com", True),
        ("MCP.EXAMPLE.COM", True),
        ("mcp.example.com:8443", True),
        ("edge.example.com:8443", True),
        ("edge.example.com", False),
        ("edge.example.com:443", False),
        ("other.example.com", False),
        ("localhost", False),
        ("127.0.0.1:8000", False),
    ],
)
def test_an_edge_that_others_reach_answers_to_its_public_names(host: str, welcome: bool) -> None:
    """A name without a port stands for all of its ports, and loopback's names need to be mentioned."""
    assert lets_in(PUBLIC, host=[host]) is welcome


@pytest.mark.rule("I5")
@pytest.mark.parametrize(
    ("origins", "welcome"),
    [
        pytest.param([], True, id="none"),
        pytest.param(["http://localhost"], True, id="localhost"),
        pytest.param(["http://localhost:6274"], True, id="localhost on a port"),
        pytest.param(["https://127.0.0.1:6274"], True, id="loopback"),
        pytest.param(["http://[::1]:6274"], True, id="loopback of IPv6"),
        pytest.param(["null"], False, id="null"),
        pytest.param([""], False, id="empty"),
        pytest.param(["https://evil.example.com"], False, id="foreign"),
        pytest.param(["http://localhost.evil.example.com"], False, id="foreign that begins like ours"),
        pytest.param(["http://localhost:80@evil.example.com"], False, id="foreign behind a user"),
        pytest.param(["file://localhost"], False, id="a file"),
        pytest.param(["localhost"], False, id="no scheme"),
        pytest.param(["http://["], False, id="malformed"),
        pytest.param(["http://localhost", "http://localhost"], False, id="two"),
        pytest.param(["http://localhost", "https://evil.example.com"], False, id="two, one of them foreign"),
    ],
)
def test_the_origin_table(origins: list[str], welcome: bool) -> None:
    """No Origin is no browser; `null` is nowhere we know."""
    assert lets_in(LOOPBACK, origin=origins) is welcome


@pytest.mark.rule("I5")
@pytest.mark.parametrize(
    ("origin", "welcome"),
    [("https://mcp.example.com", True), ("http://localhost", False), ("https://edge.example.com", False)],
)
def test_an_edge_that_others_reach_lets_its_public_names_in(origin: str, welcome: bool) -> None:
    assert lets_in(PUBLIC, origin=[origin]) is welcome


def test_public_hosts_that_no_client_can_send_are_told_once() -> None:
    capture = LogCapture()
    names = ["https://mcp.example.com", "*.example.com", "mcp.example.com/mcp", "b\u00fccher.example", "fine.example"]
    hosts = AllowedHosts("0.0.0.0:8000", names, log=captured(capture))
    [line] = capture.entries
    assert (line["log_level"], line["event"]) == ("warning", "public hosts match nothing")
    assert line["hosts"] == [ascii(each) for each in names[:4]]
    assert "MCPFLEET_PUBLIC_HOSTS" in line["want"]
    assert lets_in(hosts, host=["fine.example"])


@pytest.mark.rule("T33")
def test_what_is_refused_is_named_in_the_log() -> None:
    """Strangers make these names: what is told of one is short, and in ASCII; its pace is the log's own (T23)."""
    lines = LogCapture()
    hosts = AllowedHosts("127.0.0.1:8000", [], log=captured(lines))
    name = "evil.example.com\x1b\xe9" + "x" * 500
    assert not lets_in(hosts, host=[name])
    assert not lets_in(hosts, origin=[f"https://{name}"])
    assert [line["event"] for line in lines.entries] == ["host refused", "origin refused"]
    for line in lines.entries:
        assert "evil.example.com\\x1b\\xe9" in line["name"]
        assert line["name"].isascii()
        assert line["name"].isprintable()
        assert len(line["name"]) < 200


@pytest.mark.rule("I6")
@pytest.mark.parametrize(
    "host",
    [
        "[2001:db8::1]",
        "[2001:db8::1]:8000",
        "[2001:0db8:0:0:0:0:0:1]:443",
        "[2001:DB8::2]:9",
        "[2001:db8:0::3]:8443",
        "usual.example.com",
        "usual.example.com:443",
        "usual.example.com:",
        "USUAL.example.com.",
        "dot.example.com",
        "dot.example.com.:8000",
    ],
)
def test_a_public_host_may_have_any_spelling(host: str) -> None:
    assert lets_in(SPELLED, host=[host])
    assert lets_in(SPELLED, origin=[f"https://{host}"])


@pytest.mark.rule("I6")
@pytest.mark.parametrize(
    "host",
    [
        "[2001:db8::3]",
        "[2001:db8::3]:443",
        "[2001:db8::4]",
        "2001:db8::1",
        "usual.example.com:8443",
        "example.com..",
        "[1]",
    ],
)
def test_another_host_or_port_has_no_spelling_that_comes_in(host: str) -> None:
    assert not lets_in(SPELLED, host=[host])


@pytest.mark.rule("I6")
def test_loopback_may_have_any_spelling() -> None:
    assert all(lets_in(LOOPBACK, host=[host]) for host in ("127.0.0.1:", "localhost.", "localhost.:8000", "[0:0::1]:"))


@pytest.mark.rule("I6")
@pytest.mark.parametrize(
    ("origin", "sent"),
    [
        ("https://app.example.com", "https://app.example.com"),
        ("https://APP.example.com:443/", "https://app.example.com"),
        ("http://app.example.com:80", "http://app.example.com"),
        ("http://app.example.com:443", "http://app.example.com:443"),
        ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
        ("vscode-webview://0abc", "vscode-webview://0abc"),
    ],
)
def test_an_origin_of_the_settings_becomes_what_browsers_send(origin: str, sent: str) -> None:
    assert EdgeSettings(cors_origins=origin).cors_origins == (sent,)  # type: ignore[arg-type]  # pydantic reads text


@pytest.mark.rule("M17")
@pytest.mark.parametrize(
    "origin",
    ["*", "null", "app.example.com", "https://*.example.com", "https://a.example/page", "https://b\xfccher.example"],
)
def test_what_any_page_can_have_or_no_page_has_is_no_origin_of_the_settings(origin: str) -> None:
    with pytest.raises(ValidationError, match="an origin is"):
        EdgeSettings(cors_origins=origin)  # type: ignore[arg-type]  # pydantic reads text
