"""Every kind of message that crosses the bus or is kept beyond it: how today's code writes and reads it."""

from __future__ import annotations

import base64
import tempfile
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from pydantic import BaseModel
from structlog.testing import LogCapture

from mcpfleet.bus import header
from mcpfleet.bus.errors import Failed, Fault
from mcpfleet.bus.header import ending
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts import call, catalog, hints, pool_tasks, stats, tasks
from mcpfleet.contracts.authorization import AUTHORITY_SUBJECT
from mcpfleet.contracts.call import CallBody, Completing, Deferring, Pull
from mcpfleet.contracts.manifest import Definition, Manifest, Rate, digest_of
from mcpfleet.contracts.permits import permits_hint_subject
from mcpfleet.contracts.places import handed_call_subject
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.sessions import CANCELLED_SUBJECT, CHANGED_SUBJECT
from mcpfleet.contracts.subscriptions import watch_report, watched_subject
from mcpfleet.contracts.task_payloads import KeptResult
from mcpfleet.edge.calls import end, in_flight
from mcpfleet.edge.protocol.sealer import KeySealer
from mcpfleet.telemetry.trace import TraceContext
from tests.kit.at_once import at_once
from tests.kit.logs import captured
from tests.unit.contracts.test_messages import DEFINITION, MESSAGES, SNAPSHOT, rpcs

EDGE, WORKER, CALL, DIGEST = "e" * 16, "f" * 16, "c" * 16, "0" * 32
TRACE = TraceContext("a" * 32, "b" * 16, sampled=True)
URI = "library://books/1"
SUBJECTS: Final = "subjects"
_SENT_AT: Final = 1_790_000_000.5
_KEY: Final = base64.b64encode(bytes(range(32))).decode()


RECORDED_AS: Final[dict[type[BaseModel], str]] = {stats.Stats: "Figures"}
"""Messages whose classes have other names by now than when they were recorded."""


@dataclass(frozen=True)
class Kind:
    """A kind of message."""

    name: str
    read: Callable[[bytes], Any]
    """Today's reading, as JSON; raises what the code raises for what it cannot read."""
    samples: tuple[bytes, ...]
    """As today's code writes it."""
    is_random: bool = False
    """It is written otherwise each time."""


def of_message(message: type[BaseModel], samples: Iterable[BaseModel]) -> Kind:
    """A message of the control plane: a question as `ask` writes it, an answer as an actor does, without defaults."""
    if message in {each.answer for each in rpcs().values()}:
        written = tuple(each.model_dump_json(exclude_defaults=True).encode() for each in samples)
    else:
        written = tuple(each.model_dump_json(exclude_none=True).encode() for each in samples)
    name = RECORDED_AS.get(message, message.__name__)
    return Kind(name, lambda raw: message.model_validate_json(raw).model_dump(mode="json"), written)


def _messages() -> list[Kind]:
    samples = [*MESSAGES, SNAPSHOT, Pull(edge=EDGE, call=CALL), *watch_report(EDGE, 1, [URI])]
    return [
        of_message(each, [one for one in samples if type(one) is each]) for each in dict.fromkeys(map(type, samples))
    ]


# -- what names itself by its bytes -----------------------------------------------------------------------------------

WHOLE = Definition(
    kind="tool", name="hold", wire={"name": "hold", "inputSchema": {"type": "object"}}, timeout=5, asks=("roots",),
    on_disconnect="continue", may_ask=("sampling",), scopes=("holds:write",), only_for=("tenant:acme",),
    per_caller=True, ttl=1.5, completes=("book",), rate=Rate(calls=3, seconds=60),
)  # fmt: skip
AGAIN = Definition(
    kind="tool", name="report", wire={"name": "report"}, task="optional", sanitizes=True, idempotency_meta=True
)
MANIFEST = Manifest(name="library", version="1", title="Library", definitions=(DEFINITION.text, WHOLE.text))


