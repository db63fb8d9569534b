"""Messages of the control plane: what one process writes, another reads, of this version or the next."""

from __future__ import annotations

import json
import pkgutil
from importlib import import_module
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

import mcpfleet.contracts
from mcpfleet.bus.rpc import Rpc
from mcpfleet.contracts.authorization import (
    Admit,
    AdmitAll,
    Admitted,
    AdmittedAll,
    Authority,
    Changes,
    ChangesWanted,
    Revocation,
    Revoke,
    Revoked,
    TakeFromLimit,
    Taken,
    TakeTokens,
    TokensGranted,
    TokensTaken,
    TokensWanted,
)
from mcpfleet.contracts.call import Alive, AliveAnswer, Cancel
from mcpfleet.contracts.catalog import (
    Announce,
    Announced,
    Listed,
    Snapshot,
    SnapshotAnswer,
    SnapshotWanted,
    Withdraw,
    Withdrawn,
)
from mcpfleet.contracts.files import Chunk, ChunkStored, ChunkWanted, PutChunk
from mcpfleet.contracts.grants import GrantsRenewed, HeldUris, Holder, NewGrant, Renewal, RenewGrants
from mcpfleet.contracts.manifest import Definition, FileRef, Skill
from mcpfleet.contracts.operator_tasks import StopTask
from mcpfleet.contracts.permits import AskedByCaller, PermitsChanged, PermitsWanted, Permitted
from mcpfleet.contracts.places import HeldPlace, HoldPlaces, PlacesHeld
from mcpfleet.contracts.policy import (
    ItemShown,
    StreamAsked,
    StreamJudged,
    StreamsAsked,
    StreamsJudged,
    Visible,
    VisibleWanted,
)
from mcpfleet.contracts.pool_tasks import Settle
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.sessions import (
    AnswerGiven,
    BeginSession,
    CallCancelled,
    ChangeSession,
    EndSession,
    GiveAnswer,
    ReadSession,
    Session,
    SessionBegun,
    SessionChanged,
    SessionEnded,
    SessionRead,
    WatchAgain,
    WatchedAgain,
)
from mcpfleet.contracts.stats import CallTimes, ReportedError, Stats, UnmetCondition
from mcpfleet.contracts.subscriptions import (
    CloseStreams,
    Count,
    EdgeLeased,
    LeaseEdge,
    OpenStream,
    StreamOpened,
    StreamsClosed,
)
from mcpfleet.contracts.tasks import Binding, Status
from tests.unit.contracts.task_messages import ID, OWNER, TASK_MESSAGES

DEFINITION = Definition(
    kind="tool",
    name="search",
    wire={"name": "search", "inputSchema": {"type": "object", "properties": {"q": {"default": None, "enum": [None]}}}},
)
FILE = FileRef(path="docs/a.md", digest="sha256:" + "0" * 64, size=1, mime="text/markdown")
PAGE = Definition(kind="resource", name="library://page", wire={"uri": "library://page", "name": "page"}, file=FILE)
SKILL_MD = FILE.model_copy(update={"path": "SKILL.md"})
SKILL = Definition(
    kind="resource",
    name="skill://a/SKILL.md",
    wire={"uri": "skill://a/SKILL.md", "name": "a", "description": "A.", "mimeType": "text/markdown"},
    file=SKILL_MD,
    skill=Skill(frontmatter={"name": "a", "description": "A.", "empty": None}, files=(SKILL_MD,)),
    revisions=("2026-07-28",),
)
LISTED = Listed(pool="library", digest=DEFINITION.digest, definition=DEFINITION)
SNAPSHOT = Snapshot(endpoint="mcp", number=7, name="library", version="1", listed=(LISTED,))

COUNT = Count(endpoint="mcp", partition="a" * 32, streams=2)
REVOCATION = Revocation(number=7, kind="tenant", key="0" * 32)

