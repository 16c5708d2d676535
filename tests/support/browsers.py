"""A real Chromium, and what no page of ours may do in it.

Tests with it are plain functions: its driver occupies the event loop of the thread. `tools/browser` runs them.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    Response,
    expect,
    sync_playwright,
)

from everkept.console.pages import PATH, POLICY
from server_processes import HANG, command, environment

PATIENCE = HANG * 1_000  # milliseconds; nothing takes that long unless it hangs
CHROMIUM = "TEST_CHROMIUM"  # the program; `tools/browser` sets it
NARROW = {"width": 320, "height": 640}
WIDE = {"width": 1280, "height": 800}
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
SESSION_KEY = "everkept-session"


@contextmanager
def start_browser() -> Iterator[Browser]:
    """A browser that finds no machine but this one."""
    program = os.environ.get(CHROMIUM)
    assert program, f"Run these with tools/browser, which sets {CHROMIUM}."
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=program,
            args=["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--disable-dev-shm-usage"],
        )
        yield browser
        browser.close()


@dataclass
class Watch:
    """What pages of a context have complained of, and where they have asked."""

    origin: str
    policy: str | None  # that every answer has to carry
    problems: list[str] = field(default_factory=list[str])
    requests: list[str] = field(default_factory=list[str])
    received: int = 0  # bytes of bodies that say how long they are

    def follow(self, context: BrowserContext) -> None:
        context.on("console", self._on_console)
        context.on("weberror", lambda error: self.problems.append(f"page error: {error.error}"))
        context.on("request", self._on_request)
        context.on("requestfailed", self._on_failure)
        context.on("response", self._on_response)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console {message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        self.requests.append(request.url)
        if not request.url.startswith((f"{self.origin}/", "data:", "blob:")):
            self.problems.append(f"foreign request: {request.url}")

    def _on_failure(self, request: Request) -> None:
        # A page that is left drops what it waits for.
        if "ERR_ABORTED" not in (request.failure or ""):
            self.problems.append(f"failed request: {request.url}: {request.failure}")

    def _on_response(self, response: Response) -> None:
        if not response.url.startswith(self.origin):
            return
        self.received += int(response.headers.get("content-length", 0))
        if self.policy is not None and response.headers.get("content-security-policy") != self.policy:
            self.problems.append(f"another policy: {response.url}")

    def forgive(self, text: str) -> None:
        """Drop complaints that a test has caused on purpose."""
        self.problems = [each for each in self.problems if text not in each]


class Pages:
    """Opens pages, each in a context of its own, and says in the end what they complained of."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[tuple[BrowserContext, Watch]] = []

    def open(self, origin: str, *, policy: str | None = POLICY, **options: Any) -> tuple[Page, Watch]:
        chosen: dict[str, Any] = {"viewport": WIDE, "locale": "en-US", "timezone_id": "UTC", **options}
        context = self._browser.new_context(**chosen)
        context.set_default_timeout(PATIENCE)
        watch = Watch(origin, policy)
        watch.follow(context)
        self._contexts.append((context, watch))
        return context.new_page(), watch

    def close(self) -> None:
        for context, _ in self._contexts:
            context.close()
        problems = [each for _, watch in self._contexts for each in watch.problems]
        assert problems == []


def find_violations(page: Page) -> list[str]:
    """What axe has against the page as it is now, and whether it scrolls sideways."""
    if not page.evaluate("() => 'axe' in window"):  # one page shows many places
        page.evaluate(Axe().axe_script)
    options = {"runOnly": {"type": "tag", "values": AXE_TAGS}, "resultTypes": ["violations"]}
    found = page.evaluate("async (options) => ({ violations: (await axe.run(options)).violations })", options)
    violations = [
        f"{each['id']}: {each['help']}: {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
        for each in found["violations"]
        for node in each["nodes"]
    ]
    is_too_wide = page.evaluate("() => document.documentElement.scrollWidth > document.documentElement.clientWidth")
    return [*violations, "it scrolls sideways"] if is_too_wide else violations


