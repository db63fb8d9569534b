"""The files of this repository, for tests that hold rules on all of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def committed(root: Path = ROOT) -> list[str]:
    """Every file that git has, or would take."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(name for name in listing.stdout.split("\0") if name and (root / name).exists())


def python_files(*tops: str) -> list[Path]:
    """The Python files below some folders of the top level."""
    return [ROOT / name for name in committed() if name.endswith(".py") and name.split("/")[0] in tops]
