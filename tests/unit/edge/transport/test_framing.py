"""The strict reader of HTTP/1.1 reads what it lets through as h11 does, however it arrives; vectors say the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpfleet.edge.transport.hypercorn.framing import LONGEST_HEAD, PREFACE, StrictConnection
from tests.fuzz.changes import changed
from tests.kit.cost import cost

LIMIT = LONGEST_HEAD
HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
Read = tuple[list[tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]], int | None]


def strict() -> h11.Connection:
    return StrictConnection(LIMIT, is_first=False)


def lenient() -> h11.Connection:
    return h11.Connection(h11.SERVER, max_incomplete_event_size=LIMIT)


def read(make: Callable[[], h11.Connection], parts: Iterable[bytes]) -> Read:
    """The requests of a connection that answers each, with their bodies, and the status that refused what follows."""
    connection, requests, body = make(), [], b""
    try:
        for part in parts:
            connection.receive_data(part)
            while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Request):
                    request, body = event, b""
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    requests.append((request.method, request.target, list(request.headers), body))
                    # No success: h11 reads nothing more behind a CONNECT that was granted.
                    connection.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
                    connection.send(h11.EndOfMessage())
                    if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                        return requests, None
                    connection.start_next_cycle()
    except h11.RemoteProtocolError as error:
        return requests, error.error_status_hint
    return requests, None


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """The same bytes in pieces, none of which is empty."""
    marks = [0, *sorted({place % len(data) for place in places} - {0}), len(data)]
    return [data[start:end] for start, end in pairwise(marks)]


@pytest.mark.rule("T30")
@settings(max_examples=300, deadline=None)
@given(changed().filter(bool))
def test_what_is_let_through_is_what_h11_reads(data: bytes) -> None:
    requests, _ = read(strict, [data])
    assert read(lenient, [data])[0][: len(requests)] == requests


@pytest.mark.rule("T30")
@settings(max_examples=300, deadline=None)
@given(changed().filter(bool), st.lists(st.integers(0, 5_000), max_size=12))
def test_a_request_is_read_alike_in_whatever_pieces_it_arrives(data: bytes, places: list[int]) -> None:
    assert read(strict, cut(data, places)) == read(strict, [data])


CHUNKS = [
    b"5\r\nhello\r\n0\r\n\r\n",
    b"5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nX: 1\r\n\r\n",
    b"5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"5\r\nhello0\r\n\r\n",
    b"5\r\nhello\n0\r\n\r\n",
    b"0\r\n\n",
    b"0\r\r\n\r\n",
    b"0\r\nX: 1\n\r\n",
]


@pytest.mark.rule("T30")
@pytest.mark.parametrize("chunks", CHUNKS)
def test_chunks_are_read_alike_byte_by_byte(chunks: bytes) -> None:
    data = CHUNKED + chunks
    assert read(strict, [bytes([byte]) for byte in data]) == read(strict, [data])


def test_all_chunks_that_have_arrived_are_one_part() -> None:
    connection = strict()
    connection.receive_data(CHUNKED + b"1\r\na\r\n" * 1_000 + b"5\r\nhe")
    connection.next_event()
    assert connection.next_event() == h11.Data(data=b"a" * 1_000 + b"he")


def test_http_2_by_prior_knowledge_is_seen_at_the_first_request_alone() -> None:
    first = StrictConnection(LIMIT, is_first=True)
    for byte in PREFACE:
        assert first.their_state is h11.IDLE
        first.receive_data(bytes([byte]))
        event = first.next_event()
    assert isinstance(event, h11.Request)
    assert event.http_version == b"2.0"
    assert read(strict, [PREFACE]) == ([], 505)


@pytest.mark.parametrize(
    "head",
    [
        b"a:b\r\n" * 13_000,
        b"a:" + b"b \t" * 21_000,
        b"a" * 65_000,
        b"a:" + b" " * 65_000,
        b"a:b\r\n" * 12_000 + b"\0",
        b"a:" + b"b \t" * 21_000 + b"\0",
        b"Content-Length:5\r\n" * 3_500,
    ],
)
def test_no_head_takes_long_to_read(head: bytes) -> None:
    assert cost(lambda: read(strict, [HEAD + head + b"\r\n\r\n"])) < 2


def test_a_head_over_the_limit_is_refused_also_where_it_ends_in_one_piece() -> None:
    assert read(strict, [HEAD + b"a:" + b"b" * LIMIT + b"\r\n\r\n"]) == ([], 431)


@pytest.mark.parametrize(("fields", "status"), [(510, None), (512, 431)])
def test_a_head_has_so_many_fields_at_most(fields: int, status: int | None) -> None:
    assert read(strict, [HEAD + b"a: b\r\n" * fields + b"\r\n"])[1] == status


@pytest.mark.rule("T30")
@pytest.mark.parametrize(
    ("chunks", "status"),
    [
        pytest.param([1] * 4_095, None, id="as many small ones as may be"),
        pytest.param([1] * 5_000, 400, id="more small ones"),
        pytest.param([32] * 50_000, None, id="any number that are not small"),
        pytest.param([4_096 * 32] + [1] * 8_000, None, id="small ones behind a large one"),
    ],
)
def test_small_chunks_are_bounded_since_each_costs_more_than_its_bytes(chunks: list[int], status: int | None) -> None:
    body = b"".join(b"%x\r\n%b\r\n" % (size, b"a" * size) for size in chunks)
    requests, refused = read(strict, cut(CHUNKED + body + b"0\r\n\r\n", range(0, 10_000_000, 60_000)))
    assert refused == status
    assert [len(body) for *_, body in requests] == ([] if status else [sum(chunks)])
