"""Callers with tokens of a real authorization server, through a fleet of three edges."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from mcpfleet.cli.operate import revoke
from mcpfleet.testing.fleet import Fleet
from tests.kit.commands import mcpfleet
from tests.kit.exported import exported
from tests.kit.issuer import ROBOT, ROBOT_SECRET, Issuer, issuer
from tests.kit.waiting import until
from tests.unit.edge.asgi import Post, call, request

APP = Path(__file__).with_name("guarded_app.py")
PUBLIC = "http://mcp.example.com"
RESOURCE = f"{PUBLIC}/mcp"


@asynccontextmanager
async def guarded(
    made: Issuer, environment: Mapping[str, str] = MappingProxyType({}), *, edges: int = 1
) -> AsyncIterator[Fleet]:
    """A fleet that takes an issuer's tokens, for the length of a block."""
    own = {"MCPFLEET_AUTHORIZATION": "jwt", "MCPFLEET_ISSUER": made.url, "MCPFLEET_TENANT_CLAIM": "tenant"}
    async with Fleet(APP, edges=edges, environment={**own, **environment}) as fleet:
        yield fleet


class Memory:
    """Where the official client keeps what it got."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Browser:
    """The person who is sent to the authorization server, and comes back with a code."""

    def __init__(self) -> None:
        self.asked: list[dict[str, list[str]]] = []

    async def go(self, url: str) -> None:
        self.asked.append(parse_qs(urlsplit(url).query))
        async with plain() as http:
            response = await http.get(url)
        self._came_back = parse_qs(urlsplit(response.headers["location"]).query)

    async def come_back(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=self._came_back["code"][0], state=self._came_back["state"][0])


def person(url: str, browser: Browser, memory: Memory) -> OAuthClientProvider:
    """The official client's way to a token by a person's consent."""
    metadata = OAuthClientMetadata(
        client_name="tests",
        redirect_uris=[AnyUrl("http://127.0.0.1:9/callback")],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="client_secret_post",
    )
    return OAuthClientProvider(url, metadata, memory, redirect_handler=browser.go, callback_handler=browser.come_back)


@asynccontextmanager
async def connected(url: str, auth: httpx2.Auth) -> AsyncIterator[Client]:
    """The official client, which gets its token by itself."""
    async with (
        httpx2.AsyncClient(auth=auth, timeout=10, verify=False) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


def plain() -> httpx2.AsyncClient:
    """A client of HTTP alone; reading a machine's certificates takes longer than all of a test's requests."""
    return httpx2.AsyncClient(timeout=10, verify=False)


async def post(
    url: str, message: Any, token: str | None = None, *, http: httpx2.AsyncClient | None = None
) -> httpx2.Response:
    """Send a message as a client would."""
    if http is None:
        async with plain() as own_http:
            return await post(url, message, token, http=own_http)
    own = {name.decode(): value.decode() for name, value in Post(message).pairs() if name != b"host"}
    bearer = {"authorization": f"Bearer {token}"} if token is not None else {}
    return await http.post(url, content=json.dumps(message), headers={**own, **bearer})


async def status(url: str, token: str | None, message: Any = None) -> int:
    return (await post(url, message or request("tools/list"), token)).status_code


@pytest.mark.rule("D10")
async def test_the_official_client_finds_its_way_by_the_challenge_and_steps_up_at_403() -> None:
    """M62, M63: from nothing but the URL: metadata, registration, consent, a token; then another scope."""
    async with issuer() as made, guarded(made, {"MCPFLEET_SCOPES": "books:read"}) as fleet:
        made.tenant = "acme"
        url, browser, memory = fleet.urls[0], Browser(), Memory()
        async with connected(url, person(url, browser, memory)) as client:
            assert client.protocol_version == "2026-07-28"
            who = (await client.call_tool("whoami", {})).structured_content
            assert who is not None
            assert (who["subject"], who["tenant"]) == ("ann", "acme")
            result = await client.call_tool("write", {})
            assert result.is_error is False
        assert [asked["resource"] for asked in browser.asked] == [[url], [url]]
        assert [asked["scope"] for asked in browser.asked] == [["books:read"], ["books:read books:write"]]
        assert all(token not in fleet.logs() for token in made.granted)


@pytest.mark.rule("D10")
async def test_a_refreshed_token_is_the_same_principal() -> None:
    async with issuer() as made, guarded(made) as fleet:
        url, memory = fleet.urls[0], Memory()
        provider = person(url, Browser(), memory)
        async with connected(url, provider) as client:
            before = (await client.call_tool("whoami", {})).structured_content
            provider.context.token_expiry_time = time.time() - 1
            after = (await client.call_tool("whoami", {})).structured_content
        assert len(set(made.granted)) == 2
        assert before == after


async def test_the_official_client_gets_a_token_for_itself() -> None:
    async with issuer() as made, guarded(made) as fleet:
        url = fleet.urls[0]
        auth = ClientCredentialsOAuthProvider(
            url, Memory(), ROBOT, ROBOT_SECRET, "client_secret_post", "books:read", issuer=made.url
        )
        async with connected(url, auth) as client:
            who = (await client.call_tool("whoami", {})).structured_content
        assert who is not None
        assert (who["subject"], who["client"]) == (ROBOT, ROBOT)


def unsigned(claims: dict[str, Any]) -> str:
    head = {"alg": "none", "typ": "JWT"}
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (head, claims))


async def test_a_token_that_is_not_good_here_and_now_is_401_and_a_missing_scope_403() -> None:
    """M61, M63, M64, T11: one fleet for all of them."""
    implies = json.dumps({"admin": ["books:write"]})
    async with (
        issuer() as made,
        guarded(made, {"MCPFLEET_PUBLIC_URL": PUBLIC, "MCPFLEET_SCOPE_IMPLIES": implies}) as fleet,
    ):
        url = fleet.urls[0]
        assert await status(url, made.token(RESOURCE)) == 200
        assert await status(url, made.token(f"{RESOURCE}/")) == 200
        bad = {
            "another audience": made.token("http://mcp.example.com/other"),
            "the edge's own name, where it has a public one": made.token(url),
            "expired": made.token(RESOURCE, exp=int(time.time()) - 60),
            "alg none": unsigned(made.claims(RESOURCE)) + ".",
            "unknown key": made.sign(made.claims(RESOURCE), kid="unknown"),
            "another issuer": made.token(RESOURCE, iss="https://other.example"),
            "no token at all": "nonsense",
        }
        for what, token in bad.items():
            response = await post(url, request("tools/list"), token)
            assert (response.status_code, response.json()["id"]) == (401, 1), what
            assert 'error="invalid_token"' in response.headers["www-authenticate"]
            assert f'resource_metadata="{PUBLIC}/.well-known/' in response.headers["www-authenticate"]
            assert token not in fleet.logs()
        missing = await post(url, request("tools/list"))
        assert (missing.status_code, "id" in missing.json()) == (401, False)
        forbidden = await post(url, call("write"), made.token(RESOURCE, scope="books:read"))
        assert forbidden.status_code == 403
        assert 'error="insufficient_scope"' in forbidden.headers["www-authenticate"]
        assert 'scope="books:read books:write"' in forbidden.headers["www-authenticate"]
        assert await status(url, made.token(RESOURCE, scope="books:read admin"), call("write")) == 200
        document = await _document(url, "mcp.example.com")
        assert (document["resource"], document["authorization_servers"]) == (RESOURCE, [made.url])


async def _document(url: str, host: str) -> dict[str, Any]:
    parts = urlsplit(url)
    async with plain() as http:
        response = await http.get(
            f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}", headers={"host": host}
        )
    found: dict[str, Any] = response.json()
    return found


async def test_credentials_are_counted_by_what_became_of_them_and_not_by_whose_they_are() -> None:
    """Alerts use these: verdicts that an edge had, questions, refusals by reason, and the age of keys."""
    async with issuer() as made, guarded(made, {"MCPFLEET_PUBLIC_URL": PUBLIC}) as fleet:
        good = made.token(RESOURCE)
        for token in (good, good, good, made.token(RESOURCE, exp=int(time.time()) - 60), made.token(f"{PUBLIC}/other")):
            await status(fleet.urls[0], token)
        figures = await exported(fleet)
    assert figures['mcpfleet_edge_admissions_total{service="edge",verdict="kept"}'] == 2
    assert figures['mcpfleet_edge_admissions_total{service="edge",verdict="asked"}'] == 3
    own = 'service="authorization"'
    assert figures[f'mcpfleet_authorization_questions_total{{{own},outcome="admitted"}}'] == 1
    assert figures[f'mcpfleet_authorization_questions_total{{{own},outcome="refused"}}'] == 2
    assert figures[f'mcpfleet_authorization_refused_total{{{own},reason="expired"}}'] == 1
    assert figures[f'mcpfleet_authorization_refused_total{{{own},reason="audience"}}'] == 1
    assert 0 < figures[f"mcpfleet_authorization_keys_age_seconds{{{own}}}"] < 60
    assert not [name for name in figures if "authorization" in name and "ann" in name]


async def test_known_keys_serve_while_the_issuer_is_down() -> None:
    """Tokens that no edge has seen are checked by the keys that are known."""
    made = Issuer()
    async with made.serving(), guarded(made, {"MCPFLEET_PUBLIC_URL": PUBLIC, "MCPFLEET_JWKS_LASTS": "0.2"}) as fleet:
        assert await status(fleet.urls[0], made.token(RESOURCE)) == 200
        await made.stop()
        await until(lambda: "issuer keys not fetched" in fleet.logs())
        assert await status(fleet.urls[0], made.token(RESOURCE)) == 200


async def test_who_is_revoked_is_out_on_every_edge_and_comes_back_with_a_new_token() -> None:
    """A revocation needs no verdict to run out: edges are told."""
    async with (
        issuer() as made,
        guarded(made, {"MCPFLEET_PUBLIC_URL": PUBLIC, "MCPFLEET_ADMISSION_LASTS": "3600"}, edges=3) as fleet,
    ):
        ann, bob = made.token(RESOURCE, iat=int(time.time()) - 5), made.token(RESOURCE, sub="bob")
        for url in fleet.urls:
            assert (await status(url, ann), await status(url, bob)) == (200, 200)
        assert await revoke(fleet.nats_settings("operator"), "subject", "ann") == 0
        with anyio.fail_after(5):
            for url in fleet.urls:
                while await status(url, ann) != 401:  # noqa: ASYNC110  # the edge is another process
                    await anyio.sleep(0.02)
        assert [await status(url, bob) for url in fleet.urls] == [200] * 3
        later = made.token(RESOURCE, iat=int(time.time()) + 1)
        assert [await status(url, later) for url in fleet.urls] == [200] * 3


async def test_a_limit_holds_over_three_edges_within_five_in_a_hundred() -> None:
    """M40, D4: 100 calls in a window of 3 s, whichever edges they come to."""
    window = 3.0
    async with (
        issuer() as made,
        guarded(made, {"MCPFLEET_PUBLIC_URL": PUBLIC, "MCPFLEET_RATE_TOOLS": f"100/{window:g}"}, edges=3) as fleet,
    ):
        token = made.token(RESOURCE)
        # Until the window begins in which all calls are to be: windows begin at multiples of their length.
        await anyio.sleep(window - time.time() % window + 0.05)
        begun = time.time()
        statuses: list[int] = []
        refusal: list[httpx2.Response] = []

        async def caller(url: str) -> None:
            async with plain() as http:
                for _ in range(25):
                    response = await post(url, call("whoami"), token, http=http)
                    statuses.append(response.status_code)
                    if response.status_code == 429:
                        refusal.append(response)

        async with anyio.create_task_group() as tasks:
            for url in fleet.urls * 2:
                tasks.start_soon(caller, url)
        assert time.time() - begun < window - 0.1, "the calls were slower than the window"
        assert set(statuses) == {200, 429}
        assert 95 <= statuses.count(200) <= 105
        error = refusal[0].json()["error"]
        assert (error["code"], error["data"]["retryAfter"]) == (-31999, int(refusal[0].headers["retry-after"]))
        assert 1 <= error["data"]["retryAfter"] <= window


@pytest.mark.rule("M82")
async def test_sixty_calls_at_once_over_three_edges_get_exactly_twelve_of_twelve() -> None:
    """For one caller after the other: nothing is lost to an edge, and nothing is added."""
    callers, day = 5, 86_400
    names = [f"caller-{number}" for number in range(callers)]
    listed = [{"token": name, "subject": name, "audience": "mcp"} for name in names]
    environment = {
        "MCPFLEET_AUTHORIZATION": "static",
        "MCPFLEET_TOKENS": json.dumps({"tokens": listed}),
        "MCPFLEET_RATE_TOOLS": f"12/{day}",
        "MCPFLEET_RATE_WAIT": "10",
    }
    async with Fleet(APP, edges=3, environment=environment) as fleet, plain() as http:
        answers = dict[str, list[httpx2.Response]]()

        async def send(name: str, url: str) -> None:
            answers[name].append(await post(url, call("whoami"), name, http=http))

        for name in names:
            answers[name] = []
            async with anyio.create_task_group() as tasks:
                for url in fleet.urls * 20:
                    tasks.start_soon(send, name, url)
    for name in names:
        statuses = Counter(answer.status_code for answer in answers[name])
        assert statuses == {200: 12, 429: 48}
        rests = {int(answer.headers["retry-after"]) for answer in answers[name] if answer.status_code == 429}
        assert max(rests) - min(rests) <= 5
        assert 0 < max(rests) <= day


@pytest.mark.parametrize(
    ("mode", "environment"),
    [
        ("static", {"MCPFLEET_TOKENS": '{"tokens": [{"token": "T", "subject": "ann", "audience": "mcp"}]}'}),
        ("introspection", {}),
        ("custom", {"MCPFLEET_AUTHORIZER": "tests.fleet.authorizer:authorize"}),
    ],
)
async def test_the_other_modes_admit_and_refuse(mode: str, environment: dict[str, str]) -> None:
    async with issuer() as made:
        asked = {
            "MCPFLEET_INTROSPECTION_URL": f"{made.url}/introspect",
            "MCPFLEET_INTROSPECTION_CLIENT": ROBOT,
            "MCPFLEET_INTROSPECTION_SECRET": ROBOT_SECRET,
        }
        own = asked if mode == "introspection" else environment
        async with guarded(made, {"MCPFLEET_PUBLIC_URL": PUBLIC, **own, "MCPFLEET_AUTHORIZATION": mode}) as fleet:
            token = made.token(RESOURCE) if mode == "introspection" else "T"
            response = await post(fleet.urls[0], call("whoami"), token)
            assert response.json()["result"]["structuredContent"]["subject"] == "ann"
            assert await status(fleet.urls[0], "other") == 401


@pytest.mark.rule("M63")
async def test_the_commands_call_with_a_token_and_say_what_they_lack(tmp_path: Path) -> None:
    """`mcpfleet call`, `watch` and `tasks` without a token, with one of another scope, and with a good one."""
    listed = [
        {"token": "reader-token", "subject": "ann", "audience": "mcp"},
        {"token": "writer-token", "subject": "bob", "audience": "mcp", "scopes": ["books:read", "books:write"]},
    ]
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps({"tokens": listed}))
    environment = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS_FILE": str(tokens)}
    async with Fleet(APP, environment=environment) as fleet:
        [url] = fleet.urls
        for words in (("call", url, "write"), ("watch", url), ("tasks", "get", url, "a-task")):
            without = await command(*words)
            assert (without.returncode, "needs a token (401)" in without.stderr) == (1, True), without
        stranger = await command("call", url, "whoami", token="stranger-token")
        assert "does not take this token (401)" in stranger.stderr
        reader = await command("call", url, "write", token="reader-token")
        assert reader.returncode == 1
        assert "lacks a scope (403): it needs books:read books:write" in reader.stderr
        writer = await command("call", url, "write", "--token", "writer-token")
        assert (writer.returncode, writer.stdout) == (0, "written\n"), writer
        for said in (stranger, reader, writer):
            assert "-token" not in said.stdout + said.stderr.replace("--token", "")


async def command(*words: str, token: str = "") -> subprocess.CompletedProcess[str]:
    """Run `mcpfleet`, with a token in its environment."""
    return await mcpfleet(*words, MCPFLEET_TOKEN=token)
