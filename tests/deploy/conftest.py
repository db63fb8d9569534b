"""The Secrets of a fleet, as an operator without a secret store makes them."""

from __future__ import annotations

import base64
import json
import subprocess
import sys

import pytest

from tests.deploy.manifests import K8S, POOLS


@pytest.fixture(scope="session")
def made_secrets() -> dict[str, dict[str, str]]:
    """Each Secret's data by its name."""
    command = [sys.executable, str(K8S / "make_secrets.py"), "--pools", ",".join(POOLS)]
    made = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    return {
        each["metadata"]["name"]: {key: base64.b64decode(value).decode() for key, value in each["data"].items()}
        for each in made["items"]
    }
