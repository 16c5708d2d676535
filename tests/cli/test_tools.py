import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands are called in."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_every_tool_is_a_command_with_the_common_options(everkept: Run) -> None:
    overview = everkept("tools").out
    assert "search-nodes" in everkept("tools", "--json").json["tools"]
    for name in ("search-nodes", "create-entities", "delete-project", "read-graph"):
        assert name in overview
        page = everkept(name, "--help").out
        for option in ("--data-dir", "--project", "--json", "--log-level"):
            assert option in page


@pytest.mark.parametrize("alias", ["search-memory", "find-past-conversations"])
def test_other_names_of_a_tool_are_commands_too(everkept: Run, alias: str) -> None:
    answer = everkept(alias, "how", "did", "we", "limit", "logins", "--json").json
    assert answer["warnings"][0]["code"] == "no_history"
    assert f" {alias} " not in everkept("tools").out
    chunk = everkept("retrieve-memory-chunk", "s1-chunk-7")
    assert (chunk.status, "Conversation" in chunk.err or "conversation" in chunk.err) == (2, True)


def test_a_selected_project_is_kept_between_commands(everkept: Run) -> None:
    everkept("create-project", "shop")
    everkept("create-project", "other")
    everkept("switch-project", "shop")
    assert everkept("get-current-project", "--json").json["name"] == "shop"
    everkept("archive-project", "shop")
    assert "No project is currently active" in everkept("get-current-project").out


def test_a_person_types_key_and_value_and_reads_a_table(everkept: Run) -> None:
    everkept("create-project", "shop")
    made = everkept(
        "create-entities",
        *("name=Ada", "entity_type=person", "observations=likes [red]maths[/red]"),
        *("observations=tea", "name=Bob", "entity_type=person"),
    )
    assert made.status == 0
    everkept("create-relations", "from=Ada", "to=Bob", "relation_type=knows")
    table = everkept("open-nodes", "Ada").out
    assert "likes [red]maths[/red]" in table
    assert "knows → Bob" in table


def test_a_program_sends_and_gets_json(everkept: Run) -> None:
    everkept("create-project", "shop")
    entity = json.dumps([{"name": "Ada", "entityType": "person", "observations": ["x"]}])
    assert everkept("create-entities", "-", "--json", stdin=entity).status == 0
    everkept("create-entities", '{"name": "Bob", "entity_type": "person"}')
    found = everkept("read-graph", "--limit", "1", "--json").json
    assert [e["name"] for e in found["entities"]] == ["Ada"]
    more = everkept("read-graph", "--limit", "1", "--cursor", found["next_cursor"]).out
    assert "Bob" in more


def test_project_makes_what_is_missing_for_writing_only(everkept: Run) -> None:
    assert everkept("read-graph", "--project", "typo").status == 2
    assert everkept("delete-entities", "x", "--project", "typo").status == 2
    assert everkept("list-projects", "--json").json == {"projects": []}
    made = everkept("create-entities", "name=a", "entity_type=b", "--project", "new")
    assert made.status == 0
    assert everkept("search-nodes", "a", "--project", "new", "--json").json["entities"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("search-nodes",),
        ("search-nodes", "x", "--limit", "0"),
        ("search-nodes", "x", "--limit", "many"),
        ("search-nodes", "x"),
        ("serch-nodes", "x"),
        ("create-project", "../x"),
        ("switch-project", "nowhere"),
        ("list-projects", "--status", "lost"),
        ("create-entities", "{broken", "--project", "p"),
        ("add-observations", "entity_name=Nobody", "contents=x", "--project", "p"),
    ],
)
def test_a_callers_mistake_ends_with_status_two_and_a_sentence(everkept: Run, arguments: tuple[str, ...]) -> None:
    outcome = everkept(*arguments)
    assert outcome.status == 2
    assert outcome.out == ""
    assert outcome.err.strip()
    assert "Traceback" not in outcome.err


def test_an_error_is_json_where_json_was_asked_for(everkept: Run) -> None:
    outcome = everkept("switch-project", "nowhere", "--json")
    assert outcome.status == 2
    assert outcome.json["error"] == "not_found"


def test_a_mistyped_command_is_answered_with_the_nearest(everkept: Run) -> None:
    assert "search-nodes" in everkept("search-node", "x").err


def test_candidates_of_an_ambiguous_name_are_listed(everkept: Run) -> None:
    for kind in ("planet", "metal"):
        everkept("create-entities", "name=Mercury", f"entity_type={kind}", "--project", "p")
    outcome = everkept("delete-entities", "Mercury", "--project", "p")
    assert outcome.status == 2
    assert "Mercury (planet)" in outcome.err
    assert "Mercury (metal)" in outcome.err


