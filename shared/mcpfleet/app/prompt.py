"""A declared prompt: its entry in lists, and its messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from mcp_types import ContentBlock, GetPromptResult, PromptArgument, PromptMessage, TextContent
from mcp_types import Prompt as WirePrompt

from mcpfleet.app.arguments import Texts
from mcpfleet.app.completion import Completer, Completes, completed
from mcpfleet.app.context import Context
from mcpfleet.app.declaration import Declaration
from mcpfleet.app.errors import OutputError
from mcpfleet.app.handler import Answer, Function, HandlerRequest
from mcpfleet.app.outcome import refuse_foreign
from mcpfleet.app.result import BLOCKS
from mcpfleet.app.signature import Signature


class Prompt(Completes):
    """One prompt of an App."""

    def __init__(self, handler: Callable[..., Any], declaration: Declaration, signature: Signature) -> None:
        self._texts = Texts(signature.parameters)
        self._completers: dict[str, Completer] = {}
        arguments = [
            PromptArgument(name=name, title=title, description=description, required=name in self._texts.required)
            for name in self._texts.names
            for title, description in [self._texts.described(name)]
        ]
        wire = WirePrompt(name=declaration.name, arguments=arguments or None, **declaration.described(handler))
        super().__init__(declaration.define(wire), Function(handler, signature))

    @property
    def _completable(self) -> tuple[str, ...]:
        return self._texts.names

    def _value(
        self, request: HandlerRequest, arguments: dict[str, Any], ctx: Context, threads: anyio.CapacityLimiter | None
    ) -> Awaitable[Any]:
        if request.completing is not None:
            return self._complete(request.completing, ctx, threads)
        return self._function.start(self._texts.read(arguments), ctx, threads)

    def _finish(self, value: Any, request: HandlerRequest) -> Answer:
        if request.completing is not None:
            return completed(value)
        refuse_foreign(value, GetPromptResult)
        if isinstance(value, GetPromptResult):
            described = {} if value.description is None else {"description": value.description}
            return Answer(described | {"messages": [_written(message) for message in value.messages]}, value.meta)
        parts = value if isinstance(value, list | tuple) else [value]
        return Answer({"messages": [_written(_message(part)) for part in parts]})


def _message(part: Any) -> PromptMessage:
    """Return a part of a handler's result as a message; a text or a block is a user's.

    Raises:
        OutputError: it is none of these.
    """
    if isinstance(part, PromptMessage):
        return part
    if isinstance(part, str):
        return PromptMessage(role="user", content=TextContent(text=part))
    if isinstance(part, BLOCKS):
        block: ContentBlock = part
        return PromptMessage(role="user", content=block)
    raise OutputError(f"returned {type(part).__name__}, and a prompt is made of texts, content blocks and messages")


def _written(message: PromptMessage) -> dict[str, Any]:
    return message.model_dump(mode="json", by_alias=True, exclude_none=True)
