"""A source's digest names the server behind it, and no secret of it shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from mcpfleet.sources.reading import read_configuration
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


@pytest.mark.rule("B21")
def test_texts_of_variables_are_masked_wherever_they_stand(tmp_path: Path) -> None:
    """A program may write a token without the words around it; what is shorter than a secret stays."""
    file = tmp_path / "fleet.toml"
    file.write_text(
        '[sources.memory]\ncommand = ["memory", "--token=${TOKEN}", "-v", "${LEVEL}"]\n'
        'env = { HEADER = "Bearer ${OTHER}" }\n'
    )
    environment = {"TOKEN": "s3cret", "LEVEL": "2", "OTHER": "0ther"}
    [source] = read_configuration(file, environment).sources
    assert source.masked("refused s3cret with 0ther at 12") == "refused *** with *** at 12"
    assert "0ther" not in repr(source.way.env)  # type: ignore[union-attr]  # it is a command
    [again] = read_configuration(file, environment | {"TOKEN": "an0ther", "OTHER": "third"}).sources
    assert again.digest == source.digest
