"""docs/testing.md: its Python blocks are tests, of the guide's application, and pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.kit.pages import blocks, blocks_of_the_guide


def test_the_blocks_of_the_page_about_testing_are_tests_that_pass(tmp_path: Path) -> None:
    """They test the application of the guide for authors."""
    (tmp_path / "shop.py").write_text("\n\n".join(blocks_of_the_guide()))
    (tmp_path / "test_shop.py").write_text("\n\n".join(blocks("docs/testing.md")))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", tmp_path, "-c", os.devnull, "-p", "no:cacheprovider"],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[89] passed|\d\d passed", done.stdout), done.stdout
