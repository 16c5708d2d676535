"""The files of the page, without a browser."""

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from console_calls import ConsoleClient
from everkept.app.app import App
from everkept.console.pages import build_page_routes
from everkept.console.server import list_console_tools
from everkept.values import replace

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types layout"
)
STATIC = Path(str(resources.files("everkept.console"))) / "static"
MAX_LINES = 330
MAX_BYTES = 260_000


def list_files(*suffixes: str) -> list[Path]:
    return [path for path in STATIC.rglob("*") if path.suffix in suffixes]


async def test_every_file_is_served_under_the_policy_and_without_a_cookie(client: ConsoleClient) -> None:
    paths = [path for path in client.routes if "/api/" not in path]
    assert len(paths) == len(list_files(".html", ".css", ".js", ".svg")) + 3  # and two names of the page, and the icon
    for path in paths:
        answer = await client.ask(path)
        assert answer.status == 200, path
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert not {"set-cookie", "access-control-allow-origin"} & answer.headers.keys()


async def test_a_file_that_is_known_is_not_sent_again(client: ConsoleClient) -> None:
    first = await client.ask("/console/main.js")
    assert first.headers["content-type"] == "text/javascript; charset=utf-8"
    again = await client.ask("/console/main.js", if_none_match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert again.headers["content-security-policy"] == POLICY


async def test_a_page_is_only_read(client: ConsoleClient) -> None:
    assert (await client.ask("/console", "POST")).status == 405
    head = await client.ask("/console", "HEAD")
    assert (head.status, head.body) == (200, b"")


@pytest.mark.parametrize("path", ["/console/../server.py", "/console/server.py", "/console/pages", "/console/%2e%2e"])
def test_only_listed_files_have_a_path(path: str) -> None:
    assert path not in build_page_routes()


def find_calls(text: str) -> Iterator[tuple[str, set[str]]]:
    """The name of each tool that a script calls, and the arguments that it writes out."""
    for found in re.finditer(r'\b(?:call|callIn|change|act)\((?:\w+, )?"(\w+)"(, \{)?', text):
        names: set[str] = set()
        depth, word = 0, ""
        for sign in text[found.end() :] if found[2] else "":
            if sign in "{[(":
                depth += 1
            elif sign in "}])":
                depth -= 1
            if depth < 0 or (depth == 0 and sign in ",:"):
                if re.fullmatch(r"\s*\w+", word):
                    names.add(word.strip())
                # What follows a colon is a value, up to the next comma.
                word = "?" if sign == ":" else ""
                if depth < 0:
                    break
            elif depth == 0:
                word += sign
        yield found[1], names


async def test_every_call_of_the_page_names_a_tool_and_arguments_that_exist(client: ConsoleClient) -> None:
    settings = client.app.settings
    every = App(replace(settings, toolsets="all"), library=client.app.library)
    offered = {each.name: each for each in (*every.tools, *list_console_tools(every))}
    called: set[str] = set()
    for path in list_files(".js"):
        for name, arguments in find_calls(path.read_text(encoding="utf-8")):
            assert name in offered, f"{path.name} calls {name}"
            known = {word for each in offered[name].parameters for word in (each.name, *each.field.aliases)}
            unknown = arguments - known
            assert not unknown, f"{path.name} passes {unknown} to {name}"
            called.add(name)
    own = {each.name for each in list_console_tools(every)}
    assert own - called == set()


def test_the_page_loads_nothing_foreign_and_parses_no_html() -> None:
    for path in list_files(".html", ".css", ".js"):
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://[a-z0-9]", text), path.name
        forbidden = r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|new Function|srcdoc|DOMParser)\b"
        assert not re.search(forbidden, text), path.name
    html = (STATIC / "index.html").read_text(encoding="utf-8")
    assert set(re.findall(r'(?:href|src)="(/[^"]+)"', html)) <= build_page_routes().keys()
    assert "<style" not in html
    assert not re.search(r"\son[a-z]+=|style=|<script(?![^>]*\bsrc=)", html)


def test_every_file_of_the_page_is_small() -> None:
    scripts = list_files(".js")
    assert {path.name for path in scripts if len(path.read_text(encoding="utf-8").splitlines()) > MAX_LINES} == set()
    assert sum(path.stat().st_size for path in list_files(".html", ".css", ".js", ".svg")) < MAX_BYTES


def test_every_import_and_icon_exists() -> None:
    icons = set(re.findall(r'<symbol id="([a-z]+)"', (STATIC / "icons.svg").read_text(encoding="utf-8")))
    for path in list_files(".js"):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r'(?:from|import)\(?\s*"(\.[^"]+)"', text):
            assert (path.parent / name).resolve().is_file(), f"{path.name} imports {name}"
        assert set(re.findall(r'\b(?:icon|iconButton|action)\("([a-z]+)"', text)) <= icons, path.name
