"""Hooks of the site's build: pages beside `docs` join the site, and links go where their targets are in it.

A page is written for a reader of the repository, so its links are paths there. The site has other paths: the README is
its first page, and `docs` is its root. A link to a file that the site does not have, such as a manifest, becomes text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
BESIDE: Final = {"README.md": "index.md"} | {
    name: name
    for name in ("CHANGELOG.md", "deploy/k8s/README.md", "tests/vectors/README.md", "observability/signals.md",
                 "observability/traces.md", *(f"observability/pictures/{path.name}" for path in
                 sorted((ROOT / "observability" / "pictures").glob("*.png"))))
}  # fmt: skip
"""Files that the site has beside those in `docs`: their paths in the repository, and in the site."""

_LINK_OR_CODE: Final = re.compile(
    r"^( *)```.*?^\1```$"  # a block of code
    r"|(`+)(?!`).+?(?<!`)\2(?!`)"  # code in a line
    r"|\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)",
    re.MULTILINE | re.DOTALL,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures from elsewhere in the repository."""
    for path, place in BESIDE.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001  # a hook's
    """Turn the repository's links into the site's; code stays as it is."""
    place = page.file.src_uri
    source = next((path for path, there in BESIDE.items() if there == place), f"docs/{place}")

    def turned(found: re.Match[str]) -> str:
        if found["path"] is None:
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found["path"]))
        there = BESIDE.get(target, target.removeprefix("docs/"))
        if files.get_file_from_path(there) is None:
            return found["text"] if (ROOT / target).exists() else found[0]  # the build refuses the latter
        path = posixpath.relpath(there, posixpath.dirname(place) or ".")
        return f"[{found['text']}]({path}{found['anchor'] or ''})"

    return _LINK_OR_CODE.sub(turned, markdown)