SESSION, CALLER, FIRST, SECOND = (digit * 32 for digit in "5c12")
QUESTION = f"{'a' * 16}-{'1' * 32}"
WHOLE_SESSION = Session(
    revision="2025-11-25",
    client={"name": "c", "version": "1", "icons": [{"src": "a:b", "sizes": None}]},
    capabilities={"sampling": {"tools": {}}, "experimental": {"a": None}},
    log_level="info",
    uris=("library://books/1",),
    streams=(FIRST, SECOND),
    lists={"tools": "0" * 32},
)

HOLDER = Holder(endpoint="mcp", principal=Principal(subject="ann", scopes=("read",)), number=7, credential_lasts=300)
MESSAGES = [
    *TASK_MESSAGES,
    Stats(started=1.5, ready=True),
    Stats(
        version="0.1.0",
        started=1.5,
        ready=False,
        stopping=True,
        lacks=(UnmetCondition(name="nats", why="no link"),),
        numbers={"streams": 2, "tasks_ended_completed": 1},
        troubles=(
            ReportedError(at=2.5, level="error", event="handler failed", of="tool=add", trace="a" * 32, sampled=True),
            ReportedError(at=2.5, level="warning", event="link lost"),
        ),
    ),
    Stats(
        started=1.5,
        ready=True,
        calls=(
            CallTimes(method="tools/call", tool="add", failed=1, waiting=2, first=10, counts=(3, 0, 1)),
            CallTimes(method="tools/list", first=4, counts=(1,)),
            CallTimes(tool="library://books/{id}", counts=(1,)),
        ),
    ),
    Admit(endpoint="mcp"),
    Admit(endpoint="mcp", credential=SecretStr("token")),
    Admitted(principal=Principal(), lasts=10),
    Admitted(principal=Principal(subject="ann", tenant="acme", scopes=("read",)), lasts=10),
    Admit(endpoint="mcp", credential=SecretStr("token"), resource="https://mcp.example.com/mcp"),
    Admitted(principal=Principal(subject="ann"), lasts=10, good_for=300),
    Admitted(principal=None, lasts=5, reason="expired"),
    AdmitAll(callers=(Admit(endpoint="mcp", credential=SecretStr("token"), resource="https://a/mcp"),)),
    AdmittedAll(verdicts=(Admitted(principal=None, lasts=5, reason="revoked"), None)),
    Admitted(principal=None, lasts=5, number=7),
    Authority(number=7),
    Authority(number=7, revocations=(REVOCATION,)),
    ChangesWanted(after=6),
    Changes(number=7, revocations=(REVOCATION,), complete=False),
    Revoke(kind="subject", name="ann", id="0" * 32),
    Revoke(kind="policy", id="0" * 32),
    Revoked(number=7),
    TakeFromLimit(key="0" * 32, limit=10, seconds=1.5, wanted=3, id="1" * 32),
    Taken(granted=3, rest=0.25),
    TakeTokens(
        id="1" * 32,
        limits=(
            TokensWanted(key="0" * 32, limit=10, seconds=1.5, wanted=3, ahead=1),
            TokensWanted(key="2" * 32, limit=10, seconds=1.5, back=2, window=7),
        ),
    ),
    TokensTaken(limits=(TokensGranted(granted=3, rest=0.25, window=7, left=6), TokensGranted(rest=0.25))),
    Announce(process="w1", digest="d"),
    Announce(process="w1", digest="d", manifest="{}", leaving=True),
    Announced(wanted=True),
    Announced(endpoints=("mcp", "other")),
    Announced(files=(FILE.digest,)),
    PutChunk(digest=FILE.digest, size=FILE.size, number=0, data="YQ=="),
    ChunkStored(),
    ChunkStored(whole=True),
    ChunkWanted(pool="library", digest=FILE.digest, number=0),
    Chunk(data="YQ=="),
    Listed(pool="library", digest=PAGE.digest, definition=PAGE),
    Listed(pool="library", digest=SKILL.digest, definition=SKILL),
    SnapshotWanted(endpoint="mcp"),
    SnapshotWanted(endpoint="mcp", known=0),
    SnapshotAnswer(number=7),
    SnapshotAnswer(number=7, snapshot=SNAPSHOT),
    Withdraw(pool="library"),
    Withdrawn(definitions=2, workers=0),
    OpenStream(edge="1" * 16, sequence=1, count=COUNT),
    StreamOpened(granted=True),
    CloseStreams(edge="1" * 16, sequence=2, counts=(COUNT,)),
    StreamsClosed(counts=1),
    LeaseEdge(edge="1" * 16),
    EdgeLeased(wanted=True),
    HoldPlaces(
        worker="1" * 16, take=HeldPlace(key="a" * 32, claim="b" * 32), free=(HeldPlace(key="c" * 32, claim="d" * 32),)
    ),
    PlacesHeld(is_known=True, holder="1" * 16),
    BeginSession(session=SESSION, owner=CALLER, revision="2025-06-18"),
    BeginSession(session=SESSION, owner=CALLER, revision="2025-06-18", lists={"tools": "ab"}),
    BeginSession(
        session=SESSION,
        owner=CALLER,
        revision="2025-11-25",
        client=WHOLE_SESSION.client,
        capabilities=WHOLE_SESSION.capabilities,
    ),
    SessionBegun(),
    ReadSession(session=SESSION, owner=CALLER),
    SessionRead(),
    SessionRead(session=Session(revision="2025-06-18")),
    SessionRead(session=WHOLE_SESSION, is_full=True),
    ChangeSession(session=SESSION, owner=CALLER, log_level="warning"),
    ChangeSession(session=SESSION, owner=CALLER, subscribe="library://books/1"),
    ChangeSession(session=SESSION, owner=CALLER, unsubscribe="library://books/1"),
    ChangeSession(session=SESSION, owner=CALLER, opened=FIRST),
    ChangeSession(session=SESSION, owner=CALLER, closed=FIRST, lists={"tools": "0" * 32}),
    ReadSession(session=SESSION, owner=CALLER, holder=HOLDER),
    ChangeSession(
        session=SESSION,
        owner=CALLER,
        subscribe="library://books/1",
        grant=NewGrant(holder=HOLDER, pool="library"),
    ),
    ChangeSession(session=SESSION, owner=CALLER, by=FIRST, written={"a:1": 2}, dirty=("a:2",), lost=FIRST),
    RenewGrants(holders=(HeldUris(holder=HOLDER, uris=("library://books/1",)),)),
    GrantsRenewed(renewals=(Renewal(allowed=True, lasts=60), Renewal(allowed=False))),
    EndSession(session=SESSION, owner=CALLER),
    SessionEnded(found=False),
    SessionChanged(session=SESSION),
    SessionChanged(session=SESSION, ended=True),
    SessionChanged(session=SESSION, ended=True, deleted=True),
    CallCancelled(session=SESSION, request="7"),
    CallCancelled(session=SESSION, request=7),
    CallCancelled(session=SESSION, request=7.5),
    GiveAnswer(session=SESSION, question=QUESTION, result={"action": "accept", "content": {"a": None}}),
    GiveAnswer(session=SESSION, question=QUESTION, error={"code": -1, "message": "User rejected sampling request"}),
    AnswerGiven(waited=True),
    WatchAgain(session=SESSION),
    WatchedAgain(),
    WatchedAgain(streams=(FIRST,)),
    VisibleWanted(
        endpoint="mcp",
        snapshot=7,
        group="staff",
        items=(ItemShown(kind="tool", name="search", pool="library", scopes=("read",)),),
    ),
    Visible(places=(0,), number=3),
    Visible(hides_nothing=True, number=3),
    StreamsAsked(
        streams=(
            StreamAsked(
                endpoint="mcp",
                principal=Principal(subject="ann", group="staff"),
                lists=("tools",),
                uris=("acct://accounts/ann",),
                tasks=("t1",),
            ),
        )
    ),
    StreamsJudged(streams=(StreamJudged(outcome="allowed", lists=("tools",), seconds=60.0, number=3), StreamJudged())),
    AskedByCaller(principal=Principal(subject="ann", group="staff"), uris=("acct://accounts/ann",)),
    PermitsWanted(callers=(AskedByCaller(principal=Principal(subject="ann"), uris=("acct://accounts/ann",)),)),
    Permitted(callers=((True, False), None)),
    PermitsChanged(worker="w1", number=2, uris=("acct://accounts/ann",), since=1),
    Cancel(edge="e1", call="1"),
    Alive(worker="w1", calls=("1", "2")),
    AliveAnswer(),
    AliveAnswer(unwanted=("1",), missing=("2",)),
]