def _read_definition(raw: bytes) -> Any:
    return {"digest": digest_of(raw), **Definition.model_validate_json(raw).model_dump(mode="json")}


def _read_manifest(raw: bytes) -> Any:
    manifest = Manifest.model_validate_json(raw)
    named = {digest: definition.name for digest, definition in manifest.named}
    return {"digest": digest_of(raw), **manifest.model_dump(mode="json"), "named": named}


# -- header lines -----------------------------------------------------------------------------------------------------


def _lines() -> list[Kind]:
    token = header.clock.set(lambda: _SENT_AT)
    try:
        requests = header.write(1.5, TRACE), header.write(0.25, None)
        call_lines = header.write(60, TRACE, CALL, EDGE, "pa"), header.write(60, None, CALL, EDGE, call.NO_FLAGS)
        answers = header.BUSY, header.expired(), *map(header.fault, Fault)
    finally:
        header.clock.reset(token)
    errors = call.AUTHORED_ERROR, call.NOT_FOUND, call.BAD_PARAMS, f"{call.LACKING} sampling roots"
    return [
        Kind("line-request", _read_request, _encoded(requests)),
        Kind("line-call", _read_request, _encoded(call_lines)),
        Kind("line-answer", _read_answer, _encoded(answers)),
        Kind("line-error", lambda raw: end.read_line(raw.decode()), _encoded(errors)),
        Kind("line-accepted", lambda raw: in_flight._accepting(raw.decode()), _encoded([f"1 {WORKER}"])),
        Kind("line-result", _read_result, _encoded([f"1 {WORKER} 300000", call.FAILED])),
    ]


CHANGE: Final = hints.OwnChange("notifications/stock/changed", "lamp")


