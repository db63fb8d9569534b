"""The NATS component's permissions against the subjects of the contracts: each is used, and each use is permitted."""

from __future__ import annotations

import enum
import importlib
import inspect
import itertools
import json
import pkgutil
import re
from typing import Any, Final, get_type_hints

import pytest

from mcpfleet import contracts
from mcpfleet.bus.rpc import Rpc
from mcpfleet.contracts.hints import OPERATOR_TOKEN, resource_hint_subject
from mcpfleet.contracts.permissions import users
from tests.deploy.manifests import K8S, POOLS

CONF: Final = (K8S / "components" / "nats" / "users.conf").read_text()
PREFIX: Final = "mcpfleet."
BY_RESPONSE: Final = {"edge.x.reply.x"}
"""Answered by whoever was asked, once (`allow_responses`), so no user may send it by name."""


def held() -> dict[str, dict[str, list[str]]]:
    """The users' subjects to send and to hear, as NATS reads them."""
    found = {}
    for user, rules in re.findall(r'\{user: "([^"]+)", password: \$\w+, permissions: (\{.*\})\}', CONF):
        read = json.loads(rules)
        found[user] = {verb: read[verb]["allow"] for verb in ("publish", "subscribe")}
    return found


def subjects() -> set[str]:
    """Every subject that a contract spells, with the pool `library` and `x` for all else."""
    found = {resource_hint_subject("x", OPERATOR_TOKEN, "x")}
    for module in pkgutil.iter_modules(contracts.__path__):
        loaded = importlib.import_module(f"mcpfleet.contracts.{module.name}")
        for name, value in vars(loaded).items():
            if isinstance(value, Rpc):
                found.add(re.sub(r"\{(\w+)\}", lambda token: POOLS[0] if token[1] == "pool" else "x", value.subject))
            elif name.endswith("_SUBJECT") and isinstance(value, str) and not value.startswith("$"):
                found.add(value)
            elif name.endswith("_subject") and inspect.isfunction(value) and value.__module__ == loaded.__name__:
                found |= _examples(value)
    return found


def _examples(function: Any) -> set[str]:
    """Return the subjects that a function makes, one for each member of an enumeration."""
    hints = get_type_hints(function)
    choices: dict[str, list[Any]] = {
        name: [POOLS[0]] if name == "pool" else list(hints[name]) if _is_enum(hints[name]) else ["x"]
        for name in inspect.signature(function).parameters
    }
    return {function(**dict(zip(choices, chosen, strict=True))) for chosen in itertools.product(*choices.values())}


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, enum.Enum)


def allows(pattern: str, subject: str) -> bool:
    allowed, wanted = pattern.removeprefix(PREFIX).split("."), subject.split(".")
    if allowed[-1] == ">":
        allowed, wanted = allowed[:-1], wanted[: len(allowed) - 1] if len(wanted) >= len(allowed) else []
    return len(allowed) == len(wanted) and all(one in ("*", other) for one, other in zip(allowed, wanted, strict=True))


def who_may(verb: str, subject: str) -> set[str]:
    return {user for user, rules in held().items() if any(allows(each, subject) for each in rules[verb])}


def test_the_component_has_the_tables_users() -> None:
    assert held().keys() == users(POOLS).keys()


@pytest.mark.parametrize("subject", sorted(subjects()))
def test_every_subject_of_a_contract_has_one_who_may_send_it_and_one_who_may_hear_it(subject: str) -> None:
    assert len(who_may("publish", subject)) == (0 if subject in BY_RESPONSE else 1)
    assert who_may("subscribe", subject)


SENT = [(user, each) for user, rules in held().items() for each in rules["publish"]]


@pytest.mark.parametrize(("user", "pattern"), SENT)
def test_every_subject_that_a_user_may_send_is_one_of_a_contract(user: str, pattern: str) -> None:
    if pattern in (f"{PREFIX}inbox.{user}.*.self", "$SRV.>"):
        return
    assert any(allows(pattern, subject) for subject in subjects())
