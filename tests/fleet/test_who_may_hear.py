"""A resource's listeners through real processes: workers die while they decide, and an edge comes back."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from mcpfleet.cli.operate import publish
from mcpfleet.testing.fleet import Fleet
from tests.contract.fleet.listener import Listener, listening
from tests.fleet.test_streams import plain
from tests.kit.waiting import until

APP = Path(__file__).with_name("accounts_app.py")
ANN, BOB = "secret-of-ann", "secret-of-bob"
TOKENS = [{"token": token, "subject": name, "audience": "mcp"} for token, name in ((ANN, "ann"), (BOB, "bob"))]
ANNS, BOBS, JOINT = (f"acct://accounts/{name}" for name in ("ann", "bob", "joint"))


def accounts(folder: Path) -> Fleet:
    """A fleet whose callers read their own accounts."""
    for name in ("ann-ann", "bob-bob", "ann-joint", "reads"):
        (folder / name).touch()
    environment = {
        "MCPFLEET_AUTHORIZATION": "static",
        "MCPFLEET_TOKENS": json.dumps({"tokens": TOKENS}),
        "ACCOUNTS_FOLDER": str(folder),
        "MCPFLEET_ALIVE_INTERVAL": "0.5",
        "MCPFLEET_LOST_AFTER": "2",
        "MCPFLEET_READ_CHECKED_WITHIN": "2",
    }
    return Fleet(APP, edges=2, workers=1, environment=environment)


async def tell(fleet: Fleet, *uris: str) -> None:
    """Say that accounts have changed, as an operator."""
    assert await publish(fleet.nats_settings("operator"), "mcp", uris) == 0


@pytest.mark.rule("S21")
@pytest.mark.timeout(120)
async def test_nobody_hears_of_what_its_handler_refuses_whatever_dies_meanwhile(tmp_path: Path) -> None:
    """S22: a worker that dies while it decides delays a stream, and what it has to tell; an edge begins anew."""
    uris = [ANNS, BOBS, JOINT]
    async with accounts(tmp_path) as fleet, plain() as http:
        (tmp_path / "hold-joint").touch()
        stream = Listener()
        async with (
            listening(http, fleet.urls[1], token=BOB, resourceSubscriptions=uris) as [bobs],
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(stream.run, http, fleet.urls[0], {"resourceSubscriptions": uris}, ANN)
            await until(lambda: "ann joint" in (tmp_path / "reads").read_text())
            await fleet.workers[0].kill()
            (tmp_path / "hold-joint").unlink()
            await fleet.restart(fleet.workers[0], drain=False)
            await until(lambda: stream.messages, within=20)
            assert JOINT in stream.messages[0]["params"]["notifications"]["resourceSubscriptions"]
            await tell(fleet, BOBS, JOINT, ANNS)
            await until(lambda: {ANNS, JOINT} <= set(stream.uris()), within=20)
            await until(lambda: BOBS in bobs.uris())
            assert BOBS not in stream.uris()
            assert set(bobs.uris()) == {BOBS}
            tasks.cancel_scope.cancel()
        await fleet.restart(fleet.edges[0], drain=False)
        async with listening(http, fleet.urls[0], token=ANN, resourceSubscriptions=uris) as [again]:
            assert again.messages[0]["params"]["notifications"] == {"resourceSubscriptions": [ANNS, JOINT]}
            await tell(fleet, BOBS, ANNS)
            await until(lambda: again.uris() == [ANNS])
