"""Authorization as it is run: over a real NATS with its users, on both databases."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog
from pydantic import SecretStr

from mcpfleet.authorization.__main__ import serve
from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.authorization.windows import take
from mcpfleet.bus.actor import Actor, RpcContext
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError, Failed, NoResponders
from mcpfleet.bus.port import Incoming
from mcpfleet.bus.rpc import ask
from mcpfleet.contracts.authorization import (
    ADMIT_ALL,
    AUTHORITY_SUBJECT,
    LIMITS,
    Admit,
    AdmitAll,
    Admitted,
    Authority,
    AuthorizationClient,
    Revoke,
    TakeFromLimit,
    Taken,
    TakeTokens,
    TokensGranted,
    TokensWanted,
)
from mcpfleet.contracts.principal import Principal
from mcpfleet.process.errors import ConfigurationError, leaves
from mcpfleet.process.service import Process
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.store.engine import Store
from mcpfleet.telemetry.trace import TraceContext, current
from tests.contract.store.serving import connect, nats_server, password, why_not_ready
from tests.kit.postgres import Postgres
from tests.kit.waiting import until

RESOURCE = "https://mcp.example.com/mcp"
TOKENS = json.dumps(
    {
        "tokens": [
            {"token": "of-ann", "subject": "ann", "scopes": ["write"], "audience": RESOURCE},
            {"token": "of-bob", "subject": "bob", "audience": RESOURCE},
            {"token": "of-bob-later", "subject": "bob", "audience": RESOURCE, "issued": 4e9},
        ]
    }
)
STATIC = {"authorization": "static", "tokens": SecretStr(TOKENS), "scope_implies": {"write": ("read",)}}
WINDOW = max((1e4, 7e3), key=lambda each: each - time.time() % each)  # seconds; it ends long after a test


@dataclass
class Running:
    """Services that run, and the way to ask them as an edge and as the operator."""

    processes: list[Process[AuthorizationSettings]] = field(default_factory=list)
    buses: dict[str, Bus] = field(default_factory=dict)
    hints: list[Authority] = field(default_factory=list)

    def client(self, user: str = "edge") -> AuthorizationClient:
        return AuthorizationClient(self.buses[user], timeout=5)

    async def admit(self, token: str | None) -> Admitted:
        credential = SecretStr(token) if token else None
        return await self.client().admit(Admit(endpoint="mcp", credential=credential, resource=RESOURCE))

    async def revoke(self, name: str, kind: str = "subject") -> int:
        wanted = Revoke.model_validate({"kind": kind, "name": name, "id": secrets.token_hex(16)})
        return (await self.client("operator").revoke(wanted)).number


@asynccontextmanager
async def authorization(url: str, folder: Path, *, replicas: int = 1, **settings: Any) -> AsyncIterator[Running]:
    """Run NATS and replicas, and connect an edge and the operator."""
    running = Running()
    async with nats_server(folder) as nats, anyio.create_task_group() as tasks:
        for user in ("edge", "operator"):
            running.buses[user] = await connect(tasks.start, nats, user)

        def on_hint(message: Incoming) -> None:
            running.hints.append(Authority.model_validate_json(message.body))

        await running.buses["edge"].subscribe(AUTHORITY_SUBJECT, on_hint)
        own = AuthorizationSettings(
            nats_url=nats.url,
            nats_password=SecretStr(password("authorization")),
            store_url=SecretStr(url),
            embedded=True,
            **{"authority_hint": 0.1, **STATIC, **settings},
        )
        async with anyio.create_task_group() as serving:
            for _ in range(replicas):
                process = Process("authorization", own)
                running.processes.append(process)
                serving.start_soon(serve, process)
            await until(lambda: all(process.health.ready for process in running.processes))
            yield running
            for process in running.processes:
                process.stopping.set()
        tasks.cancel_scope.cancel()


async def test_a_credential_becomes_a_principal_with_all_that_its_scopes_imply(
    url: str, store: Store, tmp_path: Path
) -> None:
    async with authorization(url, tmp_path) as running:
        admitted = await running.admit("of-ann")
        assert admitted.principal == Principal(subject="ann", scopes=("read", "write"))
        assert (admitted.lasts, admitted.number) == (10, 0)
        for token in ("of-nobody", None):
            refused = await running.admit(token)
            assert (refused.principal, refused.lasts) == (None, 1)


async def test_in_mode_none_a_credential_changes_nothing(url: str, store: Store, tmp_path: Path) -> None:
    async with authorization(url, tmp_path, authorization="none") as running:
        for token in ("of-ann", None):
            admitted = await running.admit(token)
            assert (admitted.principal, admitted.lasts) == (Principal(), 10)


async def test_a_revocation_counts_at_once_in_every_replica(url: str, store: Store, tmp_path: Path) -> None:
    """A later token is good again; others are not touched, and verdicts say which revocation they know."""
    async with authorization(url, tmp_path, replicas=3) as running:
        assert await running.revoke("bob") == 1
        for _ in range(10):
            refused = await running.admit("of-bob")
            assert (refused.principal, refused.number, refused.reason) == (None, 1, "revoked")
        assert (await running.admit("of-bob-later")).principal is not None
        assert (await running.admit("of-ann")).principal is not None


async def test_many_are_told_together_what_each_would_be_told_by_itself(url: str, store: Store, tmp_path: Path) -> None:
    """N13: streams whose permissions fall due together are asked about together."""
    async with authorization(url, tmp_path) as running:
        await running.revoke("bob")
        tokens = ["of-ann", "of-bob", "of-nobody", None, "of-bob-later"]
        callers = [
            Admit(endpoint="mcp", credential=SecretStr(token) if token else None, resource=RESOURCE) for token in tokens
        ]
        found = await ask(running.buses["edge"], ADMIT_ALL, AdmitAll(callers=tuple(callers)), timeout=5)
        assert list(found.verdicts) == [await running.admit(token) for token in tokens]
        client, told = running.client(), dict[int, Admitted]()

        async def admit(number: int) -> None:
            told[number] = await client.admit_together(callers[number % len(callers)])

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(admit, number)
        assert [told[number] for number in range(40)] == list(found.verdicts) * 8


async def test_one_that_takes_long_holds_the_others_up_for_a_moment_alone(
    url: str, store: Store, tmp_path: Path
) -> None:
    """It is told by itself, and of one that cannot be checked the others do not hear."""
    settings: dict[str, Any] = {"authorization": "custom", "authorizer": "tests.contract.store.authorizing:slowly"}
    async with authorization(url, tmp_path, **settings) as running:
        tokens = ("ann", "slow", "broken", "odd", "bob")
        callers = tuple(Admit(endpoint="mcp", credential=SecretStr(token), resource=RESOURCE) for token in tokens)
        found = await ask(running.buses["edge"], ADMIT_ALL, AdmitAll(callers=callers), timeout=5)
        assert [verdict and verdict.principal and verdict.principal.subject for verdict in found.verdicts] == [
            "ann", None, None, None, "bob",
        ]  # fmt: skip
        assert [verdict is None for verdict in found.verdicts] == [False, True, True, False, False]
        slow = await running.client().admit_together(callers[1])
        assert slow.principal == Principal(subject="slow")
        with pytest.raises(Failed):
            await running.client().admit_together(callers[2])


def asking(token: str) -> Admit:
    return Admit(endpoint="mcp", credential=SecretStr(token), resource=RESOURCE)


def asked_over(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The subjects of all requests over a bus, from now on."""
    subjects, ask_over = list[str](), bus.request

    async def request(subject: str, *arguments: Any, **options: Any) -> Incoming:
        subjects.append(subject)
        return await ask_over(subject, *arguments, **options)

    monkeypatch.setattr(bus, "request", request)
    return subjects