def test_deleting_a_project_for_good_wants_a_yes(everkept: Run) -> None:
    everkept("create-project", "shop")
    refused = everkept("delete-project", "shop")
    assert refused.status == 2
    assert "--yes" in refused.err
    assert [p["name"] for p in everkept("list-projects", "--json").json["projects"]] == ["shop"]
    assert everkept("delete-project", "shop", "--yes").status == 0
    assert everkept("list-projects", "--json").json["projects"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("create-entities", "name=a", "entity_type=b"),
        ("create-project", "other"),
        ("undo",),
        ("purge", "--deleted", "--yes"),
        ("import", "server-memory", "nowhere.jsonl"),
        ("token",),
    ],
)
def test_nothing_is_written_where_only_reading_is_allowed(
    everkept: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    everkept("create-project", "shop")
    everkept("create-entities", "name=Ada", "entity_type=person")
    monkeypatch.setenv("EVERKEPT_READ_ONLY", "1")
    outcome = everkept(*arguments, "--json")
    assert outcome.status == 2
    assert outcome.json["error"] == "read_only"
    assert [e["name"] for e in everkept("read-graph", "--json").json["entities"]] == ["Ada"]


def test_lists_are_repeated_options_and_objects_are_json(everkept: Run) -> None:
    stored = everkept(
        "store-memory",
        "Alice wrote the parser",
        *("--memory-type", "episodic", "--scope", "user"),
        *("--tags", "a", "--tags", "b", "--occurred-at", "2026-01-02"),
        *("--source", '{"file": "src/parser.py"}', "--json"),
    )
    assert stored.status == 0
    found = everkept("recall-memories", "parser", "--scope", "user", "--tags", "b", "--json")
    [memory] = found.json["memories"]
    assert memory["tags"] == ["a", "b"]
    assert memory["source"] == {"file": "src/parser.py"}
    assert memory["occurred_at"] == "2026-01-02T00:00:00.000Z"
    refused = everkept("store-memory", "x", "--source", "{")
    assert refused.status == 2
    assert "not JSON" in refused.err


def test_the_config_that_is_named_counts_for_a_tool_too(everkept: Run, home: Path) -> None:
    config = home / "own.md"
    config.write_text("---\nusername: Grace\n---\n", encoding="utf-8")
    everkept("initialize-memory-bank", ".")
    said = everkept("track-progress", "a", "b", "--config", str(config)).out
    assert "[Grace] - a: b" in said


@pytest.mark.parametrize(
    ("command", "obvious", "shown"),
    [
        (("switch-mode", "debug"), ("switch-mode", "--mode", "debug"), "mode debug"),
        (("select-store", "s1"), ("select-store", "--store-id", "s1"), "s1"),
        (("set-memory-bank-path", "../shop"), ("set-memory-bank-path", "--path", "."), "path set"),
    ],
)
def test_the_obvious_argument_is_a_word_or_an_option(
    everkept: Run, command: tuple[str, ...], obvious: tuple[str, ...], shown: str
) -> None:
    everkept("initialize-memory-bank", ".")
    everkept("register-store", "s1", ".")
    for arguments in (command, obvious):
        outcome = everkept(*arguments)
        assert (outcome.status, outcome.err) == (0, "")
        assert shown in outcome.out
    both = everkept(*command, *obvious[1:])
    assert both.status == 2
    assert "cannot be combined" in both.err


def test_an_entity_of_the_bank_is_deleted_by_a_word(everkept: Run) -> None:
    everkept("initialize-memory-bank", ".")
    everkept("graph-upsert-entity", "Shop API", "service")
    assert 'Entity "Shop API" deleted.' in everkept("graph-delete-entity", "Shop API").out


def test_the_options_of_a_bank_choose_it_for_one_command(everkept: Run, home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    everkept("initialize-memory-bank", ".")
    everkept("initialize-memory-bank", "../other", "--folder", "notes")
    everkept("set-memory-bank-path", ".")
    arguments = ("--path", "../other", "--folder", "notes", "--username", "Bob")
    assert everkept("track-progress", "a", "b", *arguments).status == 0
    assert "[Bob] - a: b" in (other / "notes" / "progress.md").read_text(encoding="utf-8")
    assert "a: b" not in (home / "memory-bank" / "progress.md").read_text(encoding="utf-8")
    status = everkept("get-memory-bank-status", "--json").json
    assert status["path"] == str(home / "memory-bank")


def test_a_bank_that_is_named_goes_before_one_that_was_chosen(everkept: Run, home: Path) -> None:
    everkept("initialize-memory-bank", ".")
    everkept("initialize-memory-bank", ".", "--folder", "notes")
    everkept("set-memory-bank-path", "notes")
    named = everkept("get-memory-bank-status", "--path", ".", "--json").json
    assert named["path"] == str(home / "memory-bank")
    kept = everkept("get-memory-bank-status", "--json").json
    assert kept["path"] == str(home / "notes")


def test_the_options_of_a_bank_stand_only_where_the_tool_has_no_such_argument(everkept: Run) -> None:
    assert "--path" not in everkept("search-nodes", "--help").out
    assert everkept("select-store", "--help").out.count("--path") == 1
    assert "--folder" in everkept("select-store", "--help").out


def test_a_project_is_chosen_for_the_folder_it_was_chosen_in(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("blog", "infra"):
        (tmp_path / name / "src").mkdir(parents=True)
        (tmp_path / name / ".git").mkdir()
    monkeypatch.chdir(tmp_path / "infra")
    everkept("remember", "Infra has two regions")
    monkeypatch.chdir(tmp_path / "blog")
    everkept("create-project", "ideas")
    monkeypatch.chdir(tmp_path / "blog" / "src")
    assert everkept("get-current-project", "--json").json["name"] == "ideas"
    monkeypatch.chdir(tmp_path / "infra")
    assert everkept("get-current-project", "--json").json["name"] == "infra"
    assert everkept("search-nodes", "anything").status == 0
    everkept("switch-project", "ideas")
    assert everkept("get-current-project", "--json").json["name"] == "ideas"
    told = everkept("switch-project", "auto")
    assert "this folder's project" in told.out
    assert everkept("get-current-project", "--json").json["name"] == "infra"


def test_without_a_project_the_command_line_says_how_to_name_one(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = everkept("search-nodes", "anything")
    assert told.status == 2
    assert "everkept switch-project NAME" in told.err
