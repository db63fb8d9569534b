"""Accounts that their owners read, and nobody else: a permit decides before each read, and who hears of a change.

Large payments need a further scope, which the edge sees in the arguments; those to strangers need one that only the
function knows of.

Run it with two callers, ann and bob:

    export MCPFLEET_AUTHORIZATION=static
    export MCPFLEET_TOKENS='{"tokens": [{"token": "a-secret-of-ann", "subject": "ann", "audience": "mcp"},
                                        {"token": "a-secret-of-bob", "subject": "bob", "audience": "mcp"}]}'
    mcpfleet dev examples/accounts.py
    mcpfleet read acct://accounts/ann --token a-secret-of-ann
    mcpfleet read acct://accounts/ann --token a-secret-of-bob    # Resource not found
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mcpfleet.app import App, Caller, Context, ToolError, Variables

app = App("accounts", version="1.0.0")

MONEY = {"ann": 12, "bob": 7}
READERS = {"ann": {"ann"}, "bob": {"bob"}}


@app.resource("acct://accounts/{name}")
async def account(name: str) -> str | None:
    """The money in an account."""
    return f"{MONEY[name]} euros" if name in MONEY else None


@account.permit
async def may_read(caller: Caller, asked: list[Variables]) -> list[bool]:
    """Owners read their accounts, and so does everybody whom they let read."""
    return [caller.subject in READERS.get(each["name"], ()) for each in asked]


@app.completion(account, "name")
async def names(value: str) -> list[str]:
    """All names that begin so; the permit leaves out what the caller may not read."""
    return [name for name in MONEY if name.startswith(value)]


@app.tool()
async def pay_in(amount: int, ctx: Context) -> int:
    """Put money into your own account."""
    name = ctx.principal.subject
    if name not in MONEY:
        raise ToolError("you have no account")
    MONEY[name] += amount
    await ctx.resource_updated(f"acct://accounts/{name}")
    return MONEY[name]


@app.tool(scopes_if={"accounts:large": {"properties": {"amount": {"minimum": 1000}}}})
async def pay(to: str, amount: Annotated[int, Field(gt=0)], ctx: Context) -> int:
    """Pay from your own account."""
    if to not in MONEY:
        ctx.need("accounts:strangers")  # before any effect: the call ends here, and may come again with the scope
    name = ctx.principal.subject
    if name not in MONEY or MONEY[name] < amount:
        raise ToolError("there is not so much money in your account")
    MONEY[name] -= amount
    MONEY[to] = MONEY.get(to, 0) + amount
    for each in (name, to):
        await ctx.resource_updated(f"acct://accounts/{each}")
    return MONEY[name]


@app.tool()
async def let_read(reader: str, may: bool, ctx: Context) -> str:  # a tool's argument
    """Let somebody read your account, or end that."""
    name = ctx.principal.subject
    if name not in READERS:
        raise ToolError("you have no account")
    (READERS[name].add if may else READERS[name].discard)(reader)
    app.permits_changed(f"acct://accounts/{name}")
    return f"{reader} {'may' if may else 'may not'} read your account"
