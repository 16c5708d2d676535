"""Views in a real browser, in a chat program with the policy of the specification and a real server behind it."""

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import server_processes

if TYPE_CHECKING:
    from conftest import Serve, ShowView

    from view_host import ViewHost

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("transport", "era"), [(t, e) for t in ("stdio", "http") for e in ("handshake", "stateless")])
def test_the_graph_is_drawn_and_grows_by_calls_of_its_server(
    transport: str, era: str, shared_clients: "Serve", show_view: "ShowView"
) -> None:
    from playwright.sync_api import expect

    host = show_view(shared_clients("shop", transport, era), "search_nodes")
    host.run("search_nodes", query="Stripe")
    view = host.view
    line = view.get_by_role("button", name="entities")
    expect(line).to_contain_text("3 entities, 2 relations")
    line.click()
    view.locator(".board[data-settled=true]").wait_for()
    view.get_by_text("List of 3 entities").click()
    view.locator(".twin").get_by_role("button", name="Checkout").click()
    chosen = view.get_by_label("The chosen entity")
    expect(chosen).to_contain_text("three steps since May")  # read with open_nodes
    chosen.get_by_role("button", name="Show its neighbors").click()
    expect(view.locator("summary", has_text="List of")).to_have_text("List of 5 entities")
    assert [name for name, _ in host.calls] == ["open_nodes", "search_knowledge_graph"]
    assert [each["method"] for each in host.log[:2]] == ["ui/initialize", "ui/notifications/initialized"]
    assert host.wait_for("ui/notifications/size-changed")["params"]["height"] > 400


def test_a_view_begins_as_one_line_and_tells_the_host_its_size(shared_clients: "Serve", show_view: "ShowView") -> None:
    host = show_view(shared_clients("shop"), "search_nodes")
    host.run("search_nodes", query="Stripe")
    host.view.get_by_text("3 entities, 2 relations").wait_for()
    wait_for_height(host, "height <= 60")
    assert host.view.locator("canvas").is_hidden()
    host.view.get_by_role("button", name="entities").click()
    wait_for_height(host, "height > 400")
    host.view.get_by_role("button", name="entities").click()
    wait_for_height(host, "height <= 60")


def wait_for_height(host: "ViewHost", condition: str) -> None:
    """Wait until the last report of size fulfills the condition."""
    last = "log.findLast(({ method }) => method === 'ui/notifications/size-changed')?.params"
    host.page.wait_for_function(f"() => {{ const {{ height }} = {last} ?? {{}}; return {condition}; }}")


def test_full_screen_is_asked_of_the_host_and_opens_the_view(shared_clients: "Serve", show_view: "ShowView") -> None:
    host = show_view(shared_clients("shop"), "search_nodes")
    host.run("search_nodes", query="Stripe")
    host.view.get_by_role("button", name="Full screen").click()
    host.view.locator("canvas").wait_for()
    assert host.wait_for("ui/request-display-mode")["params"] == {"mode": "fullscreen"}
    host.send("ui/notifications/host-context-changed", {"displayMode": "inline"})
    host.view.locator("canvas").wait_for(state="hidden")
    inline = show_view(shared_clients("shop"), "search_nodes", context={"availableDisplayModes": ["inline"]})
    inline.run("search_nodes", query="Stripe")
    inline.view.get_by_text("3 entities, 2 relations").wait_for()
    assert inline.view.get_by_role("button", name="Full screen").count() == 0


def test_the_looks_of_the_host_are_taken_over(shared_clients: "Serve", show_view: "ShowView") -> None:
    host = show_view(shared_clients("shop"), "search_nodes", context={"theme": "dark"})
    host.run("search_nodes", query="Stripe")
    host.view.get_by_text("3 entities, 2 relations").wait_for()
    assert read_color(host, "background-color") == "rgb(22, 26, 33)"  # ours, as the host has sent no styles
    variables = {"--color-background-primary": "rgb(1, 2, 3)", "--color-text-primary": "rgb(250, 240, 230)"}
    host.send("ui/notifications/host-context-changed", {"styles": {"variables": variables}})
    host.frame.wait_for_function("() => getComputedStyle(document.body).backgroundColor === 'rgb(1, 2, 3)'")
    assert read_color(host, "color") == "rgb(250, 240, 230)"
    host.send("ui/notifications/host-context-changed", {"theme": "light", "styles": None})
    host.frame.wait_for_function("() => getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)'")
    assert host.frame.evaluate("() => getComputedStyle(document.documentElement).colorScheme") == "normal"


