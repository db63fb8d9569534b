"""The Authorization header: the credential that is read from it, and the little that is ever shown."""

from __future__ import annotations

import pytest

from mcpfleet.edge.transport.request_head import Credential, NotBearer, read_credential
from mcpfleet.wire.headers import Headers


def read(*values: bytes) -> Credential | None:
    return read_credential(Headers([(b"authorization", value) for value in values]))


@pytest.mark.parametrize("value", [b"Bearer a.b-c_~+/==", b"bearer a.b-c_~+/==", b" BEARER   a.b-c_~+/== "])
def test_a_bearer_token(value: bytes) -> None:
    credential = read(value)
    assert credential is not None
    assert credential.reveal() == "a.b-c_~+/=="


def test_no_header_is_no_credential() -> None:
    assert read() is None


@pytest.mark.rule("T11")
@pytest.mark.parametrize(
    "values",
    [
        (b"",),
        (b"Bearer",),
        (b"Bearer ",),
        (b"Bearer a b",),
        (b"Bearer a,b",),
        (b"Bearer =a",),
        (b"Bearer a\xff",),
        (b"Basic dXNlcjpwYXNz",),
        (b"a.b.c",),
        (b"Bearera",),
        (b"Bearer a", b"Bearer a"),
        (b"Bearer a, Bearer b",),
    ],
)
def test_what_is_repeated_or_malformed_is_no_credential(values: tuple[bytes, ...]) -> None:
    with pytest.raises(NotBearer) as raised:
        read(*values)
    assert "a" not in str(raised.value)


def test_invariant_9_a_credential_prints_without_its_token() -> None:
    credential = read(b"Bearer very-secret")
    assert "very-secret" not in f"{credential!r} {credential}"
    assert credential is not None
    assert b"very-secret" not in credential.digest
