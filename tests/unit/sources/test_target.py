"""Targets of a command line that are no App, and the names that sources of it get."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.sources.names import is_source, name_of
from mcpfleet.sources.source import Command, OpenApi, Url
from mcpfleet.sources.target import SourceTarget

TWO = '{"mcpServers": {"one": {"command": "x"}, "two": {"url": "https://x/mcp"}}, "mcpfleet": {"endpoints": {"a": {}}}}'


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (".mcp.json", True),
        ("/srv/fleet.toml:memory", True),
        ("https://x.example/mcp", True),
        ("openapi:api.yaml", True),
        ("shop.py", False),
        ("shop.py:app", False),
        ("package.module:app", False),
    ],
)
def test_the_form_of_a_target_tells_sources_from_apps(target: str, expected: bool) -> None:
    assert is_source(target) is expected


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("npx", "-y", "@modelcontextprotocol/server-memory"), "server-memory"),
        (("npx", "-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "/tmp"), "server-filesystem"),
        (("uvx", "mcp-server-time", "--local-timezone=UTC"), "mcp-server-time"),
        (("uvx", "mcp-server-fetch==2026.1"), "mcp-server-fetch"),
        (("/usr/bin/python3.12", "-m", "my_server"), "my-server"),
        (("docker", "run", "-i", "--rm", "ghcr.io/github/github-mcp-server:1.2"), "github-mcp-server"),
        (("env", "A=1", "node", "dist/index.js"), "index"),
        (("python",), "python"),
    ],
)
def test_a_command_is_named_after_what_it_runs(command: tuple[str, ...], name: str) -> None:
    assert name_of(command) == name


def test_a_command_keeps_its_words_and_has_no_prefix() -> None:
    target = SourceTarget(command=("npx", "server", "${HOME}"))
    (source,) = target.read({}).sources
    assert source.way == Command(words=("npx", "server", "${HOME}"))
    assert (source.name, source.prefix, target.text) == ("server", "", "-- npx server ${HOME}")


def test_urls_and_documents_are_sources() -> None:
    one, two = SourceTarget(targets=("https://x.example/mcp", "openapi:https://y.example/shop.yaml")).read({}).sources
    assert (one.name, one.way) == ("x-example", Url(url="https://x.example/mcp"))
    [named] = SourceTarget(targets=("https://ann:s3cret@x.example/mcp",)).read({}).sources
    assert named.name == "x-example"
    assert (two.name, two.way) == ("shop", OpenApi(document="https://y.example/shop.yaml"))


def test_a_file_gives_all_sources_or_the_one_that_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "My Project"
    folder.mkdir()
    file = folder / ".mcp.json"
    file.write_text(TWO)
    target = SourceTarget(targets=(str(file),), isolation="shared")
    found = target.read({})
    assert [(each.name, each.isolation) for each in found.sources] == [("one", "shared"), ("two", "shared")]
    assert target.name(found.sources) == "my-project"
    assert (found.files, list(found.endpoints)) == ((file,), ["a"])
    alone = SourceTarget(targets=(f"{file}:two",)).read({})
    assert [each.name for each in alone.sources] == ["two"]
    assert not alone.endpoints
    assert target.name(alone.sources) == "two"


def test_two_sources_of_one_name_and_none_at_all_are_told(tmp_path: Path) -> None:
    file = tmp_path / ".mcp.json"
    file.write_text(TWO)
    with pytest.raises(ConfigurationError, match=r"two sources have the name 'one': .*\.mcp\.json:1 and the command"):
        SourceTarget(targets=(str(file),), command=("one",)).read({})
    file.write_text('{"mcpServers": {"one": {"type": "sse", "url": "https://x"}}}')
    with pytest.raises(ConfigurationError, match=r"there is no source to serve: .*one is left out"):
        SourceTarget(targets=(str(file),)).read({})
    with pytest.raises(ConfigurationError, match=r"shop\.module: is no file of servers"):
        SourceTarget(targets=("shop.module",)).read({})
