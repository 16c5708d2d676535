"""Workspace folders of a client: reading its answer, and choosing the one of a call."""

import os
from pathlib import Path
from typing import Any

import pytest

from everkept.core.client_roots import choose_root, parse_file_uri, parse_roots


def test_folders_of_this_machine_are_read_in_order_and_once(tmp_path: Path) -> None:
    shop, blog = tmp_path / "shöp & co", tmp_path / "blog"
    shop.mkdir()
    blog.mkdir()
    (tmp_path / "file").touch()
    uris = [blog.as_uri(), shop.as_uri(), blog.as_uri(), (tmp_path / "file").as_uri(), (tmp_path / "no").as_uri()]
    assert parse_roots({"roots": [{"uri": uri, "name": "x"} for uri in uris]}) == (blog, shop)


@pytest.mark.parametrize(
    "result",
    [None, [], "file:///", {}, {"roots": None}, {"roots": {}}, {"roots": [None, 1, "file:///", {}, {"uri": 5}]}],
)
def test_a_broken_answer_has_no_folders(result: Any) -> None:
    assert parse_roots(result) == ()


@pytest.mark.parametrize(
    "uri",
    [
        "https://host/x",
        "vscode-remote://ssh/home/x",
        "file:relative",
        "file:///a%00b",
        "file://[broken",
        "file:///%ff",
        "",
    ],
)
def test_another_address_is_not_a_folder(uri: str) -> None:
    assert parse_file_uri(uri) is None


def test_a_drive_may_be_encoded() -> None:
    found = parse_file_uri("file:///c%3A/Users/dev")
    assert found == Path("c:/Users/dev" if os.name == "nt" else "/c:/Users/dev")


def test_a_call_belongs_to_the_innermost_folder_that_it_names(tmp_path: Path) -> None:
    shop, api, blog = tmp_path / "shop", tmp_path / "shop" / "api", tmp_path / "blog"
    roots = (blog, shop, api)
    file = api / "src" / "a.py"
    assert choose_root(roots, {"content": "x", "source": {"files": [str(file)]}}) == api
    assert choose_root(roots, {"files_in_context": [file.as_uri()]}) == api
    assert choose_root(roots, {"path": str(shop)}) == shop
    assert choose_root(roots, {"content": f"see {file}", "path": "src/a.py", "n": 5, "other": str(tmp_path)}) is None


def test_a_folder_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """The answer is read between the calls of the client, so an error would stop the server."""
    uris = ["file:///" + "a" * 5_000, "file:///" + "a/" * 5_000, "file:///tmp/\ud800", tmp_path.as_uri()]
    assert parse_roots({"roots": [{"uri": uri} for uri in uris]}) == (tmp_path,)
