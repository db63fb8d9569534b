"""Texts that clients carry between requests: sealed for one use, by keys that rotate while edges run."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import anyio
import pytest
from structlog.testing import LogCapture

from mcpfleet.contracts.sealing import NotOurs, Unsealable
from mcpfleet.edge.protocol.sealer import KeySealer
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.keys import make_keys
from tests.kit.at_once import SealingAtOnce
from tests.kit.logs import captured
from tests.kit.waiting import until


def key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


def sealer(path: Path, *, adopted_after: float = 0.0) -> SealingAtOnce:
    return SealingAtOnce(KeySealer(str(path), adopted_after=adopted_after, log=captured(LogCapture())))


@pytest.mark.rule("M52")
def test_what_was_sealed_opens_on_every_edge_that_has_the_key(tmp_path: Path) -> None:
    path = make_keys(tmp_path)
    text = sealer(path).seal({"answer": [1, None, "x"]}, bound=b"use", lasts=60)
    assert sealer(path).open(text, bound=b"use") == {"answer": [1, None, "x"]}


@pytest.mark.rule("M52")
def test_it_is_a_token_that_differs_each_time_and_shows_nothing(tmp_path: Path) -> None:
    sealing = sealer(make_keys(tmp_path))
    first, second = (sealing.seal("secret", bound=b"", lasts=60) for _ in range(2))
    assert first != second
    assert "secret" not in first
    assert first.isascii()


@pytest.mark.rule("M52")
@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text + "-TAMPERED",
        lambda text: text[:-1],
        lambda text: ("A" if text[30] != "A" else "B").join((text[:30], text[31:])),
        lambda _: "",
        lambda _: "{}",
        lambda _: "\u2028",
    ],
    ids=["appended", "cut", "changed", "empty", "json", "no ascii"],
)
def test_what_was_changed_is_not_ours(tmp_path: Path, spoil: object) -> None:
    sealing = sealer(make_keys(tmp_path))
    text = sealing.seal(1, bound=b"", lasts=60)
    assert callable(spoil)
    with pytest.raises(NotOurs):
        sealing.open(spoil(text), bound=b"")


@pytest.mark.rule("M52")
def test_it_opens_for_the_use_that_it_was_sealed_for_alone(tmp_path: Path) -> None:
    sealing = sealer(make_keys(tmp_path))
    text = sealing.seal(1, bound=b"one", lasts=60)
    with pytest.raises(NotOurs):
        sealing.open(text, bound=b"another")


@pytest.mark.rule("M52")
def test_its_time_ends(tmp_path: Path) -> None:
    sealing = sealer(make_keys(tmp_path))
    with pytest.raises(NotOurs):
        sealing.open(sealing.seal(1, bound=b"", lasts=-1), bound=b"")


async def test_keys_rotate_while_edges_run(tmp_path: Path) -> None:
    """A new key opens as soon as it is read, and seals when the other edges have had time to read it."""
    path = tmp_path / "keys"
    old, new = key(), key()
    path.write_text(old + "\n")
    early, late = sealer(path, adopted_after=60), sealer(path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(early.watch, 0.02)
        tasks.start_soon(late.watch, 0.02)
        before = early.seal("before", bound=b"", lasts=60)
        path.write_text(f"{new}\n{old}\n")
        await until(lambda: sealed_by(late, new), within=5)
        assert sealed_by(early, old), "it was not known for long enough"
        assert late.open(before, bound=b"") == "before"
        await until(lambda: early.open(late.seal("after", bound=b"", lasts=60), bound=b"") == "after", within=5)
        tasks.cancel_scope.cancel()


def sealed_by(sealing: SealingAtOnce, secret: str) -> bool:
    """Whether a key that stands alone in a file opens what is sealed now."""
    text = sealing.seal(1, bound=b"", lasts=60)
    alone = Path(sealing.path).with_name("alone")
    alone.write_text(secret)
    try:
        sealer(alone).open(text, bound=b"")
    except NotOurs:
        return False
    return True


async def test_a_file_that_becomes_unreadable_leaves_the_known_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(key())
    log = LogCapture()
    sealing = SealingAtOnce(KeySealer(str(path), adopted_after=0, log=captured(log)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sealing.watch, 0.02)
        path.write_text("no key")
        await until(lambda: log.entries, within=5)
        tasks.cancel_scope.cancel()
    assert log.entries[0]["setting"] == "MCPFLEET_SEAL_KEYS"
    assert sealing.open(sealing.seal(1, bound=b"", lasts=60), bound=b"") == 1


@pytest.mark.parametrize("text", ["", "short", base64.b64encode(b"x" * 31).decode(), "# only a comment"])
def test_a_file_without_a_key_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="MCPFLEET_SEAL_KEYS"):
        sealer(path)


def test_without_a_file_nothing_is_sealed_and_the_operator_knows() -> None:
    log = LogCapture()
    sealing = SealingAtOnce(KeySealer("", adopted_after=0, log=captured(log)))
    with pytest.raises(Unsealable):
        sealing.seal(1, bound=b"", lasts=60)
    assert log.entries[0]["setting"] == "MCPFLEET_SEAL_KEYS"
