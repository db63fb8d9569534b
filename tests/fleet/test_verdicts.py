"""How long an edge goes by what authorization told it of a caller, in a fleet of real processes."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio
import httpx2
import pytest

from mcpfleet.cli.operate import revoke
from mcpfleet.testing.fleet import Fleet
from tests.contract.fleet.listener import ACK, END, listening
from tests.fleet.test_authorization import APP, PUBLIC, RESOURCE, post, status
from tests.kit.exported import exported
from tests.kit.issuer import Issuer, issuer
from tests.kit.restarting import restart_services
from tests.kit.waiting import until
from tests.unit.edge.asgi import request

LASTS: Final = 0.5
QUICK: Final = {
    "MCPFLEET_PUBLIC_URL": PUBLIC,
    "MCPFLEET_ADMISSION_LASTS": str(LASTS),
    "MCPFLEET_AUTHORITY_HINT": "0.1",
    "MCPFLEET_AUTHORITY_SILENCE": str(LASTS),
    "MCPFLEET_JWKS_LASTS": "0.3",
    "MCPFLEET_BUS_QUESTION_EVERY": "0.1",
    "MCPFLEET_BUS_DEAD_AFTER": "0.6",
}
FAILED: Final = "issuer keys not fetched"
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
ADMITTED: Final = 'mcpfleet_authorization_questions_total{service="authorization",outcome="admitted"}'


@asynccontextmanager
async def signed(made: Issuer, *, edges: int = 1, environment: Mapping[str, str] = NOTHING) -> AsyncIterator[Fleet]:
    """A fleet that takes an issuer's tokens; authorization is a process of its own."""
    own = {"MCPFLEET_AUTHORIZATION": "jwt", "MCPFLEET_ISSUER": made.url, **QUICK, **environment}
    async with Fleet(APP, edges=edges, apart=True, environment=own) as fleet:
        yield fleet


async def becomes(fleet: Fleet, token: str, expected: int, *, within: float = 10.0) -> None:
    """Wait until every edge answers a caller so."""
    with anyio.fail_after(within):
        for url in fleet.urls:
            while await status(url, token) != expected:  # noqa: ASYNC110  # the edge is another process
                await anyio.sleep(0.02)


async def admitted(fleet: Fleet) -> float:
    """How many questions authorization has answered by admitting somebody."""
    return (await exported(fleet)).get(ADMITTED, 0)


async def heard_longer_than_a_verdict_lasts() -> None:
    """Let three times pass for which a verdict would last by itself."""
    await anyio.sleep(3 * LASTS)


@pytest.mark.rule("M86")
async def test_a_verdict_lasts_while_authorization_is_heard_and_ends_with_it() -> None:
    async with issuer() as made, signed(made) as fleet:
        ann, bob, [url] = made.token(RESOURCE), made.token(RESOURCE, sub="bob"), fleet.urls
        assert await status(url, ann) == 200
        await heard_longer_than_a_verdict_lasts()
        await fleet.service("authorization").kill()
        killed = time.monotonic()
        assert await status(url, ann) == 200
        assert await status(url, bob) == 504
        await becomes(fleet, ann, 504)
        assert time.monotonic() - killed < LASTS + 2, "a question without an answer takes half a second"


@pytest.mark.rule("M86")
async def test_verdicts_end_while_authorization_is_paused_and_hold_again_after() -> None:
    async with issuer() as made, signed(made) as fleet:
        ann, [url] = made.token(RESOURCE), fleet.urls
        assert await status(url, ann) == 200
        await heard_longer_than_a_verdict_lasts()
        fleet.pause(fleet.service("authorization"))
        assert await status(url, ann) == 200
        await heard_longer_than_a_verdict_lasts()
        assert await status(url, ann) == 504
        fleet.resume(fleet.service("authorization"))
        await becomes(fleet, ann, 200)


@pytest.mark.rule("M86")
async def test_what_an_edge_hears_late_because_it_was_stopped_is_no_news() -> None:
    """The hints that waited for it are as old as its sleep; a link that is not proven yet proves nothing."""
    async with issuer() as made, signed(made) as fleet:
        ann, [url] = made.token(RESOURCE), fleet.urls
        assert await status(url, ann) == 200
        await heard_longer_than_a_verdict_lasts()
        fleet.pause(fleet.edges[0])
        await anyio.sleep(LASTS)  # hints arrive
        await fleet.service("authorization").kill()
        await heard_longer_than_a_verdict_lasts()
        found: list[int] = []

        async def ask() -> None:
            found.append(await status(url, ann))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.sleep(0.1)  # it is sent, and lies there with the hints
            fleet.resume(fleet.edges[0])
            for _ in range(4):
                await ask()
        assert found == [504] * 5


@pytest.mark.rule("M86")
async def test_a_verdict_ends_with_its_token() -> None:
    async with issuer() as made, signed(made) as fleet:
        made.lasts = 3
        ann, [url] = made.token(RESOURCE), fleet.urls
        ends = time.time() + made.lasts
        assert await status(url, ann) == 200
        await becomes(fleet, ann, 401)
        assert -1.1 < time.time() - ends < 1, "its moments are whole seconds"


def dropped(made: Issuer) -> None:
    made.kept = []


