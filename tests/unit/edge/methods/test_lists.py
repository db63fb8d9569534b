"""A lister's answer is read with care: its worker may have been taken over."""

from __future__ import annotations

import pytest

from mcpfleet.edge.methods.lists import _read
from tests.kit.cost import cost

ENTRY = b'{"uri":"test://a","name":"a"}'


@pytest.mark.rule("T31")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"null", id="null"),
        pytest.param(b"{}", id="no resources"),
        pytest.param(b'{"resources":{}}', id="resources that are no list"),
        pytest.param(b'{"resources":[1]}', id="an entry that is no object"),
        pytest.param(b'{"resources":[{"uri":"test://a"}]}', id="an entry without a name"),
        pytest.param(b'{"resources":[%b],"nextCursor":1}' % ENTRY, id="a cursor that is no text"),
        pytest.param(b'{"resources":[%b]}' % b",".join([b"[]"] * 2_000_000), id="more values than are read"),
    ],
)
def test_what_is_no_answer_of_a_lister_is_none(body: bytes) -> None:
    assert _read(body) is None
    assert cost(lambda: _read(body)) < 5


def test_a_listers_answer_is_its_resources_and_where_they_go_on() -> None:
    entry = {"uri": "test://a", "name": "a"}
    assert _read(b'{"resources":[%b],"nextCursor":"b"}' % ENTRY) == ([entry], "b")
    assert _read(b'{"resources":[]}') == ([], None)
