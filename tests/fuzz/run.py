"""Fuzz the edge: `python -m tests.fuzz.run --seconds 600`.

Coverage guides the fuzzer where atheris is installed (it has wheels for Linux); elsewhere hypothesis changes the
vectors' requests by chance. What hurts the edge ends the program, and is left as a file to run again:
`python -m tests.fuzz.run FILE`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

_WORD = re.compile(rb"[A-Za-z0-9$/._=?+-]{2,48}")
LONGEST = 16_384
"""Bytes of an input."""
SLOWEST = 60
"""Seconds after which an input counts as one that hangs; by the clock, so that other work beside it counts too."""
MEMORY = 1_024
"""MiB that this process may take."""


def has_atheris() -> bool:
    """Whether the fuzzer that coverage guides is installed."""
    return importlib.util.find_spec("atheris") is not None


def by_coverage(seconds: int, folder: Path) -> None:
    """Let libFuzzer change inputs towards code that none has reached; it ends the process."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["mcpfleet.edge", "mcpfleet.wire", "mcpfleet.views"]):
        from tests.fuzz.changes import revalued
        from tests.fuzz.edge_http import EdgeUnderFuzz, corpus

    first = folder / "corpus"
    first.mkdir(exist_ok=True)
    _fill(first, corpus())
    words = folder / "words"
    words.write_text("".join(f'"{word}"\n' for word in sorted(_words(corpus()))))
    options = {
        "max_total_time": seconds,
        "max_len": LONGEST,
        "timeout": SLOWEST,
        "rss_limit_mb": MEMORY,
        "dict": words,
        "artifact_prefix": f"{folder}/hurt-",
        "print_final_stats": 1,
    }
    with EdgeUnderFuzz() as edge:

        def one(data: bytes) -> None:
            edge(data)

        def change(data: bytes, longest: int, seed: int) -> bytes:
            """Change the bytes, or the value that they say: of changed bytes few are JSON."""
            other = revalued(data, Random(seed)) if seed % 2 else data
            return other if other != data and len(other) <= longest else bytes(atheris.Mutate(data, longest))

        command = [sys.argv[0], *(f"-{name}={value}" for name, value in options.items()), str(first)]
        atheris.Setup(command, one, custom_mutator=change)
        atheris.Fuzz()


def by_chance(seconds: float, folder: Path) -> int:
    """Change the vectors' requests by chance until the time is over; returns how many were tried."""
    from hypothesis import HealthCheck, given, seed, settings

    from tests.fuzz.changes import changed
    from tests.fuzz.edge_http import EdgeUnderFuzz

    ends, tried = time.monotonic() + seconds, 0
    with EdgeUnderFuzz() as edge:

        def one(data: bytes) -> None:
            nonlocal tried
            tried += 1
            try:
                edge(data)
            except Exception:
                (folder / "hurt").write_bytes(data)
                raise

        while time.monotonic() < ends:
            round_ = settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            seed(tried)(round_(given(changed())(one)))()
    return tried


def again(paths: Iterable[str]) -> None:
    """Run inputs that were left as files."""
    from tests.fuzz.edge_http import EdgeUnderFuzz

    with EdgeUnderFuzz() as edge:
        for path in paths:
            exchange = edge(Path(path).read_bytes())
            print(path, exchange.status, exchange.body[:200])  # noqa: T201


def _words(inputs: Iterable[bytes]) -> set[str]:
    """The protocol's own words, which no fuzzer finds by chance."""
    return {word.decode() for data in inputs for word in _WORD.findall(data)}


def _fill(folder: Path, inputs: Iterable[bytes]) -> None:
    for number, data in enumerate(inputs):
        (folder / f"{number:04}").write_bytes(data)


def main(arguments: list[str] | None = None) -> Any:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="inputs to run again, instead")
    parser.add_argument("--seconds", type=int, default=60, help="how long")
    parser.add_argument("--folder", type=Path, help="where inputs are kept; a temporary one by default")
    parser.add_argument("--by-chance", action="store_true", help="without atheris")
    told = parser.parse_args(arguments)
    if told.files:
        again(told.files)
        return
    folder = told.folder or Path(tempfile.mkdtemp(prefix="mcpfleet-fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"inputs are kept in {folder}", flush=True)  # noqa: T201
    if has_atheris() and not told.by_chance:
        by_coverage(told.seconds, folder)
    else:
        print(f"{by_chance(told.seconds, folder)} inputs", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
