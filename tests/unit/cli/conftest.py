"""Keeps the tests of commands from changing the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest.mock import patch

import pytest


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """A command may set variables for its process, which is the tests' own: others would run with them."""
    with patch.dict(os.environ):
        yield
