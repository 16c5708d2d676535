"""A chat program that draws views: a page, a proxy of another origin with the specification's policy, and the view.

It passes calls of a view on to a real server.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from playwright.sync_api import FrameLocator, Page, Route

from browsers import Watch
from view_clients import ViewClient

HOST = "http://127.0.0.1:4"
PROXY = "http://127.0.0.1:5"
DEFAULT_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; media-src 'self' data:; connect-src 'none'"
)
CAPABILITIES: dict[str, Any] = {"serverTools": {}, "openLinks": {}, "logging": {}}
CONTEXT: dict[str, Any] = {"theme": "light", "displayMode": "inline", "availableDisplayModes": ["inline", "fullscreen"]}

HOST_PAGE = """<!doctype html>
<html lang="en"><head><title>Chat</title>
<style>body { margin: 24px; } iframe { width: 100%; height: 60px; border: 0; }</style></head>
<body><main><h1>Chat</h1><iframe id="proxy" title="View"></iframe></main>
<script>
const frame = document.getElementById("proxy");
const log = [];
const send = (message) => frame.contentWindow.postMessage({ jsonrpc: "2.0", ...message }, "*");
addEventListener("message", async ({ source, data }) => {
  if (source !== frame.contentWindow) return;
  if (data.method === "proxy-ready") return frame.contentWindow.postMessage({ page: await readPage() }, "*");
  log.push(data);
  if (data.method === "ui/notifications/size-changed") frame.style.height = `${data.params.height}px`;
  if (!data.method || data.id === undefined) return;
  const { first = [], ...said } = await answer(data.method, data.params);
  first.forEach(send);
  send({ id: data.id, ...said });
});
frame.src = "PROXY/";
</script></body></html>
""".replace("PROXY", PROXY)
PROXY_PAGE = """<!doctype html>
<html lang="en"><head><title>Proxy</title>
<style>html, body, iframe { display: block; margin: 0; width: 100%; height: 100%; border: 0; }</style></head>
<body><iframe id="view" title="View" sandbox="allow-scripts allow-same-origin"></iframe>
<script>
const view = document.getElementById("view");
addEventListener("message", ({ source, data }) => {
  if (source === view.contentWindow) parent.postMessage(data, "*");
  else if (source !== parent) return;
  else if (data.page === undefined) view.contentWindow.postMessage(data, "*");
  else {
    view.contentDocument.open();
    view.contentDocument.write(data.page);
    view.contentDocument.close();
  }
});
parent.postMessage({ method: "proxy-ready" }, "*");
</script></body></html>
"""


class ViewHost:
    """The chat program with one view. `log` has all that the view sent."""

    def __init__(self, page: Page, watch: Watch, client: ViewClient, html: str, **about: Any) -> None:
        self.page = page
        self.client = client
        self.capabilities = about.get("capabilities", CAPABILITIES)
        self.context = CONTEXT | about.get("context", {})
        self._first: list[tuple[str, Any]] = about.get("first", [])  # what it sends before it answers
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._watch = watch
        page.expose_function("answer", self._answer)
        page.expose_function("readPage", lambda: html)
        page.context.route(f"{HOST}/", _build_route(HOST_PAGE, {}))
        page.context.route(f"{PROXY}/", _build_route(PROXY_PAGE, {"content-security-policy": DEFAULT_POLICY}))
        page.goto(f"{HOST}/")

    @property
    def view(self) -> FrameLocator:
        return self.page.frame_locator("#proxy").frame_locator("#view")

    @property
    def frame(self) -> Any:
        """The frame of the view, to evaluate in."""
        return next(frame for frame in self.page.frames if frame.parent_frame and frame.parent_frame.parent_frame)

    @property
    def log(self) -> list[dict[str, Any]]:
        return self.page.evaluate("() => log")

    def wait_for(self, method: str) -> dict[str, Any]:
        """Return the last message of the view with this method."""
        self.page.wait_for_function("(name) => log.some(({ method }) => method === name)", arg=method)
        return next(each for each in reversed(self.log) if each.get("method") == method)

    def send(self, method: str, params: Any, **more: Any) -> None:
        self.page.evaluate("(message) => send(message)", {"method": method, "params": params, **more})

    def give_input(self, arguments: dict[str, Any]) -> None:
        self.send("ui/notifications/tool-input", {"arguments": arguments})

    def give_result(self, result: Any) -> None:
        self.send("ui/notifications/tool-result", result)

    def run(self, tool: str, **arguments: Any) -> None:
        """Call the tool as the model does, and show its result."""
        self.wait_for("ui/notifications/initialized")
        self.give_input(arguments)
        self.give_result(self.client.call(tool, **arguments))

    def forget_known_problems(self) -> None:
        """Remove what the browser says about the host's own frames."""
        known = (f"foreign request: {PROXY}/", "can escape its sandboxing")
        self._watch.problems[:] = [each for each in self._watch.problems if not any(part in each for part in known)]

    def _answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "ui/initialize":
            return {
                "first": [{"method": name, "params": each} for name, each in self._first],
                "result": {
                    "protocolVersion": params["protocolVersion"],
                    "hostInfo": {"name": "test", "version": "1"},
                    "hostCapabilities": self.capabilities,
                    "hostContext": self.context,
                },
            }
        if method == "tools/call":
            self.calls.append((params["name"], params["arguments"]))
            answer = self.client.respond("tools/call", **params)
            return {key: answer[key] for key in ("result", "error") if key in answer}
        if method == "ui/request-display-mode":
            return {"result": {"mode": params["mode"]}}
        return {"error": {"code": -32601, "message": f"Method not found: {method}"}}


def _build_route(body: str, headers: dict[str, str]) -> Callable[[Route], None]:
    def fulfill(route: Route) -> None:
        with suppress(Exception):  # the page was closed
            route.fulfill(body=body, content_type="text/html; charset=utf-8", headers=headers)

    return fulfill
