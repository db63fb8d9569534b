"""Each row of the error table that exists: one constructor, one status, one code."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from mcpfleet.wire import errors
from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.protocol import LONGEST_ECHO, SERVED
from mcpfleet.wire.reply import error


@pytest.mark.parametrize(
    ("rejection", "status", "code"),
    [
        pytest.param(errors.not_json(), 400, -32700, id="no JSON"),
        pytest.param(errors.bad_envelope("a batch"), 400, -32600, id="bad envelope"),
        pytest.param(errors.bad_params("unknown tool"), 400, -32602, id="bad parameters"),
        pytest.param(errors.unknown_method(), 404, -32601, id="unknown method"),
        pytest.param(errors.header_mismatch("Mcp-Name"), 400, -32020, id="header mismatch"),
        pytest.param(errors.missing_capabilities(["sampling"]), 400, -32021, id="missing capability"),
        pytest.param(errors.unsupported_version("2025-11-25"), 400, -32022, id="unsupported version"),
        pytest.param(errors.unauthorized(), 401, -32603, id="unauthorized"),
        pytest.param(errors.no_capacity(2), 503, -32603, id="no capacity"),
        pytest.param(errors.not_answered("the catalog"), 504, -32603, id="a service did not answer"),
        pytest.param(errors.internal("4bf9"), 500, -32603, id="a mistake of ours"),
    ],
)
def test_the_error_table(rejection: Rejection, status: int, code: int) -> None:
    assert (rejection.status, rejection.code) == (status, code)
    assert rejection.message


@pytest.mark.rule("M24")
def test_no_constructor_uses_a_code_that_the_modern_revision_forbids() -> None:
    """-32000 to -32019, -32002 and -32042 are never sent (D4)."""
    made = [
        errors.not_json(),
        errors.unauthorized(),
        errors.no_capacity(1),
        errors.not_answered("x"),
        errors.internal("x"),
    ]
    assert not {rejection.code for rejection in made} & {*range(-32019, -31999), -32042}


@pytest.mark.rule("M30")
def test_an_unsupported_version_is_told_what_is_served_and_what_it_asked_for() -> None:
    assert errors.unsupported_version("2025-11-25").data == {"supported": list(SERVED), "requested": "2025-11-25"}


def test_an_unsupported_version_that_was_never_named_is_not_repeated() -> None:
    assert errors.unsupported_version(None).data == {"supported": list(SERVED)}


@pytest.mark.rule("T16")
def test_the_requested_version_is_repeated_up_to_a_bound() -> None:
    data = errors.unsupported_version("9" * 10_000).data
    assert data["requested"] == "9" * LONGEST_ECHO


def test_only_missing_capabilities_are_required_with_their_modes() -> None:
    rejection = errors.missing_capabilities(["sampling", "elicitation.form", "elicitation.url"])
    assert rejection.data == {"requiredCapabilities": {"sampling": {}, "elicitation": {"form": {}, "url": {}}}}
    assert "sampling" in rejection.message


def test_a_capability_and_its_mode_are_one_requirement() -> None:
    for asks in (["sampling", "sampling.tools"], ["sampling.tools", "sampling"]):
        assert errors.missing_capabilities(asks).data == {"requiredCapabilities": {"sampling": {"tools": {}}}}


@pytest.mark.rule("D4")
def test_no_capacity_tells_the_delay_in_a_header_and_in_the_body() -> None:
    """Both official clients leave the header unread."""
    rejection = errors.no_capacity(3)
    assert rejection.headers == {"Retry-After": "3"}
    assert rejection.data == {"retryAfter": 3}


@pytest.mark.rule("D10")
def test_unauthorized_carries_a_challenge() -> None:
    assert errors.unauthorized().headers["WWW-Authenticate"].startswith("Bearer")


def test_what_ended_before_anything_ran_says_so() -> None:
    assert "nothing was run" in errors.no_capacity(1).message
    assert "nothing was run" in errors.not_answered("the catalog").message


@pytest.mark.rule("M2")
def test_an_error_carries_the_id_as_it_came_or_none() -> None:
    assert json.loads(error("1", errors.not_json()))["id"] == "1"
    assert json.loads(error(1, errors.not_json()))["id"] == 1
    assert "id" not in json.loads(error(None, errors.not_json()))


def test_an_error_without_data_has_no_such_member() -> None:
    assert json.loads(error(1, errors.unknown_method())) == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {"code": -32601, "message": "Method not found"},
    }


@contextlib.contextmanager
def some_block() -> Iterator[None]:
    yield


def test_a_rejection_passes_through_a_context_manager() -> None:
    """`contextlib`, and anyio's `fail_after` with it, sets the traceback of what passes; a frozen error lets nobody."""
    with pytest.raises(Rejection), some_block():
        raise errors.not_json()
