"""The application of the authorization tests: one tool for everybody, one that needs a scope, one that is limited."""

from mcpfleet.app import App, Context

app = App("guarded", version="1.0.0")


@app.tool()
async def whoami(ctx: Context) -> dict[str, str | list[str] | None]:
    """Say who calls."""
    who = ctx.principal
    return {"subject": who.subject, "client": who.client, "tenant": who.tenant, "scopes": list(who.scopes)}


@app.tool(scopes=["books:read", "books:write"])
async def write() -> str:
    """Do what not everybody may."""
    return "written"
