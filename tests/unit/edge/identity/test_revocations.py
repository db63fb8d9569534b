"""Revocations at an edge: applied in order, none left out, and never overtaken by an older verdict."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import structlog

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import Unavailable
from mcpfleet.bus.memory.switch import Switch
from mcpfleet.contracts.authorization import (
    AUTHORITY_SUBJECT,
    Admit,
    Admitted,
    Authority,
    AuthorizationClient,
    Changes,
    Revocation,
    revoked_name,
)
from mcpfleet.contracts.permissions import permissions, users
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.identity.admission import Admission
from mcpfleet.edge.identity.revocation import Revocations
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.request_head import Credential
from mcpfleet.telemetry.instruments import BusInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.wire.errors import Rejection
from tests.kit.waiting import until

pytestmark = pytest.mark.usefixtures("jumping")

ANN, BOB = Credential(b"of-ann"), Credential(b"of-bob")
SETTINGS = EdgeSettings(admission_entries=10)
PEOPLE = {"of-ann": Principal(subject="ann"), "of-bob": Principal(subject="bob", tenant="acme")}
LOG = structlog.get_logger()


def revocation(number: int, name: str, kind: str = "subject") -> Revocation:
    key = revoked_name(kind, name)[1]  # type: ignore[arg-type]  # the tests' kinds are known ones
    return Revocation.model_validate({"number": number, "kind": kind, "key": key})


class Verdicts(AuthorizationClient):
    """Stands where the bus begins: admits who is not revoked, and knows all revocations up to a number."""

    def __init__(self) -> None:
        self.revocations: list[Revocation] = []
        self.asked: list[str] = []
        self.changes_asked: list[int] = []
        self.held: anyio.Event | None = None
        self.is_away = False
        self.lasts = 60.0
        self.key: str | None = None
        """With one, a verdict holds for a minute while it is heard of."""

    @property
    def number(self) -> int:
        return len(self.revocations)

    async def admit(self, request: Admit) -> Admitted:
        assert request.credential is not None
        token = request.credential.get_secret_value()
        self.asked.append(token)
        answer = self._admitted(token)
        if self.held is not None:
            await self.held.wait()
        if self.is_away:
            raise Unavailable("authorization.admit")
        return answer

    admit_together = admit

    def _admitted(self, token: str) -> Admitted:
        principal = PEOPLE[token]
        ended = any(each.kind != "policy" and each.concerns(principal) for each in self.revocations)
        lasts_heard = None if self.key is None else 60.0
        return Admitted(
            principal=None if ended else principal,
            lasts=self.lasts,
            number=self.number,
            key=self.key,
            lasts_heard=lasts_heard,
        )

    async def changes(self, after: int) -> Changes:
        self.changes_asked.append(after)
        if self.is_away:
            raise Unavailable("authorization.changes")
        return Changes(number=self.number, revocations=tuple(self.revocations[after:]))


async def outcome(admission: Admission, credential: Credential) -> int:
    """The status that a caller would get."""
    try:
        await admission.admit("mcp", credential)
    except Rejection as rejection:
        return rejection.status
    return 200


async def is_admitted(admission: Admission, credential: Credential) -> bool:
    status = await outcome(admission, credential)
    assert status in {200, 401}
    return status == 200


async def test_a_revocation_drops_just_whom_it_concerns() -> None:
    verdicts = Verdicts()
    admission = Admission(verdicts, SETTINGS)
    for credential in (ANN, BOB):
        assert await is_admitted(admission, credential)
    verdicts.revocations.append(revocation(1, "acme", "tenant"))
    admission.apply(verdicts.revocations, 1)
    assert await is_admitted(admission, ANN)
    assert not await is_admitted(admission, BOB)
    assert verdicts.asked == ["of-ann", "of-bob", "of-bob"]


async def test_an_answer_from_before_a_revocation_that_arrives_after_it_is_asked_for_again() -> None:
    """The interleaving that would admit for a whole lease whoever was revoked while the answer was on its way."""
    verdicts = Verdicts()
    admission = Admission(verdicts, SETTINGS)
    verdicts.held = anyio.Event()
    outcomes: list[bool] = []

    async def ask() -> None:
        outcomes.append(await is_admitted(admission, ANN))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert verdicts.asked == ["of-ann"], "the answer, which admits, is on its way"
        verdicts.revocations.append(revocation(1, "ann"))
        admission.apply(verdicts.revocations, 1)
        verdicts.held.set()
    assert outcomes == [False, False]
    assert verdicts.asked[:2] == ["of-ann", "of-ann"]
    assert not await is_admitted(admission, ANN)


async def test_a_verdict_that_is_handed_over_as_a_revocation_arrives_is_asked_for_again() -> None:
    """A caller that waited for another's answer comes to its turn after it: a revocation may come between."""
    verdicts = Verdicts()
    admission = Admission(verdicts, SETTINGS)
    verdicts.held = anyio.Event()
    outcomes: list[bool] = []

    async def ask(*, then_revoke: bool) -> None:
        outcomes.append(await is_admitted(admission, ANN))
        if then_revoke:
            verdicts.revocations.append(revocation(1, "ann"))
            admission.apply(verdicts.revocations, 1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: ask(then_revoke=True))
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(lambda: ask(then_revoke=False))
        await anyio.wait_all_tasks_blocked()
        verdicts.held.set()
    assert outcomes == [True, False]


