"""Calls between an edge and a worker run over the same fabrics as the bus's own tests."""

from tests.contract.bus.conftest import fabric, settings

__all__ = ["fabric", "settings"]