def _encoded(lines: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(line.encode() for line in lines)


def _read_request(raw: bytes) -> Any:
    sent = header.read(raw.decode())
    assert sent is not None
    return {"left": sent.left, "at": sent.at, "trace": sent.trace and sent.trace._asdict(), "extra": list(sent.extra)}


def _read_answer(raw: bytes) -> Any:
    error = ending("subject", Incoming("subject", "", b"", raw.decode()))
    return {"ends": type(error).__name__, "kind": error.kind if isinstance(error, Failed) else None}


def _read_result(raw: bytes) -> Any:
    order = in_flight.Order("library", DIGEST, b"", 0.0, None)
    remote = in_flight._remote(in_flight.Call(CALL, order, 0.0, deque()), raw.decode())
    return remote and asdict(remote)


# -- bodies that are no messages of the control plane -----------------------------------------------------------------

BODIES = [
    CallBody({}),
    CallBody({"book": 2**70}, {"roots": {}}, {"name": "c", "version": "1"}, Principal(subject="ann", scopes=("read",))),
    CallBody({}, uri=URI, log_level="info", cursor="7"),
    CallBody({}, completing=Completing("book", "Em", {"shelf": "1"})),
    CallBody({}, answers={"size": {"action": "decline"}}, memory={"steps": {"a": 1}}),
    CallBody({}, showing='["text",{"content":[]}]'),
    CallBody({}, deferring=Deferring("mcp", "*"), once=tasks.Reservation(key=DIGEST, arguments=DIGEST, fence=3)),
]


KEPT: Final = b'["data",{"_meta":{},"resultType":"complete","content":[{"type":"text","text":"5"}],"isError":false}]'
"""The result in a task's row that a sanitizer has yet to see."""


def _read_body(raw: bytes) -> Any:
    body = CallBody.read(raw)
    once = body.once and body.once.model_dump(mode="json")
    return {**asdict(body), "principal": body.principal.model_dump(mode="json"), "once": once}


def _hints() -> list[Kind]:
    """Subject and body."""
    resource = hints.resource_hint_subject("mcp", "library", hints.resource_key(URI))
    own = hints.extension_hint_subject("mcp", "library", hints.resource_key(CHANGE.text))
    written = {
        f"{catalog.hint_subject('mcp')} 7": {"catalog": "mcp", "number": 7},
        f"{tasks.task_hint_subject(tasks.task_key('t' * 32))} 3": {"task": "t" * 32, "version": 3},
        f"{resource} {URI}": {"endpoint": "mcp", "pool": "library", "uri": URI},
        f"{hints.list_hint_subject('mcp', 'library')} {hints.LISTS}": {"endpoint": "mcp", "pool": "library"},
        f"{own} {CHANGE.text}": {"endpoint": "mcp", "pool": "library", "notification": CHANGE[0], "key": CHANGE[1]},
    }
    return [_table("hints", written)]


def _table(name: str, written: dict[str, Any]) -> Kind:
    """Return a kind that is composed and compared as a whole, and read by nobody: another text would reach nobody."""
    return Kind(name, lambda raw: written[raw.decode()], _encoded(written))


def _subjects() -> Kind:
    """The askers and subjects of remote procedures, and all other subjects."""
    asked = {
        each.subject: {"question": each.question.__name__, "answer": each.answer.__name__, "asked_by": each.asked_by}
        for each in rpcs().values()
    }
    others = {
        call.call_subject("library", DIGEST): "a call",
        call.reply_subject(EDGE, CALL): "a call did not run",
        **{call.frame_subject(EDGE, "library", CALL, kind): f"a frame: {kind.name}" for kind in call.FrameKind},
        call.pool_cancel_subject("library"): "a cancel, to all of a pool",
        call.process_cancel_subject("library", WORKER): "a cancel, to one worker",
        permits_hint_subject("library"): "a hint: permits decide otherwise; the body is a PermitsChanged",
        watched_subject("library"): "what is watched; the body is a Watched",
        call.pull_subject("library", WORKER): "a result is fetched",
        handed_call_subject("library", WORKER): "a call is handed on; the body is its line, its definition, its body",
        AUTHORITY_SUBJECT: "a hint: permission has ended; the body is an Authority",
        CHANGED_SUBJECT: "a hint: a session is another one; the body is a SessionChanged",
        CANCELLED_SUBJECT: "a client takes a request back; the body is a CallCancelled",
        pool_tasks.work_subject("library"): "a task waits",
        pool_tasks.notify_subject("library", WORKER): "a task has news",
        **{stats.service_stats_subject(role, EDGE): f"figures of {role}" for role in stats.Role},
        stats.pool_stats_subject("library", WORKER): "a worker's figures",
    }
    return _table(SUBJECTS, {**asked, **others})


# -- what clients keep ------------------------------------------------------------------------------------------------


def _sealer() -> KeySealer:
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
        file.write(_KEY)
        file.flush()
        return KeySealer(file.name, adopted_after=0.0, log=captured(LogCapture()))


def _sealed(name: str, *contents: Any) -> Kind:
    keys, century = _sealer(), 3e9
    samples = tuple(at_once(keys.seal(content, bound=b"recorded", lasts=century)).encode() for content in contents)
    return Kind(name, lambda raw: at_once(keys.open(raw.decode(), bound=b"recorded")), samples, is_random=True)


KINDS: Final = {
    each.name: each
    for each in (
        *_messages(),
        Kind(
            Definition.__name__, _read_definition, (DEFINITION.text.encode(), WHOLE.text.encode(), AGAIN.text.encode())
        ),
        Kind(Manifest.__name__, _read_manifest, (MANIFEST.text.encode(),)),
        *_lines(),
        Kind("CallBody", _read_body, tuple(body.write() for body in BODIES)),
        *_hints(),
        _subjects(),
        _sealed(
            "sealed-state", {"number": 1, "memory": {}}, {"number": 2, "memory": {"a": 1}, "trace": TRACE.header()}
        ),
        Kind("kept-result", lambda raw: asdict(KeptResult.read(raw.decode())), (KEPT,)),
        _sealed("sealed-cursor", [50, None, None], [0, 1, "7"]),
    )
}
