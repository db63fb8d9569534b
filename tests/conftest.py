"""Fixtures of all kinds of tests."""

from __future__ import annotations

from tests.kit.clock import clock, jumping

__all__ = ["clock", "jumping"]
