"""Group 1, HTTP/1.1 alone: where a request begins and ends, so that no two readers see two different ones."""

from __future__ import annotations

from typing import Any

from tests.vectors.making import ABSENT, TEXT, Group, Text

_HEAD = "POST /other HTTP/1.1\r\nHost: localhost\r\n"
_READ = (
    "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Accept: application/json, text/event-stream\r\n"
)
_CHUNKED = f"{_READ}Transfer-Encoding: chunked\r\n"


def _sent(head: str, body: str = "") -> str:
    return f"{head}\r\n{body}"


def _length(value: str, body: str = "hello") -> str:
    return _sent(f"{_READ}Content-Length: {value}\r\n", body)


def _coding(value: str) -> str:
    return _sent(f"{_HEAD}Transfer-Encoding: {value}\r\n", "0\r\n\r\n")


def _line(line: str) -> str:
    return _sent(f"{line}\r\nHost: localhost\r\n")


def _field(line: str) -> str:
    return _sent(f"{_HEAD}{line}\r\n")


def _chunks(text: str) -> str:
    return _sent(_CHUNKED, text)


SOUND: dict[str, str] = {
    "no body": _sent(_HEAD),
    "no space behind a colon": _field("X-Any:1"),
    "a value of nothing": _field("X-Any:"),
    "a tab and bytes beyond ASCII in a value": _field("X-Any: a\tb\u00e9"),
    "every character that a name may have": _field("!#$%&'*+-.^_`|~0Aa: 1"),
    "the Host in another case": _sent("POST /other HTTP/1.1\r\nhOST: localhost\r\n"),
    "a whole URL of the Host": _line("POST http://LOCALHOST/other HTTP/1.1"),
    "a method that nobody knows": _line("BREW /other HTTP/1.1"),
    "OPTIONS of the whole server": _line("OPTIONS * HTTP/1.1"),
}
"""Sound requests for what is not there, behind each of which another one is answered."""

BODIES: dict[str, str] = {
    "a length": _length("5"),
    "a length with spaces around": _length(" \t5\t "),
    "a length with zeros before": _length("005"),
    "chunks": _chunks("5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n"),
    "chunks in capital letters": _sent(f"{_READ}Transfer-Encoding: Chunked\r\n", "0\r\n\r\n"),
    "a chunk's size with zeros before": _chunks("0005\r\nhello\r\n00\r\n\r\n"),
    "a chunk with an extension": _chunks('5;a=b;c="d e"\r\nhello\r\n0;x\r\n\r\n'),
    "a chunk that has line ends in it": _chunks("9\r\n\r\nhi0\r\n\r\n\r\n0\r\n\r\n"),
    "fields behind the last chunk": _chunks("0\r\nX-Any: 1\r\nContent-Length: 7\r\n\r\n"),
}
"""Sound bodies, read to their ends before they turn out to be no JSON."""

