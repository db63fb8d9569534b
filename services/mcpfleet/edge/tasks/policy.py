"""Who may read a task beside owning it: what its tool asks of its callers, kept with the task (K12).

A tool may be gone when its task is read, so the rules are the task's own from its creation on.
"""

from __future__ import annotations

from pydantic_core import from_json, to_json

from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import Principal
from mcpfleet.views.rights import fits, holds


def written(definition: Definition) -> str | None:
    """What is kept of a tool's rules; nothing where it has none."""
    if not definition.scopes and not definition.only_for:
        return None
    return to_json({"scopes": definition.scopes, "only_for": definition.only_for}).decode()


def allows(policy: str | None, principal: Principal) -> bool:
    """Whether the rules still allow a caller; rules that nobody can read allow nobody."""
    if policy is None:
        return True
    try:
        kept = from_json(policy)
        scopes, only_for = kept["scopes"], kept["only_for"]
    except (ValueError, KeyError, TypeError):
        return False
    if only_for and not any(fits(rule, principal) for rule in only_for):
        return False
    return holds(principal, scopes)
