"""Tokens of a real issuer: signed ones, checked by its keys, and ones that it is asked about."""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import jwt
import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric import rsa
from pydantic import SecretStr

from mcpfleet.authorization.issuer import IntrospectionVerifier, issuer_client
from mcpfleet.authorization.keys import Keys, metadata_urls
from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.authorization.signed_jwt import JwtVerifier
from mcpfleet.authorization.verifier import CredentialRefused, CredentialUnchecked
from mcpfleet.contracts.principal import Principal
from tests.kit.issuer import ROBOT, ROBOT_SECRET, Issuer, issuer
from tests.kit.waiting import until

RESOURCE = "https://mcp.example.com/mcp"
LOG = structlog.get_logger()


@dataclass
class Checking:
    """An issuer, and who checks its tokens."""

    issuer: Issuer
    signed: JwtVerifier

    async def verify(self, token: str) -> Principal:
        return (await self.signed.verify(token, "mcp", RESOURCE)).principal


@asynccontextmanager
async def checking(made: Issuer, **changes: Any) -> AsyncIterator[Checking]:
    """Check an issuer's tokens for the length of a block."""
    settings = AuthorizationSettings(authorization="jwt", issuer=made.url, **changes)
    async with issuer_client(1.0) as face, anyio.create_task_group() as tasks:
        keys = Keys(face, settings, log=LOG)
        tasks.start_soon(keys.run)
        yield Checking(made, JwtVerifier(keys, settings))
        tasks.cancel_scope.cancel()


def unsigned(claims: dict[str, Any], algorithm: str = "none") -> str:
    """A token that says that it needs no signature."""
    parts = ({"alg": algorithm, "typ": "JWT"}, claims)
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


async def test_a_good_token_is_its_claims_by_keys_that_the_metadata_leads_to() -> None:
    async with issuer() as made, checking(made, tenant_claim="org") as check:
        token = made.token(RESOURCE, org="acme", scope="b a")
        principal = await check.verify(token)
        assert principal == Principal(subject="ann", client="some-client", tenant="acme", scopes=("a", "b"))
        for _ in range(5):
            await check.verify(made.token(RESOURCE))
        assert made.fetched == 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"aud": "https://other.example/mcp"}, "audience"),
        ({"aud": None}, "lacks"),
        ({"exp": int(time.time()) - 60}, "expired"),
        ({"exp": None}, "lacks"),
        ({"iss": "https://other.example"}, "issuer"),
        ({"iss": None}, "lacks"),
        ({"nbf": int(time.time()) + 600}, "not valid yet"),
        ({"sub": None, "client_id": None}, "neither"),
    ],
    ids=["other audience", "no audience", "expired", "no end", "other issuer", "no issuer", "not yet", "nobody"],
)
async def test_a_token_that_is_not_for_us_now_admits_nobody(changes: dict[str, Any], why: str) -> None:
    async with issuer() as made, checking(made) as check:
        with pytest.raises(CredentialRefused, match=why):
            await check.verify(made.token(RESOURCE, **changes))


async def test_a_token_without_a_signature_admits_nobody() -> None:
    """Neither `none`, however it is spelled, nor a public key that is taken for a shared secret."""
    async with issuer() as made, checking(made) as check:
        claims = made.claims(RESOURCE)
        for algorithm in ("none", "None", "NONE", "", "HS256"):
            with pytest.raises(CredentialRefused, match=r"algorithm|not a JWT"):
                await check.verify(unsigned(claims, algorithm))
        shared = jwt.encode(claims, json.dumps(made.keys())[1:-1], algorithm="HS256", headers={"kid": made.kid})
        with pytest.raises(CredentialRefused, match="algorithm"):
            await check.verify(shared)
        good = made.token(RESOURCE)
        with pytest.raises(CredentialRefused, match="signature"):
            await check.verify(good[:-8] + "AAAAAAAA")
        for garbage in ("", "x", "a.b.c", good.partition(".")[0]):
            with pytest.raises(CredentialRefused):
                await check.verify(garbage)


async def test_a_key_signs_by_its_own_algorithm_alone() -> None:
    async with issuer() as made, checking(made) as check:
        other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        token = jwt.encode(made.claims(RESOURCE), other, algorithm="RS256", headers={"kid": made.kid})
        with pytest.raises(CredentialRefused, match="key"):
            await check.verify(token)


async def test_an_unknown_key_is_fetched_once_in_a_while() -> None:
    """The issuer's new key serves at once; whoever invents key names does not make us ask each time."""
    async with issuer() as made, checking(made, jwks_cooldown=0.2) as check:
        await check.verify(made.token(RESOURCE))
        made.rotate()
        await anyio.sleep(0.2)
        await check.verify(made.token(RESOURCE))
        assert made.fetched == 2
        for kid in ("one", "two", "three"):
            with pytest.raises(CredentialRefused, match="key"):
                await check.verify(made.sign(made.claims(RESOURCE), kid=kid))
        assert made.fetched == 2


@pytest.mark.rule("M85")
async def test_who_stops_waiting_for_an_unknown_key_does_not_end_its_fetch() -> None:
    """One of many who are asked about together stops soon, and is asked about again by itself."""
    async with issuer() as made, checking(made) as check:
        await check.verify(made.token(RESOURCE))
        made.rotate()
        made.gate = anyio.Event()
        with anyio.move_on_after(0.1) as impatience:
            await check.verify(made.token(RESOURCE))
        assert impatience.cancelled_caught
        made.gate.set()
        await check.verify(made.token(RESOURCE))


