"""The principal that a credential's claims stand for."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mcpfleet.authorization.rules import admit, admit_anonymous, expanded, scopes_of, verified_by
from mcpfleet.authorization.verifier import CredentialRefused, Verified
from mcpfleet.contracts.principal import Principal

RESOURCE = "https://mcp.example.com/mcp"
GOOD = {"aud": RESOURCE, "sub": "ann", "client_id": "app", "exp": 200, "iat": 100, "scope": "read write"}
ANN = Verified(Principal(subject="ann"), expires=200.0, issued=100.0)


def read(**changes: Any) -> Verified:
    claims = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    return verified_by(claims, resource=RESOURCE, tenant_claim="org")


def test_mode_none_admits_everyone_as_nobody_in_particular() -> None:
    admitted = admit_anonymous(10.0)
    assert admitted.principal == Principal()
    assert admitted.principal.partition is None
    assert (admitted.lasts, admitted.reason) == (10.0, None)


@pytest.mark.rule("D10")
def test_a_principal_is_subject_client_tenant_and_scopes() -> None:
    verified = read(org="acme")
    assert verified.principal == Principal(subject="ann", client="app", tenant="acme", scopes=("read", "write"))
    assert (verified.expires, verified.issued) == (200, 100)


@pytest.mark.parametrize(
    ("changes", "principal"),
    [
        ({"client_id": None, "azp": "web"}, Principal(subject="ann", client="web", scopes=("read", "write"))),
        ({"sub": None}, Principal(subject="app", client="app", scopes=("read", "write"))),
        ({"scope": None, "scp": ["a", "b c"]}, Principal(subject="ann", client="app", scopes=("a", "b", "c"))),
        ({"scope": None}, Principal(subject="ann", client="app")),
    ],
)
def test_claims_are_named_as_issuers_name_them(changes: dict[str, Any], principal: Principal) -> None:
    assert read(**changes).principal == principal


@pytest.mark.rule("M61")
@pytest.mark.parametrize("audience", [RESOURCE, f"{RESOURCE}/", ["https://other.example", f"{RESOURCE}/"]])
def test_the_audience_matches_with_and_without_a_slash(audience: Any) -> None:
    assert read(aud=audience).principal.subject == "ann"


@pytest.mark.rule("M61")
@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "https://mcp.example.com"},
        {"aud": f"{RESOURCE}/more"},
        {"aud": None},
        {"aud": []},
        {"aud": 7},
        {"exp": None},
        {"exp": "soon"},
        {"exp": True},
        {"sub": None, "client_id": None},
        {"sub": 7},
        {"sub": "a" * 2000},
        {"sub": "half a pair: \ud800"},
        {"client_id": "\udfff"},
        {"org": "\ud800"},
        {"exp": 10**400},
        {"exp": math.nan},
        {"iat": math.inf},
        {"iat": 10**400},
    ],
    ids=ascii,
)
def test_a_token_for_others_or_without_an_end_admits_nobody(changes: dict[str, Any]) -> None:
    with pytest.raises(CredentialRefused):
        read(**changes)


def test_a_scope_that_no_header_can_carry_is_no_scope() -> None:
    assert scopes_of({"scope": 'a b"c d\\e f\ng'}) == ("a",)


@pytest.mark.rule("M64")
def test_scopes_bring_others_with_them_to_any_depth() -> None:
    implies = {"admin": ("write",), "write": ("read",), "read": ("admin",)}
    assert expanded(("admin",), implies) == ("admin", "read", "write")
    assert expanded(("other",), implies) == ("other",)


def test_a_verdict_ends_with_its_credential() -> None:
    assert admit(ANN, at=195.0, lasts=10.0, revoked=None).lasts == 5.0
    assert admit(ANN, at=100.0, lasts=10.0, revoked=None).lasts == 10.0
    with pytest.raises(CredentialRefused, match="expired"):
        admit(ANN, at=200.0, lasts=10.0, revoked=None)


@pytest.mark.rule("S2")
def test_an_admission_says_how_long_its_credential_is_good() -> None:
    """One that has no end is good for a day, which is as long as anything goes by it."""
    assert admit(ANN, at=100.0, lasts=10.0, revoked=None).good_for == 100.0
    assert admit(Verified(ANN.principal), at=100.0, lasts=10.0, revoked=None).good_for == 86_400.0


@pytest.mark.parametrize(("issued", "is_refused"), [(99.0, True), (100.0, True), (101.0, False), (None, True)])
def test_what_was_issued_before_a_revocation_is_refused(issued: float | None, is_refused: bool) -> None:
    """Where nobody says when it was issued, it is, for as long as the revocation is kept."""
    verified = Verified(Principal(subject="ann"), issued=issued)
    if is_refused:
        with pytest.raises(CredentialRefused, match="revoked"):
            admit(verified, at=150.0, lasts=10.0, revoked=100.0)
    else:
        assert admit(verified, at=150.0, lasts=10.0, revoked=100.0).principal == Principal(subject="ann")
