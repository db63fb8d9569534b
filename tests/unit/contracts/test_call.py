"""The input of a handler, and the subjects of a call and its frames."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpfleet.contracts import call
from mcpfleet.contracts.call import CallBody, FrameKind
from mcpfleet.contracts.principal import Principal

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.rule("D18")
@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(), JSON))
def test_arguments_are_read_as_they_were_written(arguments: dict[str, Any]) -> None:
    read = CallBody.read(CallBody(arguments).write())
    assert read.arguments == arguments
    assert read == CallBody(arguments)


@pytest.mark.rule("D18")
def test_integers_stay_exact() -> None:
    assert CallBody.read(CallBody({"a": 2**70, "b": -(2**53) - 1}).write()).arguments == {"a": 2**70, "b": -(2**53) - 1}


@pytest.mark.parametrize(
    "principal",
    [
        pytest.param(Principal(subject="ann", client="cli", tenant="acme", scopes=("read",)), id="all"),
        pytest.param(Principal(subject="ann"), id="a subject alone"),
        pytest.param(Principal(client="cli", scopes=("read",)), id="a client that speaks for nobody"),
        pytest.param(Principal(tenant="acme"), id="a tenant alone"),
        pytest.param(Principal(), id="nobody"),
    ],
)
def test_a_handler_sees_the_principal_that_was_admitted(principal: Principal) -> None:
    assert CallBody.read(CallBody({}, principal=principal).write()).principal == principal


@pytest.mark.rule("M25")
def test_a_handler_sees_what_the_client_said_in_this_request() -> None:
    body = CallBody({}, capabilities={"sampling": {}}, client={"name": "inspector", "version": "1"})
    assert CallBody.read(body.write()) == body


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{}", b'{"arguments":[]}', b'{"arguments":{}', b'{"arguments":{},"principal":{"scopes":1}}'],
)
def test_what_is_no_call_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        CallBody.read(body)


def test_an_end_is_followed_by_nothing() -> None:
    assert {kind for kind in FrameKind if kind.is_end} == set(FrameKind) - {
        FrameKind.ACCEPTED,
        FrameKind.PROGRESS,
        FrameKind.LOG,
    }


def test_an_edge_hears_all_that_is_addressed_to_it_by_one_subscription() -> None:
    """Frames, refusals and `alive` keep their order only within one."""
    stem = call.edge_subjects("e1").removesuffix(">")
    addressed = [
        call.frame_subject("e1", "library", "7", FrameKind.RESULT),
        call.reply_subject("e1", "7"),
        call.ALIVE.subject_for(edge="e1", pool="library"),
    ]
    assert all(subject.startswith(stem) for subject in addressed)
