"""Pages of several people beside a server that writes, and what each may see."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from server_processes import run

if TYPE_CHECKING:
    from browsers import OpenConsole, StartConsole

pytestmark = pytest.mark.browser


def test_changes_of_others_appear_without_moving_the_list(
    start_console: "StartConsole", open_console: "OpenConsole"
) -> None:
    process = start_console("shop")
    one, other = open_console(process, "#/memories"), open_console(process, "#/memories")
    first = one.page.locator(".rows .open").first.inner_text()
    data_dir = process.data_dir
    assert run("remember", "Written by another process.", "--project", "shop", "--data-dir", data_dir).returncode == 0
    for console in (one, other):
        console.expect(".head .chip").to_have_text("1 new change. Show")
        assert console.page.locator(".rows .open").first.inner_text() == first
    one.page.locator(".head .chip").press("Enter")
    one.expect(".rows li:first-child").to_contain_text("Written by another process.")
    # What one forgets is forgotten in the other, after it looks.
    one.page.locator(".rows .open").first.focus()
    one.press("#")
    one.expect("#toasts").to_contain_text("Forgot 1 memory.")
    other.expect(".head .chip").to_have_text("2 new changes. Show")
    other.page.locator(".head .chip").press("Enter")
    other.settle()
    other.expect(".rows").not_to_contain_text("Written by another process.")


def test_pages_beside_the_log_follow_what_others_do(
    start_console: "StartConsole", open_console: "OpenConsole", tmp_path: Path
) -> None:
    process = start_console("shop")
    console = open_console(process, "#/bank/decision-log.md")
    log = process.data_dir.parent / "memory-bank" / "decision-log.md"
    log.write_text("# Decided elsewhere\n", encoding="utf-8")
    console.expect(".prose h3").to_have_text("Decided elsewhere")
    # What is read under the pointer stays until it is asked for.
    console.page.locator(".prose h3").hover()
    log.write_text("# Decided again\n", encoding="utf-8")
    console.expect(".head .chip").to_have_text("1 new change. Show")
    console.expect(".prose h3").to_have_text("Decided elsewhere")
    console.page.locator(".head .chip").press("Enter")
    console.expect(".prose h3").to_have_text("Decided again")
    console.page.mouse.move(0, 0)

    console.go("team")
    assert run("token", "--user", "noor", "--data-dir", process.data_dir).returncode == 0
    console.expect("main .panel h2 >> nth=0").to_have_text("noor")
    console.go("care")
    backup = process.data_dir.with_name("data-backups") / "by-another.zip"
    backup.parent.mkdir()
    backup.write_bytes(b"")
    console.expect("main .panel >> nth=0").to_contain_text("by-another.zip")
    console.go("health")
    config = tmp_path / ".cursor" / "mcp.json"
    config.parent.mkdir()
    config.write_text('{"mcpServers": {"everkept": {"command": "everkept", "args": ["serve"]}}}', encoding="utf-8")
    console.expect("main .sections").to_contain_text("Cursor")
    console.go("conversations")
    excluded = run("history", "exclude", "/home/ada/blog", "--data-dir", process.data_dir)
    assert excluded.returncode == 0, excluded.stderr
    console.expect(".head .chip").to_have_text("1 new change. Show")


def test_an_account_sees_only_what_it_was_granted(start_console: "StartConsole", open_console: "OpenConsole") -> None:
    process = start_console("shop", serves=True)
    owner = open_console(process, "#/team")
    owner.page.get_by_role("button", name="Create a token").press("Enter")
    owner.page.keyboard.type("mira")
    owner.press("Tab", "Tab", "Enter")
    token = owner.page.locator("dialog .secret").inner_text()
    owner.press("Escape")
    owner.page.get_by_label("Access of mira to blog").select_option("read")
    owner.expect("#toasts").to_contain_text("mira may read blog.")
    owner.page.get_by_label("Access of mira to shop").select_option("write")
    owner.expect("#toasts").to_contain_text("mira may write shop.")
    owner.page.locator(".toast", has_text="shop").get_by_role("button", name="Undo").click()
    owner.expect("#toasts").to_contain_text("Undone.")
    owner.expect("[aria-label='Access of mira to shop']").to_have_value("")
    owner.page.get_by_label("Account of the log").select_option("mira")
    owner.expect("tbody").to_contain_text(["", "grant mira"])
    assert owner.find_violations() == []

    mira = open_console(process, "#/memories", token)
    mira.expect(".head [role=status]").to_have_text("1 memory")
    mira.expect(".rows").to_contain_text("The blog uses SQLite")
    assert mira.page.locator("select[aria-label=Project] option").all_inner_texts() == ["All projects", "blog"]
    shown = mira.page.locator(".rail a").all_inner_texts()
    assert "Team" not in shown
    assert "Conversations" not in shown
    secret = process.call("list_memories", project="shop")["memories"][0]
    mira.go(f"memories/{secret['id']}")
    mira.expect(".details .failed").to_contain_text("not found")
    assert secret["content"] not in mira.page.content()
    mira.go("log")
    mira.expect(".rows").not_to_contain_text("PostgreSQL")
    mira.go("search", {"q": "row locks"})
    mira.expect("main").not_to_contain_text("row locks of")
    mira.go("overview")
    mira.expect("main").not_to_contain_text(str(process.data_dir))
    for tool in ("list_team", "read_overview", "read_health", "list_data_backups", "list_conversations"):
        _, answer = process.post("call", {"name": tool, "arguments": {}}, {"Authorization": f"Bearer {token}"})
        assert answer["error"]["error"] == "refused", tool

    owner.page.locator(".panel", has_text="mira").get_by_role("button", name="Revoke the token").press("Enter")
    owner.page.get_by_role("button", name="Revoke", exact=True).press("Enter")
    owner.expect("#toasts").to_contain_text("Revoked.")
    mira.page.evaluate("() => { location.hash = '#/projects'; }")
    mira.expect("h1").to_have_text("The console is locked")
    mira.watch.forgive("401 (Unauthorized)")


def test_a_code_begins_one_session_which_other_tabs_join(
    start_console: "StartConsole", open_console: "OpenConsole", open_page: object
) -> None:
    from browsers import Console

    process = start_console("empty")
    page, watch = open_page(process.origin)  # type: ignore[operator]
    console = Console(page, watch)
    page.goto(process.address)
    console.settle()
    assert page.url == f"{process.origin}/console#/"
    assert page.context.cookies() == []
    tab = page.context.new_page()
    tab.goto(f"{process.origin}/console#/log")
    Console(tab, watch).expect("h1").to_have_text("Log")
    page.get_by_role("button", name="Lock").click()
    console.expect("h1").to_have_text("The console is locked")
    assert console.find_violations() == []
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    console.expect("[role=alert]").to_contain_text("token is unknown")
    # The browser itself reports each refusal.
    watch.forgive("401 (Unauthorized)")


def test_nothing_hostile_becomes_a_link_or_a_picture(
    shared_consoles: "StartConsole", open_console: "OpenConsole"
) -> None:
    process = shared_consoles("hostile")
    console = open_console(process)
    talk = process.call("list_conversations")["conversations"][0]["id"]
    places = ["memories", "log", "graph", "review", f"conversations/{talk}"]
    places += [f"memories/{each['id']}" for each in process.call("list_memories")["memories"]]
    for place in places:
        console.go(place)
        hrefs = console.page.eval_on_selector_all("main a", "(all) => all.map((each) => each.protocol)")
        assert set(hrefs) <= {"http:", "https:"}, place
        assert console.page.locator("main :is(img, svg:not(.icon), script, iframe, b)").count() == 0, place
        outside = console.page.eval_on_selector_all(
            "main a", "(all) => all.map((a) => a.href).filter((h) => !h.startsWith(location.origin))"
        )
        assert outside == [] or json.dumps(outside).count("192.0.2.1") == len(outside), place
    console.go(f"conversations/{talk}")
    assert "U+202E" in console.page.locator(".turn .mark").all_inner_texts()
    assert console.page.evaluate("() => window.hit === undefined")


def test_a_large_graph_settles_and_its_list_has_every_entity(
    shared_consoles: "StartConsole", open_console: "OpenConsole"
) -> None:
    process = shared_consoles("large")
    console = open_console(process, "#/overview")
    console.page.set_default_timeout(180_000)  # the layout computes for seconds, and longer on a busy machine
    console.watch.requests.clear()
    console.watch.received = 0
    console.go("graph", {"project": "large", "whole": "1"})
    console.expect(".head [role=status]").to_have_text("5,000 entities")
    assert console.page.evaluate("() => document.querySelector('.virtual li').getAttribute('aria-setsize')") == "5000"
    assert sum(url.endswith("/api/call") for url in console.watch.requests) == 1
    assert console.watch.received < 900_000
    box = console.page.locator("canvas.graph").bounding_box()
    assert box is not None
    console.page.mouse.move(box["x"] + 200, box["y"] + 200)
    console.page.mouse.down()
    for step in range(10):
        console.page.mouse.move(box["x"] + 200 + 10 * step, box["y"] + 200)
    console.page.mouse.up()
    console.press("j", "Enter")
    console.settle()
    console.expect(".details h2").to_contain_text("Node")