def read_color(host: "ViewHost", name: str) -> str:
    return host.frame.evaluate("(name) => getComputedStyle(document.body).getPropertyValue(name)", name)


def test_a_host_that_passes_no_calls_gets_no_buttons_for_them(shared_clients: "Serve", show_view: "ShowView") -> None:
    from playwright.sync_api import expect

    client, about = shared_clients("shop"), {"capabilities": {}}
    graph = show_view(client, "search_nodes", **about)
    graph.run("search_nodes", query="Stripe")
    graph.view.get_by_role("button", name="entities").click()
    graph.view.get_by_text("List of").click()
    graph.view.locator(".twin").get_by_role("button", name="Stripe").click()
    expect(graph.view.get_by_label("The chosen entity")).to_contain_text("takes card payments")
    assert graph.view.get_by_role("button", name="Show its neighbors").count() == 0
    memories = show_view(client, "recall_memories", **about)
    memories.run("recall_memories", query="PostgreSQL row locks for the order data")
    memories.view.locator(".chat-line").click()
    memories.view.locator(".card", has_text="PostgreSQL 17").wait_for()
    assert memories.view.locator(".card button").count() == 0
    past = show_view(client, "recall_previous_discussions", **about)
    past.run("recall_previous_discussions", query="webhooks")
    past.view.locator(".chat-line").click()
    past.view.locator(".turn").first.wait_for()
    assert past.view.locator(".turn button").count() == 0
    assert graph.calls + memories.calls + past.calls == []


