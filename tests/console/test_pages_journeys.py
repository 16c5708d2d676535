"""What people do in the console, with the keyboard alone."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from browsers import Console, OpenConsole, StartConsole

pytestmark = pytest.mark.browser

POSTGRES = "We chose PostgreSQL 17 for the order data because of its row locks."


@pytest.fixture
def console(start_console: "StartConsole", open_console: "OpenConsole") -> "Console":
    """The shop's console, which the test may change."""
    return open_console(start_console("shop"))


def test_a_search_leads_to_the_memory_and_says_why(console: "Console") -> None:
    console.press("/")
    console.page.keyboard.type("row locks PostgreSQL")
    console.press("Enter")
    console.settle()
    assert console.focused == "Search"
    hit = console.page.locator(".hit", has_text=POSTGRES).first
    shares = [float(each.split()[-1].replace("−", "-")) for each in hit.locator(".why li").all_inner_texts()]
    score, *parts = shares
    assert parts
    scores = [float(each.split()[-1]) for each in console.page.locator(".why li:first-child").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    assert sum(parts) == pytest.approx(score, abs=0.02)
    for _ in range(20):
        console.press("j")
        if POSTGRES in console.focused:
            break
    console.press("Enter")
    console.settle()
    console.expect("aside.details").to_contain_text(POSTGRES)
    console.expect("aside.details").to_contain_text("Orders DB")


def test_a_memory_is_edited_and_the_edit_undone(console: "Console") -> None:
    console.press("g", "m")
    console.settle()
    assert console.focused == "Memories"
    console.press("j", "j", "Enter")
    console.settle()
    before = console.page.locator(".details .reading").inner_text()
    console.press("e")
    assert console.find_violations() == []
    console.press("Control+End")
    console.page.keyboard.type(" And so it stays.")
    console.press("Tab", "Tab", "Enter")
    console.expect("#toasts").to_contain_text("Saved.")
    console.expect(".details .reading").to_have_text(f"{before} And so it stays.")
    console.expect(".details ins >> nth=0").to_have_text("And so it stays.")
    console.press("u")
    console.expect("#toasts").to_contain_text("Undone.")
    console.expect(".details .reading").to_have_text(before)


def test_automatic_memories_are_reviewed(console: "Console") -> None:
    console.press("g", "r")
    console.settle()
    console.expect(".head [role=status]").to_have_text("3 memories to review")
    console.press("j")
    console.press("y")
    console.expect(".head [role=status]").to_have_text("2 memories to review")
    console.expect("#toasts").to_contain_text("Kept 1 memory.")
    console.press("n")
    console.expect(".head [role=status]").to_have_text("1 memory to review")
    console.press("u")
    console.expect(".head [role=status]").to_have_text("2 memories to review")


def test_a_selection_is_one_change_with_one_undo(console: "Console") -> None:
    console.go("memories", {"tag": "billing"})
    console.expect(".head [role=status]").to_have_text("4 memories")
    console.press("j", "x", "j", "x")
    console.expect(".bulk [role=status]").to_have_text("2 selected")
    assert console.find_violations() == []
    console.page.get_by_role("button", name="Forget", exact=True).press("Enter")
    console.expect("#toasts").to_contain_text("Forgot 2 memories.")
    console.expect(".head [role=status]").to_have_text("2 memories")
    console.press("g", "l")
    console.settle()
    console.expect(".rows li:first-child").to_contain_text("change_memories")
    console.press("j", "Enter")
    console.settle()
    console.expect(".details h3:has-text('Removed: memory')").to_have_count(2)
    console.page.get_by_role("button", name="Undo this change").press("Enter")
    console.expect(".rows li:nth-child(2) .badge.warn").to_have_text("undone")
    console.go("memories", {"tag": "billing"})
    console.expect(".head [role=status]").to_have_text("4 memories")


def test_facets_restrict_each_other(console: "Console") -> None:
    console.go("memories")
    facet = console.page.get_by_role("button", name="procedural 4")
    facet.press("Enter")
    console.settle()
    console.expect(".head [role=status]").to_have_text("4 memories")
    assert console.page.get_by_role("button", name="rule 3").is_visible()
    console.page.get_by_role("button", name="rule 3").press("Enter")
    console.settle()
    console.expect(".head [role=status]").to_have_text("3 memories")
    assert "type=procedural&tag=rule" in console.page.url


def test_the_log_shows_the_words_that_changed(console: "Console") -> None:
    console.go("log", {"tool": "update_memory"})
    console.press("j", "Enter")
    console.settle()
    console.expect(".details del").to_have_text(["answers", "8080."])
    console.expect(".details ins").to_have_text(["answered", "8080 until May."])


def test_the_path_between_two_entities_is_told(console: "Console") -> None:
    console.go("graph", {"project": "shop"})
    console.expect(".head [role=status]").to_have_text("14 entities")
    console.page.locator(".twin .open", has_text="Mira").press("Enter")
    console.settle()
    console.expect(".details").to_contain_text("speaks for the customers")
    console.page.get_by_role("button", name="Path to…").press("Enter")
    console.page.keyboard.type("orders db")
    console.press("Enter")
    console.expect("#toasts").to_contain_text("Mira → ")
    console.expect("#toasts").to_contain_text(" → Orders DB")


def test_an_observation_is_edited_added_and_deleted(console: "Console") -> None:
    console.go("graph", {"project": "shop", "find": "Queue"})
    console.expect(".details").to_contain_text("a table of the Orders DB")
    console.page.get_by_role("button", name="Edit the observation").press("Enter")
    console.press("Control+A")
    console.page.keyboard.type("two tables of the Orders DB")
    console.press("Tab", "Tab", "Enter")
    console.expect(".details").to_contain_text("two tables of the Orders DB")
    console.page.get_by_role("button", name="Add an observation").press("Enter")
    console.page.keyboard.type("keeps a day")
    console.press("Tab", "Tab", "Enter")
    console.expect(".details section:first-of-type h3").to_have_text("2 observations")
    console.page.get_by_role("button", name="Delete the observation").nth(1).press("Enter")
    console.expect(".details section:first-of-type h3").to_have_text("1 observation")
    console.press("u")
    console.expect(".details section:first-of-type h3").to_have_text("2 observations")


def test_a_hit_opens_its_conversation_at_the_turn(console: "Console") -> None:
    console.go("search", {"q": "canvas shrink pictures in the browser"})
    console.page.locator(".hit", has_text="canvas").locator(".open").first.press("Enter")
    console.settle()
    found = console.page.locator(".turn.found")
    console.expect(".turn.found").to_be_in_viewport()
    assert "shrink" in found.inner_text()
    found.get_by_role("button", name="Remember this").press("Enter")
    console.press("Control+A")
    console.page.keyboard.type("Pictures are shrunk with a canvas.")
    console.press("Tab", "Tab", "Enter")
    console.expect("#toasts").to_contain_text("Remembered.")
    console.go("memories")
    console.expect(".rows").to_contain_text("Pictures are shrunk with a canvas.")


def test_a_file_of_the_bank_is_edited_unless_it_changed_since(
    start_console: "StartConsole", open_console: "OpenConsole"
) -> None:
    process = start_console("shop")
    console = open_console(process, "#/bank/decision-log.md")
    console.page.get_by_role("button", name="Edit").press("Enter")
    console.press("Control+End")
    console.page.keyboard.type("\nAnd SQLite for the blog.")
    console.page.get_by_role("button", name="Save").press("Enter")
    console.expect(".prose").to_contain_text("And SQLite for the blog.")
    console.page.get_by_role("button", name="Undo").press("Enter")
    console.expect(".prose").not_to_contain_text("And SQLite for the blog.")
    console.page.get_by_role("button", name="Edit").press("Enter")
    console.press("Control+A")
    console.page.keyboard.type("Mine")
    file = process.data_dir.parent / "memory-bank" / "decision-log.md"
    file.write_text("Theirs", encoding="utf-8")
    console.page.get_by_role("button", name="Save").press("Enter")
    console.expect("[role=alert]").to_contain_text("Another program changed decision-log.md")
    console.expect("[role=alert] del").to_have_text("Theirs")
    assert file.read_text(encoding="utf-8") == "Theirs"
    console.page.get_by_role("button", name="Save mine anyway").press("Enter")
    console.expect(".prose").to_have_text("Mine")
    assert file.read_text(encoding="utf-8") == "Mine"


def test_the_outline_of_a_file_leads_to_its_headings(console: "Console") -> None:
    console.go("bank/decision-log.md")
    console.page.get_by_role("button", name="Edit").press("Enter")
    console.press("Control+End")
    console.page.keyboard.type("\n## SQLite for the blog\n\n- [ ] move it\n\n" + "A line.\n\n" * 40 + "## Last\n")
    console.page.get_by_role("button", name="Save").press("Enter")
    console.expect(".prose .task").to_have_text("☐move it")
    console.page.locator(".outline").get_by_role("button", name="Last").press("Enter")
    assert console.focused == "Last"
    console.expect(".prose h4:last-of-type").to_be_in_viewport()
    assert console.find_violations() == []


def test_every_command_is_found_by_its_words(console: "Console") -> None:
    console.press("Control+k")
    console.expect("dialog.palette").to_be_visible()
    assert console.find_violations() == []
    console.page.keyboard.type("go proj")
    console.press("Enter")
    console.settle()
    assert console.focused == "Projects"
    console.press("?")
    console.expect("dialog").to_contain_text("Go to Memories")
    assert console.find_violations() == []
    console.press("Escape")
    assert console.focused == "Projects"


def test_single_keys_can_be_switched_off(console: "Console") -> None:
    console.press("?")
    console.page.get_by_label("Use single keys").press("Space")
    console.press("Escape")
    console.press("g", "m")
    assert console.page.locator("h1").inner_text() == "Overview"


def test_a_project_is_created_switched_off_and_deleted(console: "Console") -> None:
    console.go("projects")
    console.page.get_by_role("button", name="Create a project").press("Enter")
    console.page.keyboard.type("lab")
    console.press("Tab", "Tab", "Tab", "Enter")
    console.expect("#toasts").to_contain_text("Created lab.")
    console.expect("dialog").to_have_count(0)  # it takes the keys until the list is read
    console.page.get_by_role("button", name="Switch off lab").press("Enter")
    console.expect("tr:has-text('lab') .badge").to_have_text("off")
    console.page.get_by_role("button", name="Switch on lab").press("Enter")
    console.expect("tr:has-text('lab') .badge").to_have_text("active")
    console.page.get_by_role("button", name="Delete lab").press("Enter")
    assert console.find_violations() == []
    danger = console.page.get_by_role("button", name="Delete the project")
    assert danger.is_disabled()
    console.page.keyboard.type("lab")
    danger.press("Enter")
    console.expect("tbody").not_to_contain_text("lab")
    console.press("u")
    console.expect("tr:has-text('lab') .badge").to_have_text("active")
    console.page.get_by_role("button", name="Archive lab").press("Enter")
    console.expect("tr:has-text('lab') .badge").to_have_text("archived")
    console.press("u")
    console.expect("tr:has-text('lab') .badge").to_have_text("active")


def test_a_backup_and_an_export_are_made(console: "Console") -> None:
    console.go("care")
    console.page.get_by_role("button", name="Export everything").press("Enter")
    console.expect("#toasts").to_contain_text("data-export.")
    console.page.get_by_role("button", name="Back up now").press("Enter")
    console.expect(".panel:first-child li").to_contain_text(".zip")


def test_a_hit_is_forgotten_where_it_was_found(console: "Console") -> None:
    console.go("search", {"q": "row locks PostgreSQL"})
    hit = console.page.locator(".hit", has_text=POSTGRES).filter(has_text="memories")
    hit.get_by_role("button", name="Forget").press("Enter")
    console.expect("#toasts").to_contain_text("Forgot 1 memory.")
    console.expect(".hits").not_to_contain_text(POSTGRES)
    console.press("u")
    console.expect(".hits").to_contain_text(POSTGRES)
