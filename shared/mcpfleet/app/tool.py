"""A declared tool: its entry in lists, and its calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from mcp_types import Tool as WireTool
from mcp_types import ToolAnnotations

from mcpfleet.app.arguments import Arguments
from mcpfleet.app.context import Context
from mcpfleet.app.declaration import Declaration
from mcpfleet.app.errors import Mistake, ToolError
from mcpfleet.app.handler import Function, Handler, HandlerRequest, Request, Sanitizer
from mcpfleet.app.outcome import Kept, Outcome
from mcpfleet.app.result import Returns
from mcpfleet.app.signature import Signature
from mcpfleet.app.step_up import ScopesIf, conditions
from mcpfleet.app.task import TaskOptions
from mcpfleet.contracts.manifest import Rate


class Tool(Handler):
    """One tool of an App."""

    def __init__(
        self,
        handler: Callable[..., Any],
        declaration: Declaration,
        arguments: Arguments,
        returns: Returns,
        signature: Signature,
        *,
        annotations: ToolAnnotations | None = None,
        rate: tuple[int, float] | None = None,
        scopes_if: ScopesIf | None = None,
        sanitize: Sanitizer | None = None,
        tasking: TaskOptions | None = None,
    ) -> None:
        tasking = tasking or TaskOptions()
        tasking.check(arguments.schema)
        wire = WireTool(
            name=declaration.name,
            input_schema=arguments.schema,
            output_schema=returns.schema,
            annotations=annotations,
            **declaration.described(handler),
        )
        limit = None if rate is None else rate_limit(rate)
        # The sanitizer's result depends on the reader.
        per_caller = declaration.per_caller or sanitize is not None
        super().__init__(
            declaration.define(
                wire,
                rate=limit,
                scopes_if=conditions(scopes_if, arguments.schema) if scopes_if else {},
                per_caller=per_caller,
                sanitizes=sanitize is not None and tasking.task is not None,
                **tasking.members(),
            ),
            Function(handler, signature),
            sanitize=sanitize,
        )
        self._arguments = arguments
        self._returns = returns

    async def call(self, arguments: dict[str, Any], ctx: Context, *, threads: anyio.CapacityLimiter) -> Outcome:
        """Run the handler once, without interceptors; see `Handler.answer`.

        Args:
            arguments: as they came, parsed from JSON.
            ctx: the call as the handler sees it.
            threads: bounds the threads for plain functions; a call waits for a free one.

        Returns:
            The handler's result, or the text of the ToolError that it raised.

        Raises:
            InvalidArguments: the arguments break the input schema; the handler has not run.
            OutputError: the handler's result breaks its declaration.
            ProtocolError: the handler raised it.
            Exception: any other error of the handler.
        """
        outcome = await self.answer(Request(arguments), ctx, threads=threads)
        assert isinstance(outcome, Outcome)
        return outcome

    def _value(
        self, request: HandlerRequest, arguments: dict[str, Any], ctx: Context, threads: anyio.CapacityLimiter | None
    ) -> Awaitable[Any]:
        del request
        return self._function.start(self._arguments.read(arguments), ctx, threads)

    def _finish(self, value: Any, request: HandlerRequest) -> Outcome:
        del request
        return self._returns.outcome(value)

    def _keep(self, value: Any) -> Kept:
        return self._returns.kept(value)

    def _read_back(self, kept: str) -> Any:
        return self._returns.read_back(kept)

    def _failed(self, error: ToolError) -> Outcome:
        # A lone surrogate, as in the name of a file that is not text, would make the whole text unreadable.
        return Outcome.failed(str(error).encode(errors="replace").decode())


def rate_limit(rate: tuple[int, float]) -> Rate:
    """Read `(calls, seconds)`.

    Raises:
        Mistake: it is something else.
    """
    try:
        calls, seconds = rate
        return Rate(calls=calls, seconds=seconds)
    except (TypeError, ValueError) as error:
        raise Mistake(f"rate must be (calls, seconds), both over 0, not {rate!r}") from error