async def test_an_authorization_that_never_catches_up_admits_nobody() -> None:
    verdicts = Verdicts()
    admission = Admission(verdicts, SETTINGS)
    admission.begin(7)
    assert await outcome(admission, ANN) == 504
    assert len(verdicts.asked) == 3


async def test_a_policy_has_everybody_asked_for_anew_within_half_a_life() -> None:
    verdicts = Verdicts()
    verdicts.lasts = 0.4
    admission = Admission(verdicts, EdgeSettings(admission_entries=100))
    assert await is_admitted(admission, ANN)
    verdicts.lasts = 60.0
    verdicts.revocations.append(revocation(1, "", "policy"))
    admission.apply(verdicts.revocations, 1)
    await anyio.sleep(0.21)
    assert await is_admitted(admission, ANN)
    assert verdicts.asked == ["of-ann", "of-ann"]


async def test_an_old_revocation_changes_nothing() -> None:
    verdicts = Verdicts()
    verdicts.revocations += [revocation(1, "eve"), revocation(2, "eve")]
    admission = Admission(verdicts, SETTINGS)
    admission.begin(2)
    await is_admitted(admission, ANN)
    admission.apply([revocation(1, "ann")], 1)
    await is_admitted(admission, ANN)
    assert verdicts.asked == ["of-ann"]


async def test_who_holds_a_permission_for_longer_hears_whose_may_have_ended() -> None:
    admission, heard = Admission(Verdicts(), SETTINGS), list[list[bool]]()
    people = list(PEOPLE.values())
    admission.on_revoked(lambda concerns: heard.append([concerns(principal) for principal in people]))
    admission.apply([revocation(1, "acme", "tenant")], 1)
    admission.apply([revocation(2, "", "policy")], 2)
    assert heard == [[False, True], [True, True]]


# -- hints, over a bus ------------------------------------------------------------------------------------------------


class Hinted:
    """An edge's authority over a bus, and authorization's end of it."""

    def __init__(self, tasks: Any, switch: Switch) -> None:
        self.verdicts = Verdicts()
        self.admission = Admission(self.verdicts, EdgeSettings(admission_entries=10, authority_silence=0.2))
        settings = EdgeSettings(authority_silence=1.0)
        instruments = BusInstruments(Metrics())

        def bus(user: str, process: str) -> Bus:
            connector = switch.connector(user, settings, process=process)
            return Bus(connector, settings, user=user, process=process, instruments=instruments, log=LOG)

        self.edge, self.service = bus("edge", "e" * 16), bus("authorization", "a" * 16)
        self.authority = Revocations(self.edge, self.verdicts, self.admission, settings, log=LOG)

    def revoke(self, name: str) -> None:
        self.verdicts.revocations.append(revocation(self.verdicts.number + 1, name))

    def hint(self, newest: int = 32, **keys: Any) -> None:
        told = tuple(self.verdicts.revocations[-newest:]) if newest else ()
        hint = Authority(number=self.verdicts.number, revocations=told, **keys)
        self.service.publish(AUTHORITY_SUBJECT, hint.model_dump_json().encode())


