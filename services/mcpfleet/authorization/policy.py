"""The operator's policy: an object that groups callers, hides items and judges streams (X48, X49).

MCPFLEET_POLICY names it, as `module:object`.

An operator's module imports `Allow`, `Caller`, `Filter` and `Item` from here. All methods of the object are optional:

    def group(self, caller: Caller) -> str
    async def visible(self, group: str, items: set[Item]) -> set[Item]
    async def listen(self, caller: Caller, wanted: Filter) -> Allow | None
    async def stream(self, caller: Caller, families: frozenset[str]) -> Allow | None
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from structlog.typing import FilteringBoundLogger

from mcpfleet.contracts.grants import HeldUris, Renewal
from mcpfleet.contracts.policy import ItemShown, StreamAsked, StreamJudged, VisibleWanted
from mcpfleet.contracts.principal import Principal
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.named_object import import_named
from mcpfleet.wire.filter import Filter, OwnKeys

__all__ = ["Allow", "Caller", "Filter", "Item"]

WITHIN: Final = 5.0
"""Seconds that one question to the policy may take (X48)."""
MOST_GROUPS: Final = 10_000
"""Answers of `visible` that are kept; the least recently used one goes first."""
LONGEST_GROUP: Final = 256
"""Characters of a group's name."""
_DAY: Final = 86_400.0
METHODS: Final = ("group", "visible", "listen", "stream")
FAMILIES: Final = frozenset({"tools", "prompts", "resources", "updates"})
"""The families of a GET stream of 2025: changed lists, and updates of the URIs that its session subscribes to."""

Caller: TypeAlias = Principal
"""The caller: subject, client, tenant and scopes, and the group once it is known."""


@dataclass(frozen=True, slots=True)
class Item:
    """Something that an endpoint offers."""

    kind: str
    """`tool`, `prompt`, `resource`, `template` or `lister`."""
    name: str
    """A tool's or a prompt's name, a resource's URI, a template's text, a lister's name."""
    pool: str
    """The pool that serves it."""
    endpoint: str
    scopes: frozenset[str] = frozenset()
    """The scopes that it needs."""


@dataclass(frozen=True, slots=True)
class Allow:
    """Lets a stream begin or go on.

    Attributes:
        filter: the part of what was wanted that the stream may hear: a `Filter` for `listen`, families for `stream`.
        seconds: until the policy is asked again, at most; other bounds may end sooner.
    """

    filter: Filter | Collection[str]
    seconds: float = 60.0


class PolicyFailed(Exception):
    """Raised when the policy gave no answer; the sentence is for the log."""


def load(target: str) -> OperatorPolicy:
    """Import `module:object` and check it; a class is made an object without arguments.

    Raises:
        ConfigurationError: it cannot be imported, or is no policy.
    """
    found = import_named("MCPFLEET_POLICY", target)
    try:
        made = found() if inspect.isclass(found) else found
    except Exception as error:
        raise ConfigurationError(f"MCPFLEET_POLICY: {target}() raised {type(error).__name__}: {error}") from error
    check(made, target)
    return OperatorPolicy(made)


def check(policy: object, target: str) -> None:
    """Check the methods of a policy.

    Raises:
        ConfigurationError: it has an unknown public name, lacks what another method needs, or a method is (not) async.
    """
    where = f"MCPFLEET_POLICY: {target}"
    names = [name for name in dir(policy) if not name.startswith("_")]
    for name in names:
        if name not in METHODS:
            close = get_close_matches(name, METHODS, 1)
            remedy = f"did you mean {close[0]!r}?" if close else f"it may have {', '.join(METHODS)}"
            raise ConfigurationError(f"{where} has {name!r}: {remedy} Other names begin with an underscore.")
    if not names:
        raise ConfigurationError(f"{where} has none of {', '.join(METHODS)}")
    if "visible" in names and "group" not in names:
        raise ConfigurationError(f"{where} has `visible`, and no `group`: callers of a group see the same")
    for name in names:
        method = getattr(policy, name)
        is_async = inspect.iscoroutinefunction(method)
        if not callable(method) or is_async is (name == "group"):
            form = "a plain function" if name == "group" else "an async function"
            place = _place(method)
            raise ConfigurationError(f"{where}: `{name}`{place} must be {form}")