def rpcs() -> dict[str, Rpc[Any, Any]]:
    """Every rpc that a contract declares, by its name."""
    modules = [
        import_module(f"mcpfleet.contracts.{module.name}")
        for module in pkgutil.iter_modules(mcpfleet.contracts.__path__)
    ]
    return {name: value for module in modules for name, value in vars(module).items() if isinstance(value, Rpc)}


@pytest.mark.parametrize("message", MESSAGES, ids=repr)
def test_a_message_is_read_as_it_was_written(message: BaseModel) -> None:
    """Written as the bus writes it: what is None is left out."""
    assert type(message).model_validate_json(message.model_dump_json(exclude_none=True)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=repr)
def test_a_field_that_a_newer_process_added_is_ignored(message: BaseModel) -> None:
    newer = {**json.loads(message.model_dump_json(exclude_none=True)), "added_later": {"a": 1}}
    assert type(message).model_validate(newer) == message


@pytest.mark.parametrize("message", MESSAGES, ids=repr)
def test_a_message_is_frozen(message: BaseModel) -> None:
    field = next(iter(type(message).model_fields), "added_later")
    with pytest.raises(ValidationError):
        setattr(message, field, None)


@pytest.mark.parametrize("rpc", rpcs().values(), ids=rpcs())
def test_every_question_and_answer_is_tried_above(rpc: Rpc[Any, Any]) -> None:
    tried = {type(message) for message in MESSAGES}
    assert {rpc.question, rpc.answer} <= tried


