"""An App's description of its server, and the sentence of a mistake there."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import Icon

from mcpfleet.app import App, DeclarationError
from mcpfleet.contracts.manifest import Definition, Manifest

FINE = Icon(src="https://example.com/a.png")


@pytest.mark.rule("X65", "X66", "X74")
def test_a_manifest_has_it() -> None:
    about: dict[str, Any] = {
        "title": "Library",
        "description": "Lends books.",
        "website_url": "https://example.com",
        "logs": False,
        "ttl": {"tools": 60.0},
    }
    manifest = App("library", version="1", icons=[FINE], **about).manifest()
    assert manifest.model_dump(include=set(about)) == about
    assert manifest.icons == ({"src": "https://example.com/a.png"},)


@pytest.mark.rule("X65", "X66", "X74")
def test_an_app_that_says_nothing_of_it_keeps_its_digest() -> None:
    """Former releases know neither of these members."""
    assert App("library", version="1").manifest().digest == Manifest(name="library", version="1").digest
    assert App("library", version="1").manifest().text == '{"name":"library","version":"1"}'


@pytest.mark.parametrize(
    ("options", "why"),
    [
        pytest.param({"icons": [Icon(src="http://example.com/a.png")]}, "https: or data:", id="X65 an icon of http"),
        pytest.param({"icons": [Icon(src="data:image/png;base64," + "A" * 65_536)]}, "65536", id="X65 a large icon"),
        pytest.param({"website_url": "example.com"}, "https: or http: URL", id="X65 no URL"),
        pytest.param({"ttl": {"tool": 5}}, "known are 'discover', 'prompts'", id="X74 an unknown answer"),
        pytest.param({"ttl": {"tools": -1}}, "0 to 86400 seconds", id="X74 a time that is over"),
    ],
)
@pytest.mark.rule("X65", "X74")
def test_a_bad_description_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(DeclarationError, match=why) as caught:
        App("library", version="1", **options)
    assert "App('library')" in str(caught.value)
    assert f"{__file__}:" in str(caught.value)


@pytest.mark.rule("X74")
def test_a_lister_has_a_ttl_of_its_own() -> None:
    app = App("library", version="1")

    @app.resources(ttl=30)
    async def shelf() -> list[Any]:
        """List nothing."""
        return []

    (text,) = app.manifest().definitions
    assert Definition.model_validate_json(text).list_ttl == 30
    with pytest.raises(DeclarationError, match="0 to 86400"):
        app.resources("other", ttl=-1)(shelf)
