"""Fleets that host the small server of `server.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mcpfleet.sources.source import Command, Source, Value
from mcpfleet.testing.local import LocalFleet
from mcpfleet.worker.hosting.source_app import SourceApp

SERVER = Path(__file__).with_name("server.py")
SECRET = "s3cret-token"


def source(era: str = "2025", **members: Any) -> Source:
    """The small server as a source."""
    env = {"TOKEN": Value(text=SECRET)}
    way = Command(words=(sys.executable, "-S", str(SERVER), era), env=env)
    return Source.model_validate({"name": "fixture", "way": way, "isolation": "shared", **members})


def source_app(*sources: Source) -> SourceApp:
    """Sources as an application; the small server alone, by default."""
    return SourceApp("hosted", sources or (source(),))


def hosted_fleet(*sources: Source, **options: Any) -> LocalFleet:
    """A fleet whose workers host sources."""
    return LocalFleet(source_app(*sources), **options)
