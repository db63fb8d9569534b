"""Checks a task's outstanding input requests: whether a client can answer them (K11), and whether answers fit (K9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_types import CreateMessageResultWithTools, ElicitResult, ListRootsResult
from pydantic import ValidationError
from pydantic_core import from_json

from mcpfleet.wire.errors import bad_params, missing_capabilities
from mcpfleet.wire.protocol import missing


def check_answerable(requests: Mapping[str, str], capabilities: dict[str, Any]) -> None:
    """Check that a client has the capabilities for a task's outstanding requests.

    Raises:
        Rejection: -32021, which names the missing capabilities.
    """
    needed = dict.fromkeys(_need(from_json(text)) for text in requests.values())
    if lacking := missing(needed, capabilities):
        raise missing_capabilities(lacking)


def check_answers(requests: Mapping[str, str], answers: Mapping[str, Any]) -> None:
    """Check the form of the answers to outstanding requests; other answers are ignored.

    Raises:
        Rejection: -32602; no answer of the update is used then.
    """
    for key, text in requests.items():
        if key in answers and not _fits(from_json(text), answers[key]):
            raise bad_params("an input response does not fit its request")


def _need(request: dict[str, Any]) -> str:
    params = request.get("params") or {}
    match request.get("method"):
        case "elicitation/create":
            return f"elicitation.{params.get('mode', 'form')}"
        case "sampling/createMessage":
            return "sampling.tools" if "tools" in params or "toolChoice" in params else "sampling"
        case _:
            return "roots"


def _fits(request: dict[str, Any], answer: Any) -> bool:
    params = request.get("params") or {}
    try:
        match request.get("method"):
            case "elicitation/create":
                ElicitResult.model_validate(answer, by_alias=True, by_name=False)
                return answer["action"] != "accept" or _fills(params.get("requestedSchema"), answer)
            case "sampling/createMessage":
                CreateMessageResultWithTools.model_validate(answer, by_alias=True, by_name=False)
            case _:
                ListRootsResult.model_validate(answer, by_alias=True, by_name=False)
    except ValidationError:
        return False
    return True


def _fills(schema: Any, answer: dict[str, Any]) -> bool:
    """Return whether an answer fits its form. Some clients send null for an empty field."""
    if not isinstance(schema, dict):
        return True
    # Imported here, since most edges have no forms to check.
    from mcpfleet.app.errors import Mistake  # noqa: PLC0415
    from mcpfleet.app.validation import Validator  # noqa: PLC0415

    content = answer.get("content") or {}
    filled = {name: value for name, value in content.items() if value is not None}
    try:
        return Validator(schema, formats=True).accepts(filled)
    except Mistake:  # the worker's schema is unusable, so its handler checks the answer
        return True