class ConsoleProcess:
    """`everkept console`, or a server that offers it, and a session of it."""

    def __init__(self, process: subprocess.Popen[str], data_dir: Path) -> None:
        self.process = process
        self.data_dir = data_dir
        output = process.stderr or process.stdout
        assert output is not None
        said: list[str] = []
        for line in output:
            said.append(line)
            if "#code=" in line:
                break
        else:
            raise AssertionError("".join(said))
        self.address = next(word for word in said[-1].split() if "#code=" in word)
        self.origin, _, code = self.address.partition(f"{PATH}#code=")
        self.code: str | None = code  # until it is used

    @cached_property
    def token(self) -> str:
        """The token of a session, for which the code is used."""
        status, answer = self.post("session", {"code": self.code})
        assert status == 200, answer
        self.code = None
        return answer["token"]

    def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
        """What the console's endpoint answers, without a browser."""
        place = urlsplit(self.origin)
        assert place.hostname is not None
        connection = HTTPConnection(place.hostname, place.port, timeout=HANG)
        with closing(connection):
            sent = {"Content-Type": "application/json", "Accept": "*/*", **(headers or {})}
            connection.request("POST", f"{PATH}/api/{path}", json.dumps(body), sent)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool of the console with its session."""
        status, answer = self.post(
            "call", {"name": tool, "arguments": arguments}, {"Authorization": f"Bearer {self.token}"}
        )
        assert status == 200, answer
        return answer["result"]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(HANG)


@contextmanager
def console_process(
    data_dir: Path, *options: object, serves: bool = False, **variables: str
) -> Iterator[ConsoleProcess]:
    """The console of a data folder; with `serves`, beside MCP and for accounts too."""
    words = ("serve", "--transport", "http", "--console") if serves else ("console", "--no-open")
    process = subprocess.Popen(
        command(*words, "--port", 0, "--data-dir", data_dir, *options),
        cwd=data_dir.parent,
        encoding="utf-8",
        env=environment() | variables,
        stderr=subprocess.PIPE if serves else subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        stdout=None if serves else subprocess.PIPE,
    )
    try:
        console = ConsoleProcess(process, data_dir)
        yield console
        console.stop()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stderr, process.stdout):
            if stream is not None:
                stream.close()


class Console:
    """The console in a browser, with a session."""

    def __init__(self, page: Page, watch: Watch) -> None:
        self.page = page
        self.watch = watch

    def begin(self, token: str, place: str = "#/") -> None:
        """Open with the token of a session or an account."""
        self.page.add_init_script(f"sessionStorage.setItem('{SESSION_KEY}', '{token}')")
        self.page.goto(f"{self.watch.origin}{PATH}{place}")
        self.settle()

    def go(self, place: str, query: Mapping[str, str] | None = None) -> None:
        """Go to a place, such as `memories`, and wait until it shows everything."""
        words = "&".join(f"{name}={value}" for name, value in (query or {}).items())
        self.page.evaluate("(hash) => { location.hash = hash; }", f"#/{place}{'?' if words else ''}{words}")
        self.settle()

    def settle(self) -> None:
        """Wait until the page shows all that it has asked for."""
        self.page.evaluate("() => new Promise((done) => setTimeout(done))")  # a change of the address is told later
        self.page.wait_for_function(
            "() => !document.documentElement.dataset.busy && document.querySelector('main h1')"
            " && document.querySelector('.board[data-settled=false]:not([hidden])') === null"
        )

    def press(self, *keys: str) -> None:
        for each in keys:
            self.page.keyboard.press(each)

    def expect(self, selector: str) -> Any:
        """Return what can be expected of the nodes, which may still be on their way."""
        return expect(self.page.locator(selector))

    def find_violations(self) -> list[str]:
        return find_violations(self.page)

    @property
    def focused(self) -> str:
        """The text of what has the focus."""
        return self.page.evaluate("() => document.activeElement?.textContent?.trim() ?? ''")


StartConsole = Callable[..., ConsoleProcess]
OpenConsole = Callable[..., Console]
