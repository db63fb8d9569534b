"""Tokens that are listed in a file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpfleet.authorization.static import StaticVerifier, digest
from mcpfleet.authorization.verifier import CredentialRefused
from mcpfleet.contracts.principal import Principal
from mcpfleet.process.errors import ConfigurationError

RESOURCE = "https://mcp.example.com/mcp"
TOML = f"""
[[tokens]]
token = "secret-of-ann"
subject = "ann"
client = "app"
tenant = "acme"
scopes = ["read"]
audience = "{RESOURCE}/"
expires = 2030-01-01T00:00:00Z

[[tokens]]
sha256 = "{digest("secret-of-bob")}"
subject = "bob"
audience = ["mcp"]
issued = 1000
"""


@pytest.mark.rule("M61")
async def test_a_listed_token_is_its_entry_for_its_audience_alone() -> None:
    static = StaticVerifier(TOML)
    verified = await static.verify("secret-of-ann", "mcp", RESOURCE)
    assert verified.principal == Principal(subject="ann", client="app", tenant="acme", scopes=("read",))
    assert verified.expires == 1_893_456_000
    with pytest.raises(CredentialRefused, match="audience"):
        await static.verify("secret-of-ann", "mcp", "https://mcp.example.com/other")


async def test_a_token_may_be_listed_by_its_digest_and_an_audience_by_the_endpoints_name() -> None:
    verified = await StaticVerifier(TOML).verify("secret-of-bob", "mcp", "http://anywhere/mcp")
    assert (verified.principal, verified.expires, verified.issued) == (Principal(subject="bob"), None, 1000)


async def test_json_says_the_same() -> None:
    text = json.dumps({"tokens": [{"token": "t", "subject": "ann", "audience": "mcp"}]})
    assert (await StaticVerifier(text).verify("t", "mcp", RESOURCE)).principal.subject == "ann"


async def test_what_is_not_listed_admits_nobody() -> None:
    with pytest.raises(CredentialRefused, match="MCPFLEET_TOKENS_FILE"):
        await StaticVerifier(TOML).verify(digest("secret-of-bob"), "mcp", RESOURCE)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("secret-of-ann", "neither JSON nor TOML"),
        ('{"tokens": "secret-of-ann"}', "tokens"),
        ('{"tokens": []}', "tokens"),
        ('{"tokens": [{"token": "secret-of-ann", "subject": "ann"}]}', "audience"),
        ('{"tokens": [{"token": "secret-of-ann", "audience": "mcp"}]}', "subject"),
        ('{"tokens": [{"subject": "ann", "audience": "mcp"}]}', "token"),
        ('{"tokens": [{"token": "secret-of-ann", "subject": "a", "audience": "mcp", "scope": "x"}]}', "scope"),
    ],
)
def test_a_bad_file_is_told_without_a_token(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as raised:
        StaticVerifier(text)
    problems: Any = raised.value.problems
    assert all("MCPFLEET_TOKENS_FILE" in problem for problem in problems)
    assert "secret-of-ann" not in str(problems)
