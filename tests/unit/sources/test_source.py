"""A source's digest names the server behind it, and no secret of it shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from mcpfleet.sources.source import Command, Source, Url, Value


def memory(*words: str, token: str = "s3cret", isolation: str | None = None) -> Source:
    env = {"TOKEN": Value(text=token), "MODE": Value(text="fast", is_secret=False)}
    way = Command(words=words or ("memory",), env=env, cwd=Path("/srv"))
    return Source.model_validate({"name": "memory", "way": way, "isolation": isolation})


def test_the_digest_does_not_depend_on_a_secret() -> None:
    assert memory(token="a").digest == memory(token="b").digest


def test_the_digest_depends_on_command_and_isolation() -> None:
    digests = {memory().digest, memory("other").digest, memory(isolation="call").digest}
    assert len(digests) == 3


def test_a_value_is_not_shown() -> None:
    assert "s3cret" not in repr(memory())
    assert "s3cret" not in str(memory())


def test_secrets_are_the_texts_of_references_alone() -> None:
    assert memory().secrets == ("s3cret",)


def test_secrets_of_an_auth_table_are_found_at_any_depth() -> None:
    auth = {"kind": "client_credentials", "client": {"secret": Value(text="deep")}}
    assert Source(name="crm", way=Url(url="https://crm.example/mcp", auth=auth)).secrets == ("deep",)


def test_an_unknown_member_is_refused() -> None:
    with pytest.raises(ValidationError, match="colour"):
        Source.model_validate({"name": "memory", "way": {"kind": "command", "words": ["x"]}, "colour": "red"})
