"""The settings of authorization, and the ones that it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from mcpfleet.authorization.settings import SIGNATURES, AuthorizationSettings


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ("static", "MCPFLEET_TOKENS_FILE"),
        ("jwt", "MCPFLEET_ISSUER"),
        ("introspection", "MCPFLEET_INTROSPECTION_URL"),
        ("custom", "MCPFLEET_AUTHORIZER"),
    ],
)
def test_a_mode_names_the_setting_that_it_lacks(mode: Any, name: str) -> None:
    with pytest.raises(ValidationError, match=name):
        AuthorizationSettings(authorization=mode)


@pytest.mark.parametrize("algorithm", ["none", "HS256", "RS1"])
def test_no_token_is_taken_that_anybody_could_have_signed(algorithm: str) -> None:
    with pytest.raises(ValidationError, match="is none of"):
        AuthorizationSettings(jwt_algorithms=(algorithm,))


def test_the_algorithms_are_asymmetric() -> None:
    assert {name[:2] for name in SIGNATURES} == {"RS", "PS", "ES", "Ed"}


@pytest.mark.parametrize(
    ("url", "is_fine"),
    [
        ("https://auth.example.com/realm", True),
        ("http://127.0.0.1:8080", True),
        ("http://localhost:8080", True),
        ("http://auth.example.com", False),
        ("https://user@auth.example.com", False),
        ("https://auth.example.com/?tenant=a", False),
        ("auth.example.com", False),
    ],
)
def test_an_issuer_is_reached_by_a_way_that_nobody_can_change(url: str, is_fine: bool) -> None:
    if is_fine:
        assert AuthorizationSettings(issuer=url).issuer == url
    else:
        with pytest.raises(ValidationError):
            AuthorizationSettings(issuer=url)


def test_the_defaults_are_as_documented() -> None:
    settings = AuthorizationSettings()
    assert (settings.admission_lasts, settings.refusal_lasts, settings.authority_hint) == (10, 1, 2)
    assert settings.admission_lasts_heard == 300
    assert (settings.authorization_timeout, settings.revocation_kept) == (5, 7 * 86_400)
    assert (settings.jwks_lasts, settings.jwks_stale, settings.jwks_cooldown) == (5, 86_400, 10)
