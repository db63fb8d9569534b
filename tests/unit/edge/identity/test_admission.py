"""Admission of callers: asked once, kept for its time, within a bound."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest
from structlog.testing import LogCapture

from mcpfleet.bus.errors import BusError, Unanswered, Unavailable
from mcpfleet.contracts.authorization import Admit, Admitted, AuthorizationClient, Revocation
from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.edge.identity.admission import Admission
from mcpfleet.edge.identity.metadata import ResourceMetadata
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.request_head import Credential
from mcpfleet.wire.errors import Rejection
from tests.kit.logs import captured

pytestmark = pytest.mark.usefixtures("jumping")

SOMEBODY = Principal(subject="ann")
SETTINGS = EdgeSettings(admission_entries=10)


class Verdicts(AuthorizationClient):
    """Stands where the bus begins: gives one answer, when the test lets it."""

    def __init__(self, answer: Admitted | BusError, *, held: bool = False) -> None:
        self.answer = answer
        self.asked = Counter[str]()
        self.tokens: list[str | None] = []
        self.go_on = anyio.Event()
        self.begun = anyio.Event()
        if not held:
            self.go_on.set()

    async def admit(self, request: Admit) -> Admitted:
        self.asked[request.endpoint] += 1
        self.tokens.append(request.credential.get_secret_value() if request.credential else None)
        self.begun.set()
        await self.go_on.wait()
        if isinstance(self.answer, BusError):
            raise self.answer
        return self.answer

    admit_together = admit


def admitted(lasts: float = 10.0) -> Admitted:
    return Admitted(principal=SOMEBODY, lasts=lasts)


async def refusal(admission: Admission, endpoint: str = "mcp") -> tuple[int, int | None]:
    with pytest.raises(Rejection) as raised:
        await admission.admit(endpoint)
    return raised.value.status, raised.value.code


async def test_a_verdict_is_kept_for_its_time() -> None:
    client = Verdicts(admitted())
    admission = Admission(client, SETTINGS)
    assert [await admission.admit("mcp") for _ in range(3)] == [SOMEBODY] * 3
    assert client.asked == {"mcp": 1}


async def test_a_verdict_that_has_expired_is_asked_for_again() -> None:
    client = Verdicts(admitted(lasts=0))
    admission = Admission(client, SETTINGS)
    await admission.admit("mcp")
    await admission.admit("mcp")
    assert client.asked == {"mcp": 2}


async def test_the_time_of_a_verdict_counts_from_the_asking() -> None:
    """Two clocks are never compared, and the time on the way is not a gift."""
    client = Verdicts(admitted(lasts=0.1), held=True)
    admission = Admission(client, SETTINGS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(admission.admit, "mcp")
        await client.begun.wait()
        await anyio.sleep_until(anyio.current_time() + 0.11)
        client.go_on.set()
    await admission.admit("mcp")
    assert client.asked == {"mcp": 2}


async def test_a_refused_credential_is_401_and_is_kept_too() -> None:
    client = Verdicts(Admitted(principal=None, lasts=10, reason="expired"))
    admission = Admission(client, SETTINGS)
    assert await refusal(admission) == await refusal(admission) == (401, -32603)
    assert client.asked == {"mcp": 1}


@pytest.mark.parametrize("error", [Unanswered("authorization.admit"), Unavailable("authorization.admit")])
async def test_an_authorization_that_does_not_answer_is_504_and_is_asked_again(error: BusError) -> None:
    client = Verdicts(error)
    admission = Admission(client, SETTINGS)
    assert await refusal(admission) == (504, -32603)
    client.answer = admitted()
    assert await admission.admit("mcp") == SOMEBODY


async def test_many_who_wait_ask_once() -> None:
    client = Verdicts(admitted(), held=True)
    admission = Admission(client, SETTINGS)
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(admission.admit, "mcp")
        await client.begun.wait()
        await anyio.wait_all_tasks_blocked()
        client.go_on.set()
    assert client.asked == {"mcp": 1}


async def test_endpoints_are_asked_for_apart() -> None:
    client = Verdicts(admitted())
    admission = Admission(client, SETTINGS)
    await admission.admit("one")
    await admission.admit("two")
    assert client.asked == {"one": 1, "two": 1}


async def test_one_who_leaves_while_it_asks_leaves_the_asking_to_another() -> None:
    client = Verdicts(admitted(), held=True)
    admission = Admission(client, SETTINGS)
    impatience = anyio.CancelScope()
    answers: list[Principal] = []

    async def leave() -> None:
        with impatience:
            await admission.admit("mcp")

    async def stay() -> None:
        answers.append(await admission.admit("mcp"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leave)
        await client.begun.wait()
        tasks.start_soon(stay)
        await anyio.wait_all_tasks_blocked()
        impatience.cancel()
        await anyio.wait_all_tasks_blocked()
        client.go_on.set()
    assert answers == [SOMEBODY]
    assert client.asked == {"mcp": 2}


async def test_one_failure_answers_all_who_waited_for_it() -> None:
    """Asking in turn, the last of many would wait for the sum of all the timeouts (every wait is bounded)."""
    client = Verdicts(Unanswered("authorization.admit"), held=True)
    admission = Admission(client, SETTINGS)
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(refusal, admission)
        await client.begun.wait()
        await anyio.wait_all_tasks_blocked()
        client.go_on.set()
    assert client.asked == {"mcp": 1}


async def test_at_most_so_many_verdicts_are_kept_and_the_least_recently_used_goes() -> None:
    client = Verdicts(admitted())
    admission = Admission(client, EdgeSettings(admission_entries=2))
    for endpoint in ("one", "two", "one", "three", "one"):
        await admission.admit(endpoint)
    assert client.asked == {"one": 1, "two": 1, "three": 1}
    await admission.admit("two")
    assert client.asked["two"] == 2


def somebody(number: int = 0) -> Credential:
    return Credential(f"token-{number}".encode())


async def test_credentials_are_asked_for_apart_and_told_to_authorization() -> None:
    client = Verdicts(admitted())
    admission = Admission(client, SETTINGS)
    for credential in (somebody(1), somebody(2), somebody(1), None):
        await admission.admit("mcp", credential)
    assert client.asked == {"mcp": 3}
    assert client.tokens == ["token-1", "token-2", None]


def wants_credentials() -> ResourceMetadata:
    """The metadata of an edge whose callers need a credential."""
    settings = EdgeSettings(authorization="static", public_url="https://mcp.example.com")
    return ResourceMetadata(settings, "http://127.0.0.1:8000", lambda _endpoint: ())


@pytest.mark.rule("M63")
@pytest.mark.parametrize("principal", [Principal(client="cli"), Principal(subject="ann", scopes=("write",))])
@pytest.mark.parametrize("is_open", [True, False])
async def test_who_has_a_name_needs_an_operations_scopes(principal: Principal, *, is_open: bool) -> None:
    admission = Admission(Verdicts(admitted()), SETTINGS, metadata=None if is_open else wants_credentials())
    with pytest.raises(Rejection) as refused:
        admission.require("mcp", principal, ("read",))
    assert refused.value.status == 403
    admission.require("mcp", principal.model_copy(update={"scopes": ("read",)}), ("read",))
    admission.require("mcp", ANONYMOUS, ("read",))


async def test_nobody_is_admitted_without_a_name_where_a_credential_is_needed() -> None:
    """Authorization may be set to want none where the edge wants one; nobody gets in by that."""
    nobody = Verdicts(Admitted(principal=Principal(), lasts=10))
    admission = Admission(nobody, SETTINGS, metadata=wants_credentials())
    for _ in range(2):
        with pytest.raises(Rejection) as refused:
            await admission.admit("mcp", somebody())
        assert refused.value.status == 401
    assert nobody.asked == {"mcp": 1}, "the refusal is kept"
    assert await Admission(nobody, SETTINGS).admit("mcp") is ANONYMOUS


@pytest.mark.parametrize("edge_wants", [True, False])
async def test_an_operator_reads_that_edge_and_authorization_are_not_set_alike(*, edge_wants: bool) -> None:
    lines = LogCapture()
    verdict = Admitted(principal=Principal() if edge_wants else None, lasts=0)
    access = wants_credentials() if edge_wants else None
    admission = Admission(Verdicts(verdict), SETTINGS, metadata=access, log=captured(lines))
    with pytest.raises(Rejection):
        await admission.admit("mcp", somebody() if edge_wants else None)
    [line] = lines.entries
    assert (line["event"], line["setting"]) == ("no caller admitted", "MCPFLEET_AUTHORIZATION")


async def test_a_verdict_in_use_is_renewed_before_it_ends_and_nobody_waits() -> None:
    client = Verdicts(admitted(lasts=0.4))
    admission = Admission(client, SETTINGS)
    async with anyio.create_task_group() as tasks:
        await tasks.start(admission.run)
        await admission.admit("mcp")
        await anyio.sleep(0.22)
        client.go_on = anyio.Event()
        with anyio.fail_after(0.1):
            for _ in range(5):
                await admission.admit("mcp")
                await anyio.lowlevel.checkpoint()
        assert client.asked == {"mcp": 2}
        client.go_on.set()
        await anyio.wait_all_tasks_blocked()
        await anyio.sleep(0.2)
        with anyio.fail_after(0.1):
            await admission.admit("mcp")
        tasks.cancel_scope.cancel()


async def test_an_outage_of_authorization_costs_nothing_until_the_verdict_ends() -> None:
    client = Verdicts(admitted(lasts=0.6))
    admission = Admission(client, SETTINGS)
    async with anyio.create_task_group() as tasks:
        await tasks.start(admission.run)
        await admission.admit("mcp")
        client.answer = Unavailable("authorization.admit")
        await anyio.sleep(0.35)
        for _ in range(3):
            assert await admission.admit("mcp") == SOMEBODY
            await anyio.sleep(0.05)
        assert client.asked["mcp"] > 2, "it is tried again and again"
        await anyio.sleep(0.15)
        assert await refusal(admission) == (504, -32603)
        client.answer = admitted()
        assert await admission.admit("mcp") == SOMEBODY
        tasks.cancel_scope.cancel()


async def test_a_renewal_that_is_refused_ends_the_verdict() -> None:
    client = Verdicts(admitted(lasts=0.4))
    admission = Admission(client, SETTINGS)
    async with anyio.create_task_group() as tasks:
        await tasks.start(admission.run)
        await admission.admit("mcp")
        client.answer = Admitted(principal=None, lasts=10)
        await anyio.sleep(0.22)
        await admission.admit("mcp")
        await anyio.wait_all_tasks_blocked()
        assert await refusal(admission) == (401, -32603)
        tasks.cancel_scope.cancel()


async def test_a_streams_verdict_is_kept_for_its_time_and_asked_for_afresh_on_demand() -> None:
    client = Verdicts(admitted(lasts=10.0))
    admission = Admission(client, SETTINGS)
    begun = anyio.current_time()
    verdict = await admission.verdict("mcp", somebody())
    assert verdict.principal == SOMEBODY
    assert verdict.valid_until - begun == pytest.approx(10, abs=1)
    await admission.verdict("mcp", somebody())
    assert client.asked == {"mcp": 1}
    await admission.verdict("mcp", somebody(), fresh=True)
    assert client.asked == {"mcp": 2}
    client.answer = Admitted(principal=None, lasts=1)
    with pytest.raises(Rejection):
        await admission.verdict("mcp", somebody(), fresh=True)


@pytest.mark.rule("S2")
async def test_a_streams_verdict_is_valid_for_as_long_as_its_credential() -> None:
    client = Verdicts(admitted(lasts=10.0).model_copy(update={"good_for": 300.0}))
    admission = Admission(client, SETTINGS)
    verdict = await admission.verdict("mcp", somebody())
    assert verdict.valid_until - verdict.asked_at == pytest.approx(300)
    assert (await admission.verdict("mcp", somebody())).asked_at == verdict.asked_at


async def test_a_stream_gets_no_verdict_from_before_a_change_of_policy() -> None:
    """A call may for half of a verdict's life; a stream lasts longer."""
    client = Verdicts(admitted(lasts=3600.0))
    admission = Admission(client, SETTINGS)
    await admission.verdict("mcp", somebody())
    admission.apply([Revocation(number=7, kind="subject", key="other")], 7)
    await admission.verdict("mcp", somebody())
    assert client.asked == {"mcp": 1}
    admission.apply([Revocation(number=8, kind="policy", key="")], 8)
    client.answer = admitted(lasts=3600.0).model_copy(update={"number": 8})
    await admission.verdict("mcp", somebody())
    assert client.asked == {"mcp": 2}


async def test_invented_tokens_evict_no_valid_verdict() -> None:
    client = Verdicts(admitted())
    admission = Admission(client, SETTINGS)
    await admission.admit("mcp", somebody())
    client.answer = Admitted(principal=None, lasts=10)
    for number in range(1, 100):
        with pytest.raises(Rejection):
            await admission.admit("mcp", somebody(number))
    await admission.admit("mcp", somebody())
    assert client.asked["mcp"] == 100
