"""Lines of pipes: whole, bounded, and never ahead of a reader that is slow."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from mcpfleet.cli.stdio.lines import LineReader, LineWriter, OutputClosed, TooLong


async def lines_of(written: bytes, folder: Path, longest: int = 1 << 20) -> list[bytes | TooLong]:
    """Read what is written, from a file."""
    file = folder / "input"
    file.write_bytes(written)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return [line async for line in LineReader(descriptor, longest).lines()]
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\n\r\n\n  b  ", [b"a", b"b"]),
        (b"x" * 200_000 + b"\ny", [b"x" * 200_000, b"y"]),
    ],
)
async def test_lines_are_whole_whatever_their_ends(written: bytes, lines: list[bytes], tmp_path: Path) -> None:
    assert await lines_of(written, tmp_path) == lines


@pytest.mark.parametrize(
    ("line", "identifier"),
    [
        (b'{"jsonrpc":"2.0","id":5,"method":"x","params":{"id":6,"a":"%s"}}', b"5"),
        (b'{"jsonrpc": "2.0", "id": "a\\"b", "method":"x","params":{"a":"%s"}}', b'"a\\"b"'),
        (b'{"method":"x","params":{"id":6,"a":"%s"},"jsonrpc":"2.0","id":7}', b"7"),
        (b'{"method":"x","id":8,"params":{"a":"%s"}}', None),
        (b"%s", None),
    ],
)
@pytest.mark.parametrize("length", [2_000, 200_000])
async def test_a_line_that_is_too_long_is_dropped_and_its_id_is_found(
    line: bytes, identifier: bytes | None, length: int, tmp_path: Path
) -> None:
    written = line.replace(b"%s", b"x" * length) + b"\nnext\n"
    assert await lines_of(written, tmp_path, longest=1_000) == [TooLong(identifier), b"next"]


async def test_a_slow_reader_of_the_output_slows_down_its_writer() -> None:
    out_of, into = os.pipe()
    writer, written = LineWriter(into), []

    async def write() -> None:
        for number in range(100):
            await writer.write(b"%05d" % number + b"x" * 10_000)
            written.append(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        await anyio.sleep(0.1)
        assert len(written) < 20, "a pipe has room for 64 KiB"
        reading = os.fdopen(out_of, "rb")
        got = await anyio.to_thread.run_sync(lambda: [reading.readline() for _ in range(100)])
    reading.close()
    writer.close()
    os.close(into)
    assert [int(line[:5]) for line in got] == list(range(100))


async def test_an_output_that_nobody_reads_is_told() -> None:
    out_of, into = os.pipe()
    os.close(out_of)
    writer = LineWriter(into)
    with pytest.raises(OutputClosed):
        await writer.write(b"a")
    with pytest.raises(OutputClosed):
        await writer.write(b"b")
    writer.close()
    os.close(into)