def test_invariant_9_a_credential_prints_as_stars_and_crosses_the_bus() -> None:
    admit = Admit(endpoint="mcp", credential=SecretStr("token"))
    assert "token" not in f"{admit!r} {admit}"
    assert json.loads(admit.model_dump_json())["credential"] == "token"


@pytest.mark.rule("M72")
@pytest.mark.parametrize("task", ["", "t" * 21, "t" * 65, "t" * 31 + ".", "t" * 31 + "\n", "é" * 32])
def test_a_tasks_id_is_long_and_safe_in_a_header(task: str) -> None:
    with pytest.raises(ValidationError):
        StopTask(id=task)


def test_a_text_with_a_nul_which_no_store_keeps_is_refused() -> None:
    with pytest.raises(ValidationError):
        Settle(id=ID, fence=1, status=Status.COMPLETED, end="\x00")


@pytest.mark.rule("D10")
def test_a_binding_is_endpoint_subject_client_and_tenant_and_no_token() -> None:
    refreshed = Principal(subject="ann", tenant="acme", scopes=("other",))
    assert Binding.of("mcp", refreshed).digest == OWNER.digest
    others: list[dict[str, Any]] = [{"endpoint": "x"}, {"subject": None}, {"client": "acme"}, {"tenant": None}]
    assert len({OWNER.digest, *(OWNER.model_copy(update=other).digest for other in others)}) == 5


@pytest.mark.parametrize("endpoint", ["", "MCP", "a.b", "a*", "a" * 64, "a\n"])
def test_an_endpoint_is_a_token_of_a_subject(endpoint: str) -> None:
    with pytest.raises(ValidationError):
        Admit(endpoint=endpoint)


@pytest.mark.rule("D10")
@pytest.mark.parametrize(
    ("principal", "partition"),
    [
        (Principal(subject="s", client="c", tenant="t"), "t"),
        (Principal(subject="s", client="c"), "c"),
        (Principal(subject="s"), "s"),
        (Principal(), None),
    ],
)
def test_the_partition_is_the_tenant_else_the_client_else_the_subject(
    principal: Principal, partition: str | None
) -> None:
    assert principal.partition == partition
