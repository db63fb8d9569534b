"""The key file that the edges of one machine share, for `dev` and tests; in a cluster it is a mounted secret."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path
from typing import Final

KEY_BYTES: Final = 32
_NAME: Final = "seal.keys"


def make_keys(directory: Path) -> Path:
    """Make the file in a directory, with one key, unless it exists."""
    path = directory / _NAME
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode() + "\n")
    return path