def _place(method: object) -> str:
    code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
    return f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""


class OperatorPolicy:
    """Asks the operator's object, each question within 5 s."""

    def __init__(self, policy: object) -> None:
        self._group: Callable[[Caller], Any] | None = getattr(policy, "group", None)
        self._visible: Callable[[str, set[Item]], Awaitable[Any]] | None = getattr(policy, "visible", None)
        self._judges = {name: getattr(policy, name) for name in ("listen", "stream") if hasattr(policy, name)}
        self._kept: OrderedDict[tuple[Any, ...], asyncio.Future[tuple[int, ...]]] = OrderedDict()
        """Answers of `visible`, or the questions that are on their way."""

    @property
    def judges(self) -> tuple[str, ...]:
        """The methods that judge streams."""
        return tuple(self._judges)

    def group(self, caller: Caller) -> str | None:
        """Return a caller's group; None where the policy has no groups.

        Raises:
            PolicyFailed: it raised, or returned no text of 1 to 256 characters.
        """
        if self._group is None:
            return None
        try:
            group = self._group(caller)
        except Exception as error:
            raise PolicyFailed(f"group raised {type(error).__name__}") from error
        if not isinstance(group, str) or not 0 < len(group) <= LONGEST_GROUP:
            raise PolicyFailed(f"group must return a text of 1 to {LONGEST_GROUP} characters")
        return group

    async def visible(self, wanted: VisibleWanted, version: int) -> tuple[int, ...] | None:
        """Return the places of the items that a group sees; None where the policy hides nothing.

        The policy is asked once for each group, snapshot, page of items and version (X48).

        Raises:
            PolicyFailed: it raised, took longer than 5 s, or returned no set of some of these items.
        """
        if self._visible is None:
            return None
        page = hashlib.sha256(repr(wanted.items).encode()).digest()
        key = wanted.endpoint, wanted.snapshot, wanted.group, version, page
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = asyncio.ensure_future(self._ask_visible(wanted))
            kept.add_done_callback(lambda done: self._forget_failure(key, done))
            if len(self._kept) > MOST_GROUPS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return await asyncio.shield(kept)

    def _forget_failure(self, key: tuple[Any, ...], done: asyncio.Future[tuple[int, ...]]) -> None:
        if (done.cancelled() or done.exception() is not None) and self._kept.get(key) is done:
            del self._kept[key]

    async def _ask_visible(self, wanted: VisibleWanted) -> tuple[int, ...]:
        assert self._visible is not None
        items = {_item(wanted.endpoint, each): place for place, each in enumerate(wanted.items)}
        answer = await _in_time("visible", self._visible, wanted.group, set(items))
        if not isinstance(answer, set | frozenset) or not answer <= items.keys():
            raise PolicyFailed("visible must return a set of some of the items that it was asked about")
        return tuple(sorted(items[each] for each in answer))

    async def judge(self, asked: StreamAsked) -> StreamJudged:
        """Return the answer about a stream; all of it where the policy does not judge such streams.

        Raises:
            PolicyFailed: it raised, took longer than 5 s, or returned neither None nor an `Allow` of a part of it.
        """
        judge = self._judges.get(asked.judging)
        own = tuple(OwnKeys(field, keys) for field, keys in asked.own)
        whole = Filter(frozenset(asked.lists), asked.uris, asked.tasks, own)  # type: ignore[arg-type]  # checked by its readers
        if judge is None:
            return StreamJudged(
                outcome="allowed", lists=asked.lists, uris=asked.uris, tasks=asked.tasks, own=asked.own, seconds=_DAY
            )
        wanted = whole if asked.judging == "listen" else frozenset(asked.lists)
        answer = await _in_time(asked.judging, judge, asked.principal, wanted)
        if answer is None:
            return StreamJudged(outcome="denied")
        if not isinstance(answer, Allow):
            raise PolicyFailed(f"{asked.judging} must return an Allow or None")
        allowed = answer.filter if isinstance(answer.filter, Filter) else _families(asked.judging, answer.filter)
        if not (
            set(allowed.lists) <= whole.lists
            and set(allowed.uris) <= set(whole.uris)
            and set(allowed.task_ids) <= set(whole.task_ids)
            and _keys(allowed) <= _keys(whole)
        ):
            raise PolicyFailed(f"{asked.judging} allowed more than was wanted")
        seconds = answer.seconds
        if type(seconds) not in (int, float) or not 0 < seconds < math.inf:
            raise PolicyFailed(f"{asked.judging} must allow a number of seconds over 0")
        return StreamJudged(
            outcome="allowed",
            lists=tuple(sorted(allowed.lists)),
            uris=tuple(uri for uri in asked.uris if uri in set(allowed.uris)),
            tasks=tuple(task for task in asked.tasks if task in set(allowed.task_ids)),
            own=tuple((each.field, each.keys) for each in allowed.own),
            seconds=float(seconds),
        )


