"""A handler's Context, and a test that builds one, as a type checker sees them. Nothing runs here."""

from typing import assert_type

from mcp_types import ClientCapabilities, Implementation

from mcpfleet.app import (
    Cancelled,
    CancelSignal,
    Client,
    Context,
    Principal,
    Progress,
    ProtocolError,
    Registration,
    ToolError,
)


async def handler(ctx: Context) -> None:
    await ctx.progress(1)
    await ctx.progress(0.5, total=1, message="half")
    await ctx.progress("half")  # type: ignore[arg-type]
    ctx.progress(1)  # type: ignore[unused-coroutine]
    assert_type(ctx.principal, Principal)
    assert_type(ctx.principal.subject, str | None)
    assert_type(ctx.client.info, Implementation | None)
    assert_type(ctx.client.capabilities, ClientCapabilities)
    assert_type(ctx.deadline, float)
    assert_type(ctx.remaining, float)
    assert_type(ctx.cancelled, Cancelled)
    assert_type(bool(ctx.cancelled), bool)
    await ctx.cancelled.wait()
    with ctx.cancelled.on_cancel(lambda: None) as registration:
        assert_type(registration, Registration)
    registration.close()
    # The runner cancels a handler; the handler itself only hears of it.
    ctx.cancelled.cancel()  # type: ignore[attr-defined]
    ctx.principal = Principal()  # type: ignore[misc]


def plain(ctx: Context) -> None:
    ctx.sync.progress(1, total=2, message="half")
    raise ToolError("No.")


def refuse() -> None:
    raise ProtocolError(429, "Not now.", {"after": 5})


reports: list[Progress] = []
Context()
Context(report=reports.append)
Context(
    principal=Principal(subject="ann", scopes=("holds:write",)),
    client=Client(info={"name": "test", "version": "1"}, capabilities={"elicitation": {}}),
    deadline=60.0,
    cancelled=CancelSignal(),
)
Context(Principal())  # type: ignore[call-arg]