STATES: dict[str, tuple[str, Any, str]] = {
    "error": (
        "search_nodes",
        {
            "isError": True,
            "content": [{"type": "text", "text": "x"}],
            "structuredContent": {"error": "not_found", "message": "No <b>project</b>.", "hint": "Create one."},
        },
        "No <b>project</b>. Create one.",
    ),
    "error without structure": (
        "search_nodes",
        {"isError": True, "content": [{"type": "text", "text": "Unknown tool: x."}]},
        "Unknown tool: x.",
    ),
    "only text": ("read_graph", {"content": [{"type": "text", "text": "# Graph"}]}, "# Graph"),
    "no content": ("read_graph", {}, "The tool failed."),
    "no entity": ("search_nodes", {"structuredContent": {"entities": []}}, "No entity was found."),
    "no memory": ("recall_memories", {"structuredContent": {"memories": []}}, "No memory was found."),
    "no turn": (
        "recall_previous_discussions",
        {"structuredContent": {"results": [], "summary": "Nothing about lamps."}},
        "Nothing about lamps.",
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_without_something_to_draw_the_view_says_why(
    state: str, shared_clients: "Serve", show_view: "ShowView"
) -> None:
    from playwright.sync_api import expect

    tool, result, said = STATES[state]
    host = show_view(shared_clients("shop"), tool)
    host.wait_for("ui/notifications/initialized")
    expect(host.view.get_by_role("status")).to_contain_text("…")
    host.give_input({})
    host.give_result(result)
    expect(host.view.locator("main > div")).to_have_text(said)


def test_a_canceled_call_ends_the_wait_and_a_late_result_is_shown(
    shared_clients: "Serve", show_view: "ShowView"
) -> None:
    from playwright.sync_api import expect

    client = shared_clients("shop")
    host = show_view(client, "search_nodes")
    host.wait_for("ui/notifications/initialized")
    host.send("ui/notifications/tool-cancelled", {"reason": "stopped"})
    expect(host.view.get_by_role("status")).to_have_text("The call was canceled.")
    host.give_result(client.call("search_nodes", query="Stripe"))
    host.view.get_by_text("3 entities, 2 relations").wait_for()
    host.send("ui/notifications/tool-cancelled", {"reason": "late"})
    host.give_input({"query": "late"})
    host.send("ui/notifications/tool-input-partial", {"arguments": {}})
    host.send("ui/notifications/unknown", {})
    host.send("ping", {}, id=77)
    host.page.wait_for_function("() => log.some(({ id, result }) => id === 77 && result)")
    assert host.view.get_by_text("3 entities, 2 relations").is_visible()
    host.send("sampling/unknown", {}, id=78)
    host.page.wait_for_function("() => log.some(({ id, error }) => id === 78 && error.code === -32601)")


def test_a_result_before_the_handshake_is_shown(shared_clients: "Serve", show_view: "ShowView") -> None:
    client = shared_clients("shop")
    result = client.call("search_nodes", query="Stripe")
    host = show_view(client, "search_nodes", first=[("ui/notifications/tool-result", result)])
    host.view.get_by_text("3 entities, 2 relations").wait_for()
    host.wait_for("ui/notifications/initialized")
    host.give_input({"query": "Stripe"})
    assert host.view.get_by_text("3 entities, 2 relations").is_visible()


def test_messages_of_others_are_ignored(shared_clients: "Serve", show_view: "ShowView") -> None:
    host = show_view(shared_clients("shop"), "search_nodes")
    host.run("search_nodes", query="Stripe")
    host.view.get_by_text("3 entities, 2 relations").wait_for()
    entities = [{"name": "Forged", "entity_type": "x", "observations": ["x"]}]
    forged = {
        "jsonrpc": "2.0",
        "method": "ui/notifications/tool-result",
        "params": {"structuredContent": {"entities": entities}},
    }
    # From the view itself, and from the page above the proxy.
    host.frame.evaluate("(message) => postMessage(message, '*')", forged)
    host.page.evaluate("(message) => frame.contentWindow.frames[0].postMessage(message, '*')", forged)
    host.send("ping", {}, id=76)
    host.page.wait_for_function("() => log.some(({ id, result }) => id === 76 && result)")
    assert host.view.get_by_text("3 entities, 2 relations").is_visible()
    host.send(forged["method"], forged["params"])  # the host itself may send it
    host.view.get_by_text("1 entity, 0 relations").wait_for()


def test_a_view_that_is_taken_down_answers_and_falls_silent(shared_clients: "Serve", show_view: "ShowView") -> None:
    host = show_view(shared_clients("shop"), "read_graph")
    host.run("read_graph")
    host.view.get_by_role("button", name="entities").click()
    host.send("ui/resource-teardown", {"reason": "closed"}, id="down")
    host.page.wait_for_function("() => log.some(({ id, result }) => id === 'down' && result)")
    count = len(host.log)
    host.send("ping", {}, id=79)
    host.frame.evaluate("() => { document.body.append('x'.repeat(9000)); }")
    host.frame.evaluate("() => new Promise((done) => setTimeout(done, 200))")
    assert len(host.log) == count


def test_500_results_are_drawn_in_part(shared_clients: "Serve", show_view: "ShowView") -> None:
    from playwright.sync_api import expect

    client = shared_clients("shop")
    names = [f"Entity {number}" for number in range(500)]
    entities = [{"name": each, "entity_type": f"kind {n % 9}", "observations": ["x"]} for n, each in enumerate(names)]
    relations = [{"from": names[n // 3], "to": each, "relation_type": "knows"} for n, each in enumerate(names) if n]
    graph = show_view(client, "read_graph")
    graph.wait_for("ui/notifications/initialized")
    graph.give_result({"structuredContent": {"entities": entities, "relations": relations}})
    graph.view.get_by_role("button", name="500 entities").click()
    expect(graph.view.locator("main")).to_contain_text("300 of 500 entities are drawn.")
    graph.view.locator(".board[data-settled=true]").wait_for()
    graph.view.get_by_text("List of 300 entities").click()
    assert graph.view.locator(".twin .row").count() == 60
    graph.view.get_by_role("button", name="Show all 300").click()
    expect(graph.view.locator(".twin .row")).to_have_count(300)
    context = {"session_id": "s", "project_path": "", "participants": []}
    turns = [
        {
            "id": str(n),
            "type": "code",
            "content": f"turn {n}",
            "context": {**context, "timestamp": f"2026-01-{1 + n % 28:02}T10:00:00Z"},
        }
        for n in range(500)
    ]
    past = show_view(client, "recall_previous_discussions")
    past.wait_for("ui/notifications/initialized")
    past.give_result({"structuredContent": {"results": turns}})
    past.view.get_by_role("button", name="500 turns in 1 past conversation").click()
    assert past.view.locator(".turn").count() == 40
    past.view.get_by_role("button", name="Show all 500").click()
    expect(past.view.locator(".turn")).to_have_count(500)
    assert past.view.locator(".timeline > li").count() == 28
    [memory] = client.call("recall_memories", query="orders database", limit=1)["structuredContent"]["memories"]
    cards = show_view(client, "recall_memories")
    cards.wait_for("ui/notifications/initialized")
    cards.give_result({"structuredContent": {"memories": [{**memory, "id": str(n)} for n in range(500)]}})
    cards.view.get_by_role("button", name="500 memories").click()
    assert cards.view.locator(".card").count() == 20


def test_a_conversation_opens_in_place_at_the_found_turn(shared_clients: "Serve", show_view: "ShowView") -> None:
    from playwright.sync_api import expect

    host = show_view(shared_clients("shop"), "recall_previous_discussions")
    host.run("recall_previous_discussions", query="breadth-first search of enemies")
    host.view.locator(".chat-line").click()
    hit = host.view.locator(".timeline .turn", has_text="breadth-first").first
    hit.get_by_role("button", name="Open the conversation").click()
    expect(hit.locator(".found")).to_contain_text("breadth-first search")
    expect(hit.locator(".conversation")).to_contain_text("How should enemies find their way")
    assert host.calls[0][0] == "read_conversation"
    hit.get_by_role("button", name="Close the conversation").click()
    hit.locator(".conversation").wait_for(state="hidden")


def test_a_memory_is_explained_pinned_and_forgotten(serve: "Serve", show_view: "ShowView") -> None:
    from playwright.sync_api import expect

    client = serve("shop")
    query = "How are webhooks retried?"
    host = show_view(client, "recall_memories")
    host.run("recall_memories", query=query)
    host.view.locator(".chat-line").click()
    card = host.view.locator(".card", has_text="Webhooks are retried")
    card.get_by_role("button", name="Why").click()
    expect(card.get_by_label("Why")).to_contain_text("score")
    card.get_by_role("button", name="Pin").click()
    card.get_by_role("button", name="Unpin").wait_for()
    found = client.call("recall_memories", query=query)["structuredContent"]["memories"]
    assert [each["pinned"] for each in found if each["content"].startswith("Webhooks")] == [True]
    card.get_by_role("button", name="Forget").click()
    expect(host.view.locator(".card", has_text="everkept undo")).to_contain_text("Forgotten.")
    found = client.call("recall_memories", query=query)["structuredContent"]["memories"]
    assert not [each for each in found if each["content"].startswith("Webhooks")]
    assert [name for name, _ in host.calls] == ["recall_memories", "update_memory", "forget_memory"]


def test_a_refusal_of_the_server_is_shown_beside_the_button(serve: "Serve", show_view: "ShowView") -> None:
    from playwright.sync_api import expect

    host = show_view(serve("shop", "--read-only"), "recall_memories")
    host.run("recall_memories", query="How are webhooks retried?")
    host.view.locator(".chat-line").click()
    card = host.view.locator(".card").first
    card.get_by_role("button", name="Forget").click()
    expect(card.get_by_role("alert")).to_contain_text("forget_memory")
    assert card.get_by_role("button", name="Forget").is_enabled()


TOOLS: dict[str, dict[str, Any]] = {
    "read_graph": {},
    "recall_previous_discussions": {"query": "window.hit javascript"},
    "recall_memories": {"query": "window.hit script", "limit": 50},
}


@pytest.mark.parametrize("tool", TOOLS)
def test_hostile_text_stays_text(tool: str, shared_clients: "Serve", show_view: "ShowView") -> None:
    host = show_view(shared_clients("hostile"), tool)
    host.run(tool, **TOOLS[tool])
    host.view.locator(".chat-line").click()
    if tool == "read_graph":
        host.view.get_by_text("List of").click()
        host.view.locator(".twin .row button").first.click()
        host.view.get_by_label("The chosen entity").locator("h2").wait_for()
    elif tool == "recall_previous_discussions":
        host.view.get_by_role("button", name="Open the conversation").first.click()
        host.view.locator(".conversation .turn").first.wait_for()
    else:
        host.view.get_by_role("button", name="Why").first.click()
        host.view.get_by_label("Why").first.wait_for()
    found = host.frame.evaluate(
        """() => ({
          hit: window.hit ?? null,
          elements: document.querySelectorAll("body :is(img, script:not([type]), a, iframe, object, form)").length,
          isWide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
        })"""
    )
    assert found == {"hit": None, "elements": 1, "isWide": False}  # the one is our own script


SENT = {  # by a view: the definition of each message, and its parameters
    "ui/initialize": ("McpUiInitializeRequest", {"appInfo", "appCapabilities", "protocolVersion"}),
    "ui/notifications/initialized": ("McpUiInitializedNotification", set[str]()),
    "ui/notifications/size-changed": ("McpUiSizeChangedNotification", {"width", "height"}),
    "ui/request-display-mode": ("McpUiRequestDisplayModeRequest", {"mode"}),
    "tools/call": (None, {"name", "arguments"}),
}


def test_a_view_and_its_server_speak_as_the_specification_says(shared_clients: "Serve", show_view: "ShowView") -> None:
    client = shared_clients("shop")
    host = show_view(client, "search_nodes")
    host.run("search_nodes", query="Stripe")
    host.view.locator(".chat-line").click()
    host.view.get_by_text("List of").click()
    host.view.locator(".twin").get_by_role("button", name="Checkout").click()
    host.view.get_by_role("button", name="Show its neighbors").click()
    host.view.get_by_text("List of 5 entities").wait_for()
    host.view.get_by_role("button", name="Full screen").click()
    host.wait_for("ui/request-display-mode")
    host.send("ui/resource-teardown", {}, id="down")
    host.page.wait_for_function("() => log.some(({ id, result }) => id === 'down' && result)")
    checked = [("McpUiResourceTeardownResult", each["result"]) for each in host.log if "method" not in each]
    for message in host.log:
        assert message["jsonrpc"] == "2.0"
        if "method" in message:
            definition, parameters = SENT[message["method"]]
            assert set(message["params"]) == parameters
            fields = {name: message[name] for name in ("method", "params")}
            checked += [(definition, fields)] if definition else []
    [content] = client.ask("resources/read", uri="ui://everkept/graph")["contents"]
    checked += [("McpUiToolMeta", meta["ui"]) for meta in client.list_views().values()]
    checked.append(("McpUiResourceMeta", content["_meta"]["ui"]))
    assert find_schema_faults(checked) == []


def find_schema_faults(values: list[tuple[str, Any]]) -> list[str]:
    """Return what the official schema objects to, if `tools/clients` has fetched it."""
    from jsonschema import Draft202012Validator

    if (path := os.environ.get("EXT_APPS_SCHEMA")) is None:
        return []
    known = json.loads(Path(path).read_text(encoding="utf-8"))["$defs"]
    return [
        f"{name}: {fault.json_path}: {fault.message}"
        for name, value in values
        for fault in Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": known}).iter_errors(value)
    ]


@pytest.mark.parametrize(("theme", "width"), [("light", 800), ("dark", 320)])
@pytest.mark.parametrize("tool", TOOLS)
def test_a_view_is_accessible(
    theme: str, width: int, tool: str, shared_clients: "Serve", show_view: "ShowView"
) -> None:
    from browsers import find_violations

    browser = {"color_scheme": theme, "viewport": {"width": width, "height": 800}}
    host = show_view(shared_clients("shop"), tool, context={"theme": theme}, browser=browser)
    host.run(tool, **({} if tool == "read_graph" else {"query": "database of the orders"}))
    host.view.locator(".chat-line").click()
    if tool == "read_graph":
        host.view.get_by_text("List of").click()
        host.view.locator(".twin .row button").first.click()
    else:
        host.view.get_by_role("button", name=re.compile("Open the conversation|Why")).first.click()
        host.view.locator(".conversation .turn, .why .strip").first.wait_for()
    assert find_violations(host.frame) == []


def test_a_view_is_used_by_the_keyboard(shared_clients: "Serve", show_view: "ShowView") -> None:
    from playwright.sync_api import expect

    host = show_view(shared_clients("shop"), "search_nodes")
    host.run("search_nodes", query="Stripe")
    line = host.view.locator(".chat-line")
    line.focus()
    host.page.keyboard.press("Enter")
    host.view.locator(".board[data-settled=true]").wait_for()
    host.view.locator("summary").focus()
    for key in ("Enter", "Tab", "Enter"):
        host.page.keyboard.press(key)
    chosen = host.view.get_by_label("The chosen entity")
    expect(chosen.locator("h2")).to_have_text("Stripe")
    expect(host.view.locator(".twin .row.chosen button")).to_be_focused()
    chosen.get_by_role("button", name="Checkout").focus()
    host.page.keyboard.press("Enter")
    expect(chosen.locator("h2")).to_have_text("Checkout")
    expect(chosen.locator("h2")).to_be_focused()


def test_a_picture_of_a_graph_needs_no_server(open_page: Any, filled: Any, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    for name, count in (("shop", 14), ("hostile", 9)):
        file = tmp_path / "graph.html"
        written = server_processes.run(
            "graph", "--format", "html", "--output", file, "--data-dir", filled(name) / "data", "--project", "shop"
        )
        assert written.returncode == 0, written.stderr
        page, watch = open_page(f"file://{tmp_path}", policy=None)
        page.goto(file.as_uri())
        page.locator(".board[data-settled=true]").wait_for()
        expect(page.locator("h1")).to_have_text("Knowledge graph")
        page.get_by_text(f"List of {count} entities").click()
        page.locator(".twin .row button").first.click()
        expect(page.get_by_label("The chosen entity").locator("li").first).to_be_visible()
        page.get_by_label("The chosen entity").locator("li button").first.click()
        assert page.evaluate("() => window.hit ?? null") is None
        assert watch.requests == [file.as_uri()]
