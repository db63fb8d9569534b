"""A task's outstanding questions: whether a caller can answer them (K11), and whether an answer fits (K9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_types import CreateMessageResultWithTools, ElicitResult, ListRootsResult
from pydantic import ValidationError
from pydantic_core import from_json

from mcpfleet.wire.capabilities import missing
from mcpfleet.wire.errors import bad_params, missing_capabilities


def check_answerable(requests: Mapping[str, str], capabilities: dict[str, Any]) -> None:
    """Hold a poll to what its client has declared; nothing of the task changes.

    Raises:
        Rejection: -32021 with what is missing, and only that.
    """
    needed = dict.fromkeys(_need(from_json(text)) for text in requests.values())
    if lacking := missing(needed, capabilities):
        raise missing_capabilities(lacking)


def check_answers(requests: Mapping[str, str], answers: Mapping[str, Any]) -> None:
    """Hold the answers to outstanding questions to their forms; the others are not looked at.

    Raises:
        Rejection: -32602; of such an update nothing is taken.
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
    """Whether what was filled in is what the form asks for; clients send null for a field that was left empty."""
    if not isinstance(schema, dict):
        return True
    # Imported where it is used: most edges have no forms to check.
    from mcpfleet.app.errors import Mistake  # noqa: PLC0415
    from mcpfleet.app.validation import Validator  # noqa: PLC0415

    content = answer.get("content") or {}
    filled = {name: value for name, value in content.items() if value is not None}
    try:
        return Validator(schema, formats=True).accepts(filled)
    except Mistake:  # the worker's form is none; its handler reads the answer
        return True
