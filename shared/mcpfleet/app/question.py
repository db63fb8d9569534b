"""Questions to a client: a form, a page to open, a model's words, its roots."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, TypeVar, Unpack, overload
from urllib.parse import urlsplit

from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResultWithTools,
    ListRootsResult,
    ModelPreferences,
    Root,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)
from pydantic import ValidationError

from mcpfleet.app.errors import AskError, Declined
from mcpfleet.app.form import form_of
from mcpfleet.app.input import Question, Unusable

Filled = TypeVar("Filled")

Messages = str | SamplingMessage | Sequence[str | SamplingMessage]
"""A conversation; a plain text is a user's message."""


class Sampling(TypedDict, total=False):
    """Further wishes for a model, all optional; the client decides how to use them."""

    system_prompt: str
    temperature: float
    stop_sequences: list[str]
    model_preferences: ModelPreferences
    metadata: dict[str, Any]
    tools: list[Tool]
    """Needs `sampling.tools`."""
    tool_choice: ToolChoice
    """Needs `sampling.tools`."""


@overload
def form(message: str, wanted: type[Filled], *, key: str | None = None) -> Question[Filled]: ...
@overload
def form(message: str, wanted: Mapping[str, Any], *, key: str | None = None) -> Question[dict[str, Any]]: ...
def form(message: str, wanted: Any, *, key: str | None = None) -> Question[Any]:
    """Ask the user to fill in a form, which must not ask for secrets (M56).

    Args:
        message: tells the user the purpose.
        wanted: a model, dataclass or TypedDict of texts, numbers, booleans, dates and choices, or a JSON Schema of
            such an object.
        key: names the question over all runs of the handler.

    Raises:
        AskError: `wanted` is not flat, as a form must be; the error names the field.
    """
    made = form_of(wanted)

    def read(answer: Any) -> Any:
        _accepted(answer, message)
        content = answer.get("content")
        return made.read({} if content is None else content)  # some clients write null for an empty form (L22)

    params = {"mode": "form", "message": message, "requestedSchema": made.schema}
    return Question("elicitation/create", params, "elicitation.form", read, key)


def url(message: str, address: str, *, key: str | None = None) -> Question[None]:
    """Ask the user to open a page, for data that must not pass through the client.

    An accepted answer means that the user agreed to open it, and not that anything happened there. The address must not
    hold anything about the user, and must not be logged in already: its visitor proves there who they are (M56).

    Raises:
        AskError: the address is not https, unless it is on this machine, or it holds credentials.
    """
    _check_address(address)
    params = {"mode": "url", "message": message, "url": address}
    return Question("elicitation/create", params, "elicitation.url", lambda answer: _accepted(answer, message), key)


def sample(
    messages: Messages, *, max_tokens: int, key: str | None = None, **told: Unpack[Sampling]
) -> Question[CreateMessageResultWithTools]:
    """Ask the client's model to continue a conversation.

    Raises:
        AskError: a message mixes a tool's results with other content, or a tool's use has no result (M57).
    """
    listed = [messages] if isinstance(messages, str | SamplingMessage) else list(messages)
    conversation = [
        SamplingMessage(role="user", content=TextContent(text=each)) if isinstance(each, str) else each
        for each in listed
    ]
    _check_conversation(conversation)
    params = CreateMessageRequestParams(messages=conversation, max_tokens=max_tokens, **told)
    has_tools = "tools" in told or "tool_choice" in told

    def read(answer: Any) -> CreateMessageResultWithTools:
        try:
            result = CreateMessageResultWithTools.model_validate(answer, by_alias=True, by_name=False)
        except ValidationError as error:
            raise Unusable("the answer is not a message") from error
        if not has_tools and any(isinstance(block, ToolUseContent) for block in result.content_as_list):
            raise Unusable("the answer uses a tool, and none was offered")
        return result

    written = params.model_dump(mode="json", by_alias=True, exclude_none=True)
    return Question("sampling/createMessage", written, "sampling.tools" if has_tools else "sampling", read, key)


def roots(*, key: str | None = None) -> Question[list[Root]]:
    """Ask for the directories and files that the user has opened to servers."""

    def read(answer: Any) -> list[Root]:
        try:
            return ListRootsResult.model_validate(answer, by_alias=True, by_name=False).roots
        except ValidationError as error:
            raise Unusable("the answer is not a list of roots") from error

    return Question("roots/list", {}, "roots", read, key)


def _accepted(answer: Any, message: str) -> None:
    """Return if the user accepted.

    Raises:
        Declined: the user did not accept.
        Unusable: the answer is not a user's.
    """
    action = answer.get("action") if isinstance(answer, dict) else None
    if action in ("decline", "cancel"):
        raise Declined(message, action)
    if action != "accept":
        raise Unusable("the answer has no known action")


def _check_address(address: str) -> None:
    parts = urlsplit(address)
    if parts.username is not None or parts.password is not None:
        raise AskError("the address that a user is asked to open holds credentials")
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname))):
        raise AskError("the address that a user is asked to open must be https, unless it is of this machine")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_conversation(messages: Sequence[SamplingMessage]) -> None:
    """Check that each use of a tool is followed by its result, in a user's message of results alone (M57)."""
    waiting: set[str] = set()
    for message in messages:
        blocks = message.content_as_list
        results = {block.tool_use_id for block in blocks if isinstance(block, ToolResultContent)}
        if results and (message.role != "user" or len(results) != len(blocks)):
            raise AskError("a message with a tool's results is a user's, and holds nothing else")
        if results != waiting:
            raise AskError("each use of a tool must be followed by its result, and each result by its use")
        waiting = {block.id for block in blocks if isinstance(block, ToolUseContent)}
        if waiting and message.role != "assistant":
            raise AskError("only an assistant's message uses tools")
    if waiting:
        raise AskError("the last message uses a tool whose result is missing")