def replaced(made: Issuer) -> None:
    """Another key has its name."""
    made.kept = [Issuer().public(made.kept[0]["kid"])]


@pytest.mark.rule("M87")
@pytest.mark.parametrize("change", [dropped, replaced])
async def test_a_key_that_leaves_ends_its_verdicts_on_every_edge_and_no_others(
    change: Callable[[Issuer], None],
) -> None:
    async with issuer() as made, signed(made, edges=3, environment={"MCPFLEET_ADMISSION_LASTS": "60"}) as fleet:
        old = [made.token(RESOURCE, sub=f"old-{number}") for number in range(3)]
        made.rotate(keep=True)
        new = [made.token(RESOURCE, sub=f"new-{number}") for number in range(3)]
        for url in fleet.urls:
            assert [await status(url, token) for token in (*old, *new)] == [200] * 6
        before = await admitted(fleet)
        assert before == 3 * 6
        change(made)
        for token in old:
            await becomes(fleet, token, 401, within=3)
        for url in fleet.urls:
            assert [await status(url, token) for token in new] == [200] * 3
        assert await admitted(fleet) == before, "nobody else was asked about again"


@pytest.mark.rule("M87")
async def test_streams_end_with_the_key_of_their_credential_and_no_others() -> None:
    async with (
        issuer() as made,
        signed(made, environment={"MCPFLEET_ADMISSION_LASTS": "60"}) as fleet,
        httpx2.AsyncClient(base_url=fleet.urls[0].removesuffix("/mcp"), timeout=30, verify=False) as http,
    ):
        old = made.token(RESOURCE)
        made.rotate(keep=True)
        new = made.token(RESOURCE, sub="new")
        async with (
            listening(http, "/mcp", token=old, toolsListChanged=True) as [ends],
            listening(http, "/mcp", token=new, toolsListChanged=True) as [stays],
        ):
            await ends.told(1)
            await stays.told(1)
            dropped(made)
            await ends.over(within=3)
            assert ends.kinds() == [ACK, END]
            assert stays.kinds() == [ACK]


@pytest.mark.rule("M87")
async def test_an_issuer_that_is_down_or_answers_nonsense_ends_nothing() -> None:
    made = Issuer()
    async with made.serving(), signed(made, environment={"MCPFLEET_ADMISSION_LASTS": "60"}) as fleet:
        ann, [url] = made.token(RESOURCE), fleet.urls
        assert await status(url, ann) == 200
        good, made.keys = made.keys, lambda: {"error": "overloaded"}  # type: ignore[method-assign]  # it is the test's
        await until(lambda: FAILED in fleet.logs())
        assert await status(url, ann) == 200
        assert await status(url, made.token(RESOURCE, sub="bob")) == 200
        fetched = anyio.Event()

        def keys() -> object:
            fetched.set()
            return good()

        made.keys = keys  # type: ignore[method-assign, assignment]  # the same
        await fetched.wait()
        failures = fleet.logs().count(FAILED)
        await made.stop()
        await until(lambda: fleet.logs().count(FAILED) > failures)
        assert await status(url, ann) == 200
        assert await admitted(fleet) == 2


@pytest.mark.rule("M87")
async def test_a_new_list_without_a_token_ends_that_tokens_verdicts(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"

    def write(*names: str) -> None:
        listed = [{"token": f"of-{name}", "subject": name, "audience": "mcp"} for name in names]
        file.write_text(json.dumps({"tokens": listed}))

    write("ann", "bob")
    environment = {**QUICK, "MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS_FILE": str(file)}
    async with Fleet(APP, edges=2, apart=True, environment=environment) as fleet:
        for url in fleet.urls:
            assert [await status(url, token) for token in ("of-ann", "of-bob")] == [200, 200]
        write("bob")
        await restart_services(fleet, fleet.service("authorization"), services=1)
        await becomes(fleet, "of-ann", 401, within=3)
        await becomes(fleet, "of-bob", 200)


@pytest.mark.rule("M86")
async def test_a_revocation_ends_long_verdicts_under_load_on_every_edge_at_once() -> None:
    async with issuer() as made, signed(made, edges=3) as fleet:
        ann, bob = made.token(RESOURCE, iat=int(time.time()) - 5), made.token(RESOURCE, sub="bob")
        late: list[int] = []
        others: list[int] = []
        revoked = anyio.Event()

        async def load(url: str, http: httpx2.AsyncClient) -> None:
            while not revoked.is_set():
                assert await told(url, ann, http) == 200
                others.append(await told(url, bob, http))
            with anyio.fail_after(3):
                while (found := await told(url, ann, http)) != 401:
                    late.append(found)
            others.append(await told(url, bob, http))

        async with httpx2.AsyncClient(timeout=10, verify=False) as http, anyio.create_task_group() as tasks:
            for url in fleet.urls * 4:
                tasks.start_soon(load, url, http)
            await heard_longer_than_a_verdict_lasts()
            revoked.set()
            assert await revoke(fleet.nats_settings("operator"), "subject", "ann") == 0
        assert set(late) <= {200}
        assert set(others) == {200}


async def told(url: str, token: str, http: httpx2.AsyncClient) -> int:
    """The status that a caller is answered with, over a connection that is kept."""
    return (await post(url, request("tools/list"), token, http=http)).status_code
