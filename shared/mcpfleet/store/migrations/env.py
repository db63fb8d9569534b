"""The script that Alembic runs for each command, on the connection that `mcpfleet.store.migrate` hands in."""

from __future__ import annotations

from alembic import context

context.configure(**context.config.attributes["options"])
context.run_migrations()
