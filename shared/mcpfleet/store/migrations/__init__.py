"""Alembic's environment, for the revisions of every service."""