WISHES: dict[str, tuple[str, int]] = {
    "HTTP/2": (_field("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk"), 404),
    "HTTP/2 of an endpoint": (
        _sent(
            "GET /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            "HTTP2-Settings: AAMAAABk\r\n"
        ),
        405,
    ),
    "a WebSocket": (
        _sent(
            "GET /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        ),
        405,
    ),
}
"""Wishes for another protocol, which a proxy may pass on without a look at what follows."""

REFUSED: dict[str, str] = {
    "a length and chunks": _sent(f"{_HEAD}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    "chunks and a length": _sent(f"{_CHUNKED}Content-Length: 5\r\n", "0\r\n\r\n"),
    "a length and no chunks": _sent(f"{_HEAD}Content-Length: 5\r\nTransfer-Encoding: identity\r\n", "hello"),
    "two lengths": _sent(f"{_HEAD}Content-Length: 5\r\nContent-Length: 6\r\n", "hello"),
    "one length twice": _sent(f"{_HEAD}Content-Length: 5\r\ncontent-length: 5\r\n", "hello"),
    "a list of lengths": _length("5, 5"),
    "a length with a sign": _length("+5"),
    "a length below nothing": _length("-5"),
    "a length in another base": _length("0x5"),
    "a length with a fraction": _length("5.0"),
    "a length with a space in it": _length("1 0", "0123456789"),
    "a length with an underscore": _length("1_0", "0123456789"),
    "a length of nothing": _length("", ""),
    "a length in Arabic digits": _length("\u0665"),
    "a length that no machine has": _length("9" * 40),
    "a length behind a vertical tab": _length("\v5"),
    "chunks behind a vertical tab": _coding("\vchunked"),
    "a name with a space behind": _field("Transfer-Encoding : chunked"),
    "a name with a tab behind": _field("Content-Length\t: 5"),
    "a name with a space in it": _field("X Any: 1"),
    "a name of nothing": _field(": 1"),
    "a line without a colon": _field("chunked"),
    "a folded line": _field("X-Any: 1\r\n Transfer-Encoding: chunked"),
    "a line folded by a tab": _field("X-Any: 1\r\n\tContent-Length: 5"),
    "a space before the first field": _sent("POST /other HTTP/1.1\r\n Host: localhost\r\nHost: localhost\r\n"),
    "a NUL in a value": _field("X-Any: a\0b"),
    "a NUL in a name": _field("X\0Any: 1"),
    "a control character in a value": _field("X-Any: a\x01b"),
    "a DEL in a value": _field("X-Any: a\x7fb"),
    "a form feed around a value": _field("X-Any: \f1\f"),
    "a bare carriage return in a value": _field("X-Any: a\rContent-Length: 5"),
    "a bare line feed in a value": _field("X-Any: a\nContent-Length: 5"),
    "bare line feeds": "POST /other HTTP/1.1\nHost: localhost\nContent-Length: 5\n\nhello",
    "a bare line feed behind the first line": "POST /other HTTP/1.1\nHost: localhost\r\n\r\n",
    "a bare line feed at the end of the head": "POST /other HTTP/1.1\r\nHost: localhost\r\n\n",
    "a carriage return too many": _field("X-Any: 1\r"),
    "a line end before the request": f"\r\n{_sent(_HEAD)}",
    "a space before the request": f" {_sent(_HEAD)}",
    "no version": _line("POST /other"),
    "a version without a minor one": _line("POST /other HTTP/1"),
    "a version with two digits": _line("POST /other HTTP/1.10"),
    "a version in small letters": _line("POST /other http/1.1"),
    "another protocol": _line("POST /other SIP/2.0"),
    "two spaces behind the method": _line("POST  /other HTTP/1.1"),
    "two spaces behind the target": _line("POST /other  HTTP/1.1"),
    "a space behind the version": _line("POST /other HTTP/1.1 "),
    "a tab in the first line": _line("POST\t/other HTTP/1.1"),
    "a tab in the target": _line("POST /ot\ther HTTP/1.1"),
    "a space in the target": _line("POST /ot her HTTP/1.1"),
    "a byte beyond ASCII in the target": _line("POST /\u00e9 HTTP/1.1"),
    "no target": _line("POST HTTP/1.1"),
    "a method in small letters": _line("post /other HTTP/1.1"),
    "a method with a small letter": _line("Post /other HTTP/1.1"),
    "a method that is no word": _line("PO(ST /other HTTP/1.1"),
    "a path without a slash": _line("POST other HTTP/1.1"),
    "a star that is no OPTIONS": _line("POST * HTTP/1.1"),
    "a host as the target": _line("CONNECT localhost:80 HTTP/1.1"),
    "a URL of another host": _line("POST http://evil.example.com/other HTTP/1.1"),
    "a URL of another port": _line("POST http://localhost:81/other HTTP/1.1"),
    "a URL with a user": _line("POST http://a@localhost/other HTTP/1.1"),
    "a URL without a host": _line("POST http:///other HTTP/1.1"),
    "a URL that is no page": _line("POST file://localhost/other HTTP/1.1"),
    "no Host": _sent("POST /other HTTP/1.1\r\n"),
    "two Hosts": _sent(f"{_HEAD}Host: localhost\r\n"),
    "chunks of HTTP/1.0": _sent(
        "POST /other HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"
    ),
    "a chunk's size with a sign": _chunks("+5\r\nhello\r\n0\r\n\r\n"),
    "a chunk's size below nothing": _chunks("-5\r\nhello\r\n0\r\n\r\n"),
    "a chunk's size with a prefix": _chunks("0x5\r\nhello\r\n0\r\n\r\n"),
    "a chunk's size of nothing": _chunks("\r\nhello\r\n0\r\n\r\n"),
    "a chunk's size that is no number": _chunks("g\r\nhello\r\n0\r\n\r\n"),
    "a chunk's size with a space before": _chunks(" 5\r\nhello\r\n0\r\n\r\n"),
    "a chunk's size with a space behind": _chunks("5 \r\nhello\r\n0\r\n\r\n"),
    "a chunk's size with an underscore": _chunks("1_0\r\n0123456789abcdef\r\n0\r\n\r\n"),
    "a chunk's size that no machine has": _chunks(f"{'f' * 17}\r\nhello\r\n0\r\n\r\n"),
    "a chunk's size that ends by a bare line feed": _chunks("5\nhello\r\n0\r\n\r\n"),
    "a chunk's size with a bare carriage return": _chunks("5\rX\nhello\r\n0\r\n\r\n"),
    "a chunk's extension with a bare line feed": _chunks("5;a\nb\r\nhello\r\n0\r\n\r\n"),
    "a chunk's extension with a bare carriage return": _chunks("5;a\rb\r\nhello\r\n0\r\n\r\n"),
    "a chunk's extension with a NUL": _chunks("5;a\0\r\nhello\r\n0\r\n\r\n"),
    "a chunk's extension without an end": _chunks(f"5;{'a' * 2_000}"),
    "a long extension of a chunk": _chunks(f"5;{'a' * 2_000}\r\nhello\r\n0\r\n\r\n"),
    "a chunk without a line end": _chunks("5\r\nhello0\r\n\r\n"),
    "a chunk that ends by a bare line feed": _chunks("5\r\nhello\n0\r\n\r\n"),
    "a chunk that is longer than it says": _chunks("5\r\nhello!\r\n0\r\n\r\n"),
    "a last chunk that ends by a bare line feed": _chunks("0\r\n\n"),
    "a folded line behind the last chunk": _chunks("0\r\nX-Any: 1\r\n 2\r\n\r\n"),
    "a line without a colon behind the last chunk": _chunks("0\r\nhello\r\n\r\n"),
    "a bare line feed behind the last chunk": _chunks("0\r\nX-Any: 1\nX-Other: 2\r\n\r\n"),
}

CODINGS: dict[str, str] = {
    "chunks within another coding": _coding("gzip, chunked"),
    "another coding within chunks": _coding("chunked, identity"),
    "chunks within chunks": _coding("chunked, chunked"),
    "chunks twice": _sent(f"{_CHUNKED}Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    "no coding by its name": _coding("identity"),
    "a coding of nothing": _coding(""),
    "a coding that resembles chunks": _coding("xchunked"),
    "chunks in quotes": _coding('"chunked"'),
    "chunks with a parameter": _coding("chunked;a=b"),
    "chunks with a comma": _coding("chunked,"),
}
"""Codings that nobody here undoes."""

UNKNOWN = {"jsonrpc": "2.0", "id": ABSENT, "error": {"code": -32600, "message": TEXT}}
NO_JSON = {"jsonrpc": "2.0", "id": ABSENT, "error": {"code": -32700, "message": TEXT}}
VERSIONS = ("0.9", "1.2", "2.0", "3.0", "9.9")


def _vector(
    name: str, sent: Text, status: int, *, ends: bool = True, rules: str = "T30 T9", body: Any = None
) -> dict[str, Any]:
    expected = {"status": status, "body": body, "ends": ends}
    return {"name": name, "rules": rules.split(), "http": ["1.1"], "request": {"bytes": sent}, "expect": expected}


GROUP = Group(
    "framing",
    "Where a request of HTTP/1.1 begins and ends. A request that two readers could read as two different ones is "
    "refused, and its connection ends: nothing behind it is a request.",
    [
        *(_vector(f"sound: {name}", sent, 404, ends=False, body=UNKNOWN) for name, sent in SOUND.items()),
        *(_vector(f"a sound body: {name}", sent, 400, ends=False, body=NO_JSON) for name, sent in BODIES.items()),
        *(
            _vector(f"no upgrade: {name}", sent, status, ends=False, rules="T32", body=UNKNOWN)
            for name, (sent, status) in WISHES.items()
        ),
        *(_vector(name, sent, 400) for name, sent in REFUSED.items()),
        *(_vector(name, sent, 501) for name, sent in CODINGS.items()),
        *(_vector(f"HTTP/{each}", _line(f"POST /other HTTP/{each}"), 505) for each in VERSIONS),
        _vector("the preface of HTTP/2 with a field", "PRI * HTTP/2.0\r\nHost: localhost\r\n\r\nSM\r\n\r\n", 505),
        _vector(
            "the preface of HTTP/2 behind a request",
            f"{_sent(_HEAD)}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            404,
            body=UNKNOWN,
        ),
        _vector(
            "an endless field behind the last chunk",
            {"join": [_chunks("0\r\nX-Any: "), {"repeat": ["a", 70_000]}]},
            431,
        ),
        _vector(
            "chunks of a byte, without number",
            {"join": [_sent(_CHUNKED), {"repeat": ["1\r\n \r\n", 5_000]}, "0\r\n\r\n"]},
            400,
        ),
        _vector(
            "HTTP/1.0, which ends with its answer",
            _sent("POST /other HTTP/1.0\r\nHost: localhost\r\n"),
            404,
            body=UNKNOWN,
        ),
        _vector(
            "a client that wants the end",
            _field("Connection: close"),
            404,
            body=UNKNOWN,
        ),
    ],
)
