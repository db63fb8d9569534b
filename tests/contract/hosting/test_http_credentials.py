"""The credentials of a source over HTTP: each request carries them, and nothing else gets or shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from mcpfleet.sources.source import Source, Url, Value
from tests.contract.hosting.hosting_harness import hosted_fleet
from tests.contract.hosting.http_source import HttpSource, Received, Reply, http_source
from tests.contract.hosting.test_hosted import call
from tests.contract.hosting.test_http import why_not

CLIENT = {"client_id": Value(text="worker"), "client_secret": Value(text="s3cret-of-the-client")}
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()


def guarded(upstream: HttpSource, auth: Mapping[str, Any], **members: Any) -> Source:
    """A source with a credential."""
    way = Url(url=upstream.url, auth=auth)
    return Source.model_validate({"name": "raw", "way": way, "isolation": "shared", **members})


class Issuer:
    """An authorization server on the server's own origin, as a rule of it: it lets pass what has its newest token."""

    def __init__(self, upstream: HttpSource, expires_in: int = 3600) -> None:
        self.origin = upstream.url.removesuffix("/mcp")
        self.expires_in = expires_in
        self.asked: list[dict[str, list[str]]] = []
        self.tokens: list[str] = []

    def __call__(self, received: Received) -> Reply | None:
        """Answer what belongs to OAuth."""
        metadata = f"{self.origin}/.well-known/oauth-protected-resource/mcp"
        match received.path:
            case "/.well-known/oauth-protected-resource/mcp":
                return Reply({"resource": f"{self.origin}/mcp", "authorization_servers": [self.origin]})
            case "/.well-known/oauth-authorization-server":
                return Reply({
                    "issuer": self.origin, "authorization_endpoint": f"{self.origin}/authorize",
                    "token_endpoint": f"{self.origin}/token", "response_types_supported": ["code"],
                    "grant_types_supported": ["client_credentials"],
                })  # fmt: skip
            case "/token":
                self.asked.append(parse_qs(received.body))
                self.tokens.append(f"token-{len(self.tokens) + 1}-of-the-issuer")
                granted = {"access_token": self.tokens[-1], "token_type": "Bearer", "expires_in": self.expires_in}
                return Reply(granted)
        if not self.tokens or received.headers.get("authorization") != f"Bearer {self.tokens[-1]}":
            return Reply(status=401, headers={"WWW-Authenticate": f'Bearer resource_metadata="{metadata}"'})
        return None


@pytest.mark.rule("B26")
@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ({"kind": "bearer", "token": Value(text="t0ken")}, "authorization", "Bearer t0ken"),
        ({"kind": "headers", "headers": {"X-Key": Value(text="k3y-of-it")}}, "x-key", "k3y-of-it"),
    ],
)
async def test_a_known_credential_is_on_every_request(auth: Any, header: str, value: str) -> None:
    async with http_source("2025") as upstream:
        async with hosted_fleet(guarded(upstream, auth)) as fleet:
            assert "result" in await call(fleet, "echo", {})
        assert {each.headers.get(header) for each in upstream.received} == {value}


@pytest.mark.rule("B26", "B8")
async def test_a_token_is_fetched_with_the_clients_secret_and_anew_where_it_is_refused() -> None:
    async with http_source() as upstream:
        issuer = Issuer(upstream)
        upstream.rule = issuer
        auth = {"kind": "client_credentials", **CLIENT, "scopes": ("crm",), "issuer": issuer.origin}
        async with hosted_fleet(guarded(upstream, auth)) as fleet:
            assert "result" in await call(fleet, "echo", {})
            assert issuer.asked[0]["grant_type"] == ["client_credentials"]
            assert issuer.asked[0]["scope"] == ["crm"]
            assert len(issuer.tokens) == 1
            issuer.tokens.append("another")  # the server forgets the token
            before = len(upstream.asked("tools/call"))
            assert "HTTP 401" in str(await call(fleet, "echo", {}))
            assert len(upstream.asked("tools/call")) == before + 1
            assert "result" in await call(fleet, "echo", {})
            shown = fleet.logs()
        assert not [each for each in (*issuer.tokens, CLIENT["client_secret"].text) if each in shown]


@pytest.mark.rule("B26")
async def test_an_expired_token_is_fetched_before_the_call_is_sent() -> None:
    async with http_source() as upstream:
        issuer = Issuer(upstream, expires_in=1)
        upstream.rule = issuer
        auth = {"kind": "client_credentials", **CLIENT, "issuer": issuer.origin}
        async with hosted_fleet(guarded(upstream, auth)) as fleet:
            while len(issuer.tokens) < 3:
                assert "result" in await call(fleet, "echo", {})
            refused = [each for each in upstream.asked("tools/call") if "authorization" not in each.headers]
            assert not refused


@pytest.mark.rule("B26")
async def test_a_token_is_fetched_with_an_assertion_that_the_clients_key_signs() -> None:
    async with http_source() as upstream:
        issuer = Issuer(upstream)
        upstream.rule = issuer
        key = {"client_id": Value(text="worker"), "private_key": Value(text=PEM)}
        auth = {"kind": "private_key_jwt", **key, "issuer": issuer.origin}
        async with hosted_fleet(guarded(upstream, auth)) as fleet:
            assert "result" in await call(fleet, "echo", {})
        [assertion] = issuer.asked[0]["client_assertion"]
        claims = jwt.decode(assertion, KEY.public_key(), algorithms=["RS256"], audience=issuer.origin)
        assert claims["iss"] == "worker"


@pytest.mark.rule("B26")
async def test_a_clients_secret_goes_to_no_other_issuer_than_the_configured_one() -> None:
    async with http_source() as upstream:
        issuer = Issuer(upstream)
        upstream.rule = issuer
        auth = {"kind": "client_credentials", **CLIENT, "issuer": "https://login.example"}
        assert "no token could be had" in await why_not(guarded(upstream, auth))
        assert not issuer.asked


@pytest.mark.rule("B22", "B26")
def test_a_digest_does_not_depend_on_the_values_of_credentials() -> None:
    digests = {
        Source(name="x", way=Url(url="https://x.example", auth={"kind": "bearer", "token": Value(text=text)})).digest
        for text in ("one", "two")
    }
    assert len(digests) == 1
