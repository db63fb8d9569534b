"""The cost of a test's work to the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from sqlalchemy import Engine, event

from mcpfleet.store.singles import SingleRow, SingleStatements


@contextmanager
def statements() -> Iterator[list[str]]:
    """The statements that run meanwhile, by their first word, without those that begin a transaction."""
    seen: list[str] = []

    def hear(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        word = statement.split(maxsplit=1)[0]
        if word != "BEGIN":
            seen.append(word)

    unheard = SingleStatements.fetch

    async def fetch(self: SingleStatements, statement: str, *values: object, **how: Any) -> list[SingleRow]:
        hear(None, None, statement)
        return await unheard(self, statement, *values, **how)

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        with patch.object(SingleStatements, "fetch", fetch):
            yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", hear)
