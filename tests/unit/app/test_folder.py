"""Files of an application's folder: read as they are, and nothing outside of it (X1, X4, X6)."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpfleet.app.errors import Mistake
from mcpfleet.app.folder import Folder, mime_of
from mcpfleet.wire.file_contents import content


@pytest.mark.rule("X1")
def test_a_file_is_named_by_its_bytes(tmp_path: Path) -> None:
    """The reference has path, digest, size and media type, all of one read."""
    (tmp_path / "a.md").write_bytes(b"# A\r\n")
    found = Folder(tmp_path).read("a.md")
    ref = found.ref("a.md")
    assert found.body == b"# A\r\n"
    assert ref.digest == "sha256:" + hashlib.sha256(b"# A\r\n").hexdigest()
    assert (ref.path, ref.size, ref.mime) == ("a.md", 5, "text/markdown")


def test_all_files_are_found_in_order_but_hidden_ones(tmp_path: Path) -> None:
    """Names with a leading dot, and Python's cache, are left out."""
    for name in ("b/c.txt", "a.txt", ".git/config", ".a.swp", "__pycache__/x.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert Folder(tmp_path).paths() == ["a.txt", "b/c.txt"]


def _file_link(root: Path) -> str:
    (root / "link").symlink_to(root.parent / "secret")
    return "link"


def _folder_link(root: Path) -> str:
    (root / "sub").symlink_to(root.parent)
    return "sub/secret"


def _fifo(root: Path) -> str:
    os.mkfifo(root / "pipe")
    return "pipe"


def _socket(root: Path) -> str:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(root / "s"))
    return "s"


@pytest.mark.rule("X6")
@pytest.mark.parametrize("make", [_file_link, _folder_link, _fifo, _socket])
def test_what_is_no_file_of_the_folder_is_refused(tmp_path: Path, make: Callable[[Path], str]) -> None:
    """Links, pipes and sockets are mistakes, found by a read and by a walk; none is waited for."""
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    path = make(root)
    with pytest.raises(Mistake, match=path.partition("/")[0]):
        Folder(root).read(path)
    with pytest.raises(Mistake, match=path.partition("/")[0]):
        Folder(root).paths()


@pytest.mark.rule("X6")
@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "a/../../secret", "a\\b", "a\0b", "a//b", "./a", "e\u0301"]
)
def test_a_path_that_could_lead_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    """`..`, absolute paths, backslashes, NUL, and letters in pieces are refused before anything is opened."""
    (tmp_path / "a").mkdir()
    with pytest.raises(Mistake, match="a file's path"):
        Folder(tmp_path).read(path)


@pytest.mark.rule("X6")
@pytest.mark.parametrize("name", [b"a\\b", "e\u0301".encode(), b"\xff"])
def test_a_file_with_such_a_name_is_refused(tmp_path: Path, name: bytes) -> None:
    """The walk refuses the same names, and those that are no UTF-8."""
    (tmp_path / os.fsdecode(name)).write_text("x")
    with pytest.raises(Mistake, match="a file's path"):
        Folder(tmp_path).paths()


@pytest.mark.rule("X6")
def test_a_volume_of_a_config_map_is_read_through_its_links(tmp_path: Path) -> None:
    """`links="inside"` takes links that stay below the folder, also to a folder and by `..`."""
    (tmp_path / "..1/sub").mkdir(parents=True)
    (tmp_path / "..1/a.md").write_text("a")
    (tmp_path / "..1/sub/b.md").symlink_to("../a.md")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "a.md").symlink_to("..data/a.md")
    (tmp_path / "sub").symlink_to("..data/sub")
    folder = Folder(tmp_path, "inside")
    assert folder.paths() == ["a.md", "sub/b.md"]
    assert folder.read("sub/b.md").body == b"a"


@pytest.mark.rule("X6")
@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", "sub/../../secret", "loop"])
def test_a_link_that_leads_out_is_refused(tmp_path: Path, target: str) -> None:
    """Links that may be taken stay below the folder, and end."""
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (root / "loop").symlink_to(target)
    with pytest.raises(Mistake, match="loop"):
        Folder(root, "inside").read("loop")


@pytest.mark.rule("X6")
def test_a_folder_that_contains_itself_is_refused(tmp_path: Path) -> None:
    """Links to the folder itself end the walk by its bounds."""
    (tmp_path / "a").symlink_to(".")
    (tmp_path / "b").symlink_to(".")
    with pytest.raises(Mistake, match=r"folders deep|files and folders"):
        Folder(tmp_path, "inside").paths()


@pytest.mark.rule("X6")
def test_a_swap_while_it_is_read_leads_nowhere_else(tmp_path: Path) -> None:
    """A folder that turns into a link and back gives its own file, or a mistake, and never the other's."""
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub/a").write_text("inside")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a").write_text("outside")
    is_over = threading.Event()

    def swap() -> None:
        (root / "link").symlink_to(tmp_path / "out")
        while not is_over.is_set():
            (root / "sub").rename(root / "kept")
            (root / "link").rename(root / "sub")
            (root / "sub").rename(root / "link")
            (root / "kept").rename(root / "sub")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        seen = set()
        for _ in range(2_000):
            try:
                seen.add(Folder(root).read("sub/a").body)
            except Mistake:
                seen.add(b"refused")
    finally:
        is_over.set()
        swapping.join()
    assert seen <= {b"inside", b"refused"}


@pytest.mark.rule("X5")
def test_a_file_over_its_limit_is_refused_by_name(tmp_path: Path) -> None:
    """One byte more is too much."""
    (tmp_path / "a").write_bytes(b"12345")
    assert Folder(tmp_path).read("a", 5).size == 5
    with pytest.raises(Mistake, match=r"/a has over 4 bytes"):
        Folder(tmp_path).read("a", 4)


@pytest.mark.rule("X4")
@pytest.mark.parametrize(
    ("body", "mime", "name"),
    [
        (b"a\r\nb\0\xef\xbb\xbf", "text/markdown", "text"),
        (b'{"a":1}', "application/json", "text"),
        (b"<svg/>", "image/svg+xml; charset=utf-8", "text"),
        (b"\xff", "text/plain", "blob"),
        (b"abc", "image/png", "blob"),
        (b"abc", "application/octet-stream", "blob"),
    ],
)
def test_only_text_that_survives_is_sent_as_text(body: bytes, mime: str, name: str) -> None:
    """Everything else is a blob, so that a client gets the very bytes."""
    assert content(body, mime)[0] == name


def test_an_unknown_ending_is_bytes() -> None:
    """The media type of a known ending is the same on every machine."""
    assert mime_of("a/SKILL.md") == "text/markdown"
    assert mime_of("a/b.unheard-of") == "application/octet-stream"
