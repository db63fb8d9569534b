"""The ids of tasks: of one form, and fit for a command line."""

from __future__ import annotations

import secrets

import pytest

from mcpfleet.contracts.tasks import is_task_id, new_task_id


def test_an_id_is_no_option_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """`mcpfleet tasks watch URL -x…` would ask for an option."""
    made = iter(["-" + "a" * 31, "--" + "b" * 30, "c-" + "d" * 30])
    monkeypatch.setattr(secrets, "token_urlsafe", lambda _bytes: next(made))
    assert new_task_id() == "c-" + "d" * 30


def test_ids_are_of_their_form_and_differ() -> None:
    made = {new_task_id() for _ in range(100)}
    assert len(made) == 100
    assert all(map(is_task_id, made))
    assert not is_task_id("x")