@pytest.mark.rule("M87")
async def test_what_is_no_key_set_takes_no_key_away() -> None:
    async with issuer() as made, checking(made, jwks_lasts=0.05) as check:
        await check.verify(made.token(RESOURCE))
        known = check.signed.trusted()
        made.keys = lambda: {"error": "overloaded"}  # type: ignore[method-assign]  # it is the test's
        before = made.fetched
        await until(lambda: made.fetched >= before + 3)
        now = check.signed.trusted()
        assert (known and known.keys) == (now and now.keys)
        await check.verify(made.token(RESOURCE))


@pytest.mark.rule("M87")
async def test_a_key_under_the_name_of_another_is_another() -> None:
    async with issuer() as made, checking(made, jwks_lasts=0.05) as check:
        verified = await check.signed.verify(made.token(RESOURCE), "mcp", RESOURCE)
        made.key = Issuer().key
        await until(lambda: (now := check.signed.trusted()) is not None and now.keys != (verified.key,))
        other = await check.signed.verify(made.token(RESOURCE), "mcp", RESOURCE)
        assert other.key != verified.key


async def test_known_keys_serve_while_the_issuer_is_down_and_not_for_ever() -> None:
    made = Issuer()
    async with anyio.create_task_group() as tasks:
        async with made.serving():
            check = await tasks.start(_keep_checking, made, {"jwks_lasts": 0.1, "jwks_stale": 2.0})
            await check.verify(made.token(RESOURCE))
        with anyio.CancelScope(deadline=-math.inf):
            verified = await check.verify(made.token(RESOURCE))
        assert verified, "a known key waits for nobody"

        async def is_known() -> bool:
            try:
                await check.verify(made.token(RESOURCE))
            except CredentialUnchecked:
                return False
            return True

        with anyio.fail_after(10):
            while await is_known():  # noqa: ASYNC110  # time itself is what is waited for
                await anyio.sleep(0.05)
        async with made.serving():
            with anyio.fail_after(10):
                while not await is_known():  # noqa: ASYNC110  # the keys are fetched by a timer
                    await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()


async def _keep_checking(made: Issuer, changes: dict[str, Any], *, task_status: Any) -> None:
    async with checking(made, **changes) as check:
        task_status.started(check)
        await anyio.sleep_forever()


async def test_an_issuer_that_never_answered_is_no_reason_to_refuse() -> None:
    made = Issuer()
    async with checking(made) as check:
        with pytest.raises(CredentialUnchecked, match="MCPFLEET_ISSUER"):
            await check.verify(made.token(RESOURCE))


def test_metadata_is_where_either_specification_puts_it() -> None:
    assert metadata_urls("https://a.example/realm/") == (
        "https://a.example/.well-known/oauth-authorization-server/realm",
        "https://a.example/.well-known/openid-configuration/realm",
        "https://a.example/realm/.well-known/openid-configuration",
    )
    assert len(metadata_urls("https://a.example")) == 2


@asynccontextmanager
async def asking(made: Issuer, **changes: Any) -> AsyncIterator[IntrospectionVerifier]:
    """Ask an issuer about tokens for the length of a block."""
    settings = AuthorizationSettings(
        authorization="introspection",
        introspection_url=f"{made.url}/introspect",
        introspection_client=ROBOT,
        **{"introspection_secret": SecretStr(ROBOT_SECRET), **changes},
    )
    async with issuer_client(1.0) as face:
        yield IntrospectionVerifier(face, settings)


async def test_an_issuer_that_is_asked_says_whom_a_token_speaks_for() -> None:
    async with issuer() as made, asking(made) as introspection:
        verified = await introspection.verify(made.token(RESOURCE), "mcp", RESOURCE)
        assert verified.principal == Principal(subject="ann", client="some-client", scopes=("books:read",))
        assert verified.expires is not None


@pytest.mark.rule("M61")
async def test_the_audience_is_checked_also_where_the_issuer_vouches_for_the_token() -> None:
    async with issuer() as made, asking(made) as introspection:
        with pytest.raises(CredentialRefused, match="audience"):
            await introspection.verify(made.token("https://other.example/mcp"), "mcp", RESOURCE)
        with pytest.raises(CredentialRefused, match="not active"):
            await introspection.verify(made.token(RESOURCE, exp=int(time.time()) - 60), "mcp", RESOURCE)
        with pytest.raises(CredentialRefused, match="not active"):
            await introspection.verify("garbage", "mcp", RESOURCE)


async def test_an_issuer_that_does_not_know_us_refuses_nobody() -> None:
    async with issuer() as made, asking(made, introspection_secret=SecretStr("wrong")) as introspection:
        with pytest.raises(CredentialUnchecked, match="401"):
            await introspection.verify(made.token(RESOURCE), "mcp", RESOURCE)


async def test_what_was_asked_about_is_in_no_sentence() -> None:
    made = Issuer()
    async with asking(made) as introspection:
        with pytest.raises(CredentialUnchecked) as raised:
            await introspection.verify("very-secret", "mcp", RESOURCE)
        assert "very-secret" not in repr(raised.value)
        assert raised.value.__cause__ is None
