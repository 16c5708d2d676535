import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from everkept.cli.render import build_console, build_table

Run = Callable[..., Any]

WORDS = "Deploys happen on Fridays after the tests of the payment service have passed"


def show(columns: int, rows: list[dict[str, Any]]) -> list[str]:
    console = Console(width=columns, force_terminal=False)
    with console.capture() as captured:
        console.print(build_table("things", rows))
    return captured.get().splitlines()


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_a_table_never_cuts_a_word(columns: int) -> None:
    rows = [{"change": "shop:12", "at": "2026-11-18 22:31", "tool": "store_memory", "summary": WORDS, "state": ""}]
    lines = show(columns, rows)
    assert max(map(len, lines)) <= columns
    shown = " ".join(lines).split()
    assert {*WORDS.split(), "shop:12", "store_memory", "2026-11-18"} <= {*shown}
    assert "state" not in shown
    assert "…" not in "".join(lines)


def test_a_row_becomes_a_list_if_columns_do_not_fit() -> None:
    rows = [{"name": f"project {at}", "status": "active", "description": WORDS, "path": "/a" * 40} for at in (1, 2)]
    lines = show(40, rows)
    assert lines[0] == "project 1"
    assert lines[1].rstrip() == "  status: active"
    assert "project 2" in lines
    assert any(line.startswith(" name") for line in show(120, rows))


def test_tables_of_commands_fit(everkept: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    everkept("create-project", "shop")
    everkept("create-entities", "name=Shop API", "entity_type=service", "observations=Deploys happen on Fridays")
    everkept("create-entities", "name=Orders DB", "entity_type=database")
    everkept("create-relations", "from=Shop API", "to=Orders DB", "relation_type=depends_on")
    for columns in (40, 60):
        monkeypatch.setenv("COLUMNS", str(columns))
        for words in (
            ("log",),
            ("read-graph",),
            ("search-knowledge-graph", "Shop API"),
            ("list-projects",),
            ("setup",),
        ):
            lines = everkept(*words).out.splitlines()
            assert max(map(len, lines)) <= columns or words == ("setup",), words
            assert "…" not in "".join(lines), words
        assert "Fridays" in everkept("open-nodes", "Shop API").out


def test_a_command_in_a_sentence_stays_on_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in range(30, 60):
        monkeypatch.setenv("COLUMNS", str(columns))
        build_console().print("It is in the trash. To remove it now, run `everkept purge project shop`.", markup=False)
        assert "`everkept purge project shop`" in capsys.readouterr().out


def test_projects_in_the_trash_have_a_title_and_times_are_short(everkept: Run) -> None:
    everkept("create-project", "shop")
    assert "trash" not in everkept("list-projects").out
    everkept("delete-project", "shop", "--yes")
    everkept("create-project", "blog")
    told = everkept("list-projects").out
    assert "In the trash" in told.splitlines()
    assert re.search(r"shop +\d{4}-\d\d-\d\d \d\d:\d\d +\d{4}-\d\d-\d\d \d\d:\d\d *\n", told)
    assert re.search(r"blog +active +\d{4}-\d\d-\d\d \d\d:\d\d *\n", told)


def test_single_facts_have_short_times_and_no_empty_lines(everkept: Run) -> None:
    everkept("create-project", "shop")
    told = everkept("get-current-project").out
    assert "description" not in told
    assert re.search(r"created at +\d{4}-\d\d-\d\d \d\d:\d\d *\n", told)