@pytest.mark.rule("M85")
async def test_requests_that_come_together_ask_once_and_a_lone_one_waits_for_nobody(
    url: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with authorization(url, tmp_path) as running:
        client = running.client()
        subjects = asked_over(running.buses["edge"], monkeypatch)
        assert (await client.admit_request(asking("of-ann"))).principal is not None
        assert subjects == ["authorization.admit"]
        subjects.clear()
        told: list[Admitted] = []

        async def admit(number: int) -> None:
            told.append(await client.admit_request(asking("of-ann" if number % 2 else "of-nobody")))

        async with anyio.create_task_group() as tasks:
            for number in range(60):
                tasks.start_soon(admit, number)
        assert len([each for each in told if each.principal is not None]) == 30
        assert len(subjects) <= 12, subjects
        subjects.clear()
        traced = current.set(TraceContext.fresh(sampled=True))
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(admit, number)
        current.reset(traced)
        assert subjects == ["authorization.admit"] * 3, "each is shown by itself"


@pytest.mark.rule("M85")
async def test_a_credential_that_takes_long_holds_up_no_request(url: str, store: Store, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"authorization": "custom", "authorizer": "tests.contract.store.authorizing:slowly"}
    async with authorization(url, tmp_path, **settings) as running:
        client, took = running.client(), dict[str, float]()
        began = time.monotonic()

        async def admit(token: str) -> None:
            assert (await client.admit_request(asking(token))).principal == Principal(subject=token)
            took[token] = time.monotonic() - began

        async with anyio.create_task_group() as tasks:
            for token in ("first", "slow", *(f"caller-{number}" for number in range(20))):
                tasks.start_soon(admit, token)
        slow = took.pop("slow")
        assert slow >= 3.0
        assert max(took.values()) < 3.0, "nobody waited for it"


@pytest.mark.rule("M87")
async def test_hints_name_the_keys_by_which_verdicts_hold(url: str, store: Store, tmp_path: Path) -> None:
    """The list is the key of all that it has; whoever is asked elsewhere has none."""
    async with authorization(url, tmp_path) as running:
        admitted = await running.admit("of-ann")
        assert (admitted.lasts, admitted.lasts_heard) == (10, 300)
        await until(lambda: running.hints)
        assert running.hints[-1].keys == (admitted.key,)
    custom: dict[str, Any] = {"authorization": "custom", "authorizer": "tests.contract.store.authorizing:slowly"}
    async with authorization(url, tmp_path, **custom) as running:
        admitted = await running.admit("ann")
        assert (admitted.lasts, admitted.lasts_heard, admitted.key) == (10, None, None)
        await until(lambda: running.hints)
        assert running.hints[-1].keys is None


async def test_a_policy_refuses_nobody(url: str, store: Store, tmp_path: Path) -> None:
    async with authorization(url, tmp_path) as running:
        assert await running.revoke("", "policy") == 1
        admitted = await running.admit("of-ann")
        assert admitted.principal is not None
        assert admitted.number == 1


async def test_hints_are_repeated_with_the_newest_number(url: str, store: Store, tmp_path: Path) -> None:
    async with authorization(url, tmp_path, replicas=2) as running:
        await running.revoke("bob")
        await until(lambda: sum(hint.number == 1 for hint in running.hints) > 4)
        assert running.hints[-1].revocations[0].concerns(Principal(subject="bob"))
        changes = await running.client().changes(0)
        assert (changes.number, len(changes.revocations), changes.complete) == (1, 1, True)
        assert (await running.client().changes(1)).revocations == ()


@pytest.mark.parametrize(("kind", "name"), [("subject", ""), ("policy", "ann")])
async def test_a_revocation_says_clearly_whose(url: str, store: Store, tmp_path: Path, kind: str, name: str) -> None:
    async with authorization(url, tmp_path) as running:
        with pytest.raises(Failed) as raised:
            await running.revoke(name, kind)
        assert raised.value.kind == "contract"


async def test_who_may_ask_what_is_decided_by_nats(url: str, store: Store, tmp_path: Path) -> None:
    async with authorization(url, tmp_path) as running:
        with pytest.raises(BusError):
            await running.client("edge").revoke(Revoke(kind="subject", name="ann", id="0" * 32))
        assert (await running.client().changes(0)).number == 0


async def test_a_limit_holds_over_replicas(url: str, store: Store, tmp_path: Path) -> None:
    async with authorization(url, tmp_path, replicas=2) as running:
        granted = 0
        for _ in range(10):
            question = TakeFromLimit(key="a" * 32, limit=25, seconds=WINDOW, wanted=3, id=secrets.token_hex(16))
            granted += (await running.client().take(question)).granted
        assert granted == 25


def wanted(number: int, *limits: TokensWanted) -> TakeTokens:
    return TakeTokens(id=f"{'e' * 16}{number:016x}", limits=limits)


def limit_of(key: str, wanted: int, ahead: int = 0) -> TokensWanted:
    return TokensWanted(key=key * 32, limit=25, seconds=WINDOW, wanted=wanted, ahead=ahead)


@pytest.mark.rule("M82")
async def test_many_limits_hold_over_replicas(url: str, store: Store, tmp_path: Path) -> None:
    async with authorization(url, tmp_path, replicas=2) as running:
        client, granted = running.client(), Counter[str]()

        async def take(number: int) -> None:
            for key, found in zip("ab", await client.take_tokens(question(number)), strict=True):
                assert found is not None
                assert 0 < found.rest <= 10_000
                granted[key] += found.granted

        def question(number: int) -> TakeTokens:
            return TakeTokens(id=f"{number:016x}" * 2, limits=(limit_of("a", 3), limit_of("b", 2)))

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(take, number)
        assert granted == {"a": 25, "b": 25}


@pytest.mark.rule("M82")
async def test_a_service_of_the_release_before_is_asked_in_its_own_way(
    url: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows `authorization.limits` alone: limits hold, and finding that out costs one question of many."""
    async with nats_server(tmp_path) as nats, anyio.create_task_group() as tasks:
        service, edge = [await connect(tasks.start, nats, user) for user in ("authorization", "edge")]
        own = ProcessSettings()
        actor = Actor(service, own, tracer=Process("authorization", own).telemetry.tracer, log=structlog.get_logger())
        await tasks.start(actor.run)

        async def answer(question: TakeFromLimit, asked: RpcContext) -> Taken:
            return await take(store, question)

        await actor.answer(LIMITS, answer, group="authorization")
        client, found = AuthorizationClient(edge, timeout=5), list[TokensGranted | None]()
        subjects = asked_over(edge, monkeypatch)
        for number in range(10):
            limits = (limit_of("a", 3, ahead=100), limit_of("b", 0, ahead=100), limit_of("c", 1))
            found += await client.take_tokens(wanted(number, *limits))
        assert Counter(subjects) == {"authorization.limits_all": 1, "authorization.limits": 20}
        assert found[1::3] == [None] * 10, "nobody waits for it"
        assert [each.granted for each in found[::3] if each] == [3] * 8 + [1, 0]
        assert [each.granted for each in found[2::3] if each] == [1] * 10
        assert all(each.rest > 0 for each in (*found[::3], *found[2::3]) if each)
        tasks.cancel_scope.cancel()


async def test_limits_are_not_known_where_no_service_answers(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as nats, anyio.create_task_group() as tasks:
        client = AuthorizationClient(await connect(tasks.start, nats, "edge"), timeout=0.4)
        for number in range(2):
            with pytest.raises(NoResponders):
                await client.take_tokens(wanted(number, limit_of("a", 1)))
        tasks.cancel_scope.cancel()


async def test_it_outlives_an_outage_of_its_store(postgres: Postgres, tmp_path: Path) -> None:
    """It goes on to admit by what it knows, and revokes nothing that it could not write down."""
    async with postgres.migrated() as url, authorization(url, tmp_path) as running:
        await running.revoke("bob")
        await postgres.shut(url)
        await until(lambda: "MCPFLEET_STORE_URL" in why_not_ready(running.processes[0]))
        assert (await running.admit("of-ann")).principal is not None
        assert (await running.admit("of-bob")).principal is None
        with pytest.raises(Failed) as raised:
            await running.revoke("ann")
        assert (raised.value.kind, str(raised.value)) == (
            "unavailable", "authorization.revoke: the receiver's store does not answer",
        )  # fmt: skip
        await postgres.open(url)
        await until(lambda: running.processes[0].health.ready)
        assert await running.revoke("ann") == 2


async def test_tables_that_are_older_than_the_release_end_the_service(empty: str, tmp_path: Path) -> None:
    with pytest.raises(BaseExceptionGroup) as raised:
        async with authorization(empty, tmp_path):
            pass
    (leaf,) = leaves(raised.value)
    assert isinstance(leaf, ConfigurationError)
    assert "mcpfleet migrate" in str(leaf)