@asynccontextmanager
async def hinted() -> AsyncIterator[Hinted]:
    """The two ends, with the edge past its first question."""
    settings = EdgeSettings()
    rights = {user: permissions(user, pool, settings.subject_prefix) for user, pool in users([]).items()}
    switch = Switch(rights, seed=1)
    switch.start()
    async with anyio.create_task_group() as tasks:
        made = Hinted(tasks, switch)
        for bus in (made.edge, made.service):
            await tasks.start(bus.run)
            await bus.wait_up()
        await tasks.start(made.authority.run)
        yield made
        tasks.cancel_scope.cancel()
    switch.stop()


async def test_a_hint_that_follows_is_applied_without_a_question() -> None:
    async with hinted() as made:
        made.hint()
        made.revoke("ann")
        made.hint()
        await until(lambda: made.admission.number == 1)
        asked = len(made.verdicts.changes_asked)
        made.revoke("bob")
        made.hint()
        await until(lambda: made.admission.number == 2)
        assert len(made.verdicts.changes_asked) == asked


async def test_a_gap_is_asked_for() -> None:
    async with hinted() as made:
        made.revoke("eve")
        made.hint()
        await until(lambda: made.admission.number == 1)
        assert await is_admitted(made.admission, ANN)
        made.revoke("ann")
        made.revoke("eve")
        made.hint(newest=1)
        await until(lambda: made.admission.number == 3)
        assert 1 in made.verdicts.changes_asked
        assert not await is_admitted(made.admission, ANN)


async def test_silence_on_a_proven_link_is_asked_about() -> None:
    async with hinted() as made:
        made.hint()
        made.revoke("ann")
        await until(lambda: made.admission.number == 1)


async def test_a_garbled_hint_changes_nothing() -> None:
    async with hinted() as made:
        for body in (b"", b"{}", b'{"number":"x"}', b"[]"):
            made.service.publish(AUTHORITY_SUBJECT, body)
        made.revoke("eve")
        made.hint()
        await until(lambda: made.admission.number == 1)


async def test_an_edge_that_starts_late_does_not_read_what_is_over() -> None:
    async with hinted() as made:
        for _ in range(40):
            made.revoke("eve")
        made.hint(newest=0)
        await until(lambda: made.admission.number == 40)
        assert 0 not in made.verdicts.changes_asked


async def holds(made: Hinted, seconds: float) -> bool:
    """Whether a verdict holds for so long; hints go on."""
    asked = len(made.verdicts.asked)
    with anyio.move_on_after(seconds):
        while True:
            made.hint(newest=1, keys=("key",))
            await anyio.sleep(0.05)
    await outcome(made.admission, ANN)
    return len(made.verdicts.asked) == asked


@pytest.mark.rule("M86")
async def test_hints_that_name_its_key_keep_a_verdict_though_nothing_was_ever_revoked() -> None:
    async with hinted() as made:
        made.verdicts.key, made.verdicts.lasts = "key", 0.2
        made.hint(keys=("key",))
        await outcome(made.admission, ANN)
        assert await holds(made, 0.5)


@pytest.mark.rule("M86")
async def test_hints_keep_no_verdict_while_a_revocation_that_they_tell_of_is_not_known() -> None:
    """It cannot be fetched, and may be this caller's."""
    async with hinted() as made:
        made.verdicts.key, made.verdicts.lasts = "key", 0.2
        made.hint(keys=("key",))
        await outcome(made.admission, ANN)
        made.verdicts.is_away = True
        made.revoke("eve")
        made.revoke("eve")
        assert not await holds(made, 1.3)


@pytest.mark.rule("M87")
async def test_a_hint_without_its_key_ends_a_verdict() -> None:
    async with hinted() as made:
        made.verdicts.key = "key"
        await outcome(made.admission, ANN)
        made.hint(keys=("key",))
        made.hint(keys=("other",))
        await until(lambda: not list(made.admission._admitted.values()))