def _keys(stream: Filter) -> set[tuple[str, str]]:
    return {(each.field, key) for each in stream.own for key in each.keys}


def _families(judging: str, families: object) -> Filter:
    if judging != "stream" or not isinstance(families, set | frozenset | tuple | list):
        raise PolicyFailed(f"{judging} must return an Allow of a Filter")
    try:
        return Filter(frozenset(families))
    except TypeError:
        raise PolicyFailed(f"{judging} must return an Allow of names of families") from None


def _item(endpoint: str, shown: ItemShown) -> Item:
    return Item(shown.kind, shown.name, shown.pool, endpoint, frozenset(shown.scopes))


async def _in_time(name: str, ask: Callable[..., Awaitable[Any]], *about: Any) -> Any:
    patience = asyncio.timeout(WITHIN)
    try:
        async with patience:
            return await ask(*about)  # a method with other parameters raises here
    except Exception as error:
        if patience.expired():
            raise PolicyFailed(f"{name} took longer than {WITHIN:g} s") from error
        raise PolicyFailed(f"{name} raised {type(error).__name__}") from error


def report_failure(log: FilteringBoundLogger, error: PolicyFailed) -> None:
    """Tell the operator what the policy did."""
    log.error("policy failed", error=str(error), exc_info=error.__cause__)


async def judge_all(
    policy: OperatorPolicy, streams: Sequence[StreamAsked], log: FilteringBoundLogger
) -> list[StreamJudged]:
    """Judge streams at once; one about which the policy gives no answer is undecided."""

    async def judge(asked: StreamAsked) -> StreamJudged:
        try:
            return await policy.judge(asked)
        except PolicyFailed as error:
            report_failure(log, error)
            return StreamJudged()

    return list(await asyncio.gather(*map(judge, streams)))


async def renew_all(policy: OperatorPolicy, held: Sequence[HeldUris], log: FilteringBoundLogger) -> list[Renewal]:
    """Judge rights of sessions by `listen`, as if their holders asked for these URIs now (X57).

    A right that is undecided has lapsed, as far as a former release of subscriptions can read.
    """

    async def renew(each: HeldUris) -> Renewal:
        holder = each.holder
        try:
            principal = holder.principal.model_copy(update={"group": policy.group(holder.principal)})
            judged = await policy.judge(StreamAsked(endpoint=holder.endpoint, principal=principal, uris=each.uris))
        except PolicyFailed as error:
            report_failure(log, error)
            return Renewal(allowed=True, undecided=True)
        return Renewal(allowed=set(judged.uris) >= set(each.uris), lasts=judged.seconds)

    return list(await asyncio.gather(*map(renew, held)))
