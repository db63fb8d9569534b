"""A message of each kind that tasks have, and more where a field matters."""

from __future__ import annotations

from mcpfleet.contracts.operator_tasks import ListedTask, Listing, ListTasks, StopTask, TaskStopped, Why
from mcpfleet.contracts.pool_tasks import (
    Answered,
    Ask,
    Claimed,
    ClaimTasks,
    Defer,
    Deferred,
    Extend,
    Extended,
    QuestionsAsked,
    Release,
    Released,
    Remember,
    Remembered,
    ResultKept,
    Serve,
    Served,
    Settle,
    Settled,
    Step,
    Stepped,
    TaskLease,
    TaskQuestion,
    TasksClaimed,
)
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.tasks import (
    Binding,
    CancelTask,
    Create,
    Created,
    Found,
    Get,
    KeyOutcome,
    NewTask,
    Once,
    Reserve,
    Reserved,
    Status,
    TaskCancelled,
    TaskView,
    Update,
    Updated,
    Versions,
    VersionsWanted,
)

ID, DIGEST = "t" * 32, "0" * 32
OWNER = Binding.of("mcp", Principal(subject="ann", tenant="acme"))
TASK = NewTask(id=ID, binding=OWNER, pool="library", definition=DIGEST, name="report", origin='{"a": "\\u0000"}')
ONCE = Once(key=DIGEST, arguments=DIGEST)
VIEW = TaskView(
    id=ID, status=Status.INPUT_REQUIRED, version=2, created_at=1.5, updated_at=2.5, poll_ms=1000, endpoint="mcp",
    pool="library", definition=DIGEST, name="report", requests={"month": "{}"},
)  # fmt: skip
SETTLE = Settle(id=ID, fence=1, status=Status.FAILED, end="{}", failure="handler")
ANSWER = Answered(key="month", digest=DIGEST, answer="{}")
CLAIMED = Claimed(
    id=ID, fence=1, definition=DIGEST, name="report", origin="{}", attempts=0, limit=60,
    steps=(Remembered(key=DIGEST, result="1"),), answers=(ANSWER,),
)  # fmt: skip
LISTED_TASK = ListedTask(
    id=ID, endpoint="mcp", pool="library", name="report", definition=DIGEST, status=Status.WORKING, attempts=1, age=5,
    quiet=2,
)  # fmt: skip

TASK_MESSAGES = [
    Create(task=TASK),
    Create(task=TASK.model_copy(update={"policy": "{}", "message": "begins"}), once=ONCE),
    Created(outcome=KeyOutcome.NEW, task=VIEW),
    Get(id=ID, binding=OWNER),
    Found(),
    Found(task=VIEW.model_copy(update={"status": Status.COMPLETED, "end": "{}", "ttl_ms": 5, "requests": {}})),
    Update(id=ID, binding=OWNER, answers={"month": "{}"}),
    Updated(known=True, consumed=("month",)),
    CancelTask(id=ID, binding=OWNER),
    TaskCancelled(known=True, status=Status.CANCELLED),
    VersionsWanted(ids=(ID,)),
    Versions(versions={ID: 3}),
    Reserve(once=ONCE, pool="library", lasts=60, holder=DIGEST),
    Reserve(once=ONCE, pool="library", lasts=60, holder=DIGEST, ended="not_run"),
    Reserved(outcome=KeyOutcome.REPEAT, fence=1, result="{}"),
    ListTasks(why=Why.STUCK, pool="library"),
    Listing(tasks=(LISTED_TASK,), more=True),
    StopTask(id=ID),
    TaskStopped(known=True, status=Status.CANCELLED),
    Defer(task=TASK, process="w1", once=ONCE.model_copy(update={"fence": 1})),
    Deferred(outcome=KeyOutcome.NEW, fence=1, lease=10),
    ClaimTasks(claim=DIGEST, process="w1", definitions=(DIGEST,), most=4, held=2),
    TasksClaimed(tasks=(CLAIMED,), lease=10, alone_waits=True),
    Extend(process="w1", tasks=(TaskLease(id=ID, fence=1, message="1/3"),), unheard=(DIGEST,)),
    Extended(lease=10, lost=(ID,), cancelled=(ID,), answers={ID: (ANSWER,)}),
    Step(id=ID, fence=1, key=DIGEST, name="load", result="1"),
    Stepped(lost=True),
    Stepped(result="1"),
    Ask(id=ID, fence=1, questions=(TaskQuestion(key="month", digest=DIGEST, request="{}"),), keep=True),
    QuestionsAsked(waiting=True, answers=(ANSWER,), clash="month"),
    SETTLE,
    Settled(lost=True),
    Release(id=ID, fence=1),
    Release(id=ID, fence=1, failed=SETTLE, after=5),
    Released(status=Status.WORKING),
    Remember(key=DIGEST, fence=1, result="{}"),
    ResultKept(lost=True),
    Serve(process="w1", tools={"report": DIGEST}),
    Served(adopted=3),
]
