import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("working_folder")


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
    assert everkept("get-current-project", "--json").json.get("name") != "shop"
    assert everkept("search-nodes", "anything").status == 0


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


def test_a_name_is_typed_without_its_option(everkept: Run) -> None:
    everkept("create-project", "shop")
    everkept("create-entities", "name=Shop API", "entity_type=service", "name=Orders DB", "entity_type=database")
    everkept("create-relations", "from=Shop API", "to=Orders DB", "relation_type=uses")
    assert "Orders DB" in everkept("search-knowledge-graph", "Shop API").out
    assert everkept("search-knowledge-graph", "Shop API", "--entity", "Shop API").status == 2
    short = everkept("open-nodes", "Orders DB", "--json").json["entities"][0]["id"][:8]
    assert everkept("open-nodes", short, "--json").json["entities"][0]["name"] == "Orders DB"
    assert everkept("delete-entities", short, "--json").json["deleted"] == 1


def test_an_option_has_the_name_of_the_argument(everkept: Run) -> None:
    stored = everkept("store-memory", "Deploy on Fridays", "--type", "procedural", "--json").json
    assert stored["type"] == "procedural"
    assert "--memory-type" not in everkept("store-memory", "--help").out


def test_deleting_a_project_asks_with_what_it_holds(everkept: Run) -> None:
    everkept("remember", "Port 8080", "--project", "port")
    everkept("create-entities", "name=Ada", "entity_type=person", "name=Bob", "entity_type=person", "--project", "port")
    said = everkept("delete-project", "port", stdin="n\n", terminal=True)
    assert 'Move project "port" with 1 memory, 2 entities to the trash? [y/N]' in said.err
    assert "port" in everkept("list-projects").out
    assert everkept("delete-project", "port", "--yes").status == 0
    assert everkept("list-projects", "--json").json["projects"] == []
    assert everkept("delete-project", "port", terminal=True).status == 2


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
        *("--type", "episodic", "--scope", "user"),
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


def test_the_config_that_is_named_counts_for_a_tool_too(everkept: Run, working_folder: Path) -> None:
    config = working_folder / "own.md"
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


def test_the_options_of_a_bank_choose_it_for_one_command(everkept: Run, working_folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    everkept("initialize-memory-bank", ".")
    everkept("initialize-memory-bank", "../other", "--folder", "notes")
    everkept("set-memory-bank-path", ".")
    arguments = ("--path", "../other", "--folder", "notes", "--username", "Bob")
    assert everkept("track-progress", "a", "b", *arguments).status == 0
    assert "[Bob] - a: b" in (other / "notes" / "progress.md").read_text(encoding="utf-8")
    assert "a: b" not in (working_folder / "memory-bank" / "progress.md").read_text(encoding="utf-8")
    status = everkept("get-memory-bank-status", "--json").json
    assert status["path"] == str(working_folder / "memory-bank")


def test_a_bank_that_is_named_goes_before_one_that_was_chosen(everkept: Run, working_folder: Path) -> None:
    everkept("initialize-memory-bank", ".")
    everkept("initialize-memory-bank", ".", "--folder", "notes")
    everkept("set-memory-bank-path", "notes")
    named = everkept("get-memory-bank-status", "--path", ".", "--json").json
    assert named["path"] == str(working_folder / "memory-bank")
    kept = everkept("get-memory-bank-status", "--json").json
    assert kept["path"] == str(working_folder / "notes")


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
    assert "its own project again" in told.out
    assert everkept("get-current-project", "--json").json["name"] == "infra"


def test_a_choice_says_that_a_setting_overrides_it(everkept: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "overrides" not in everkept("create-project", "ideas").out
    monkeypatch.setenv("EVERKEPT_PROJECT", "shop")
    assert 'the setting `project` is "shop" and overrides it' in everkept("switch-project", "ideas").out
    assert everkept("search-nodes", "anything").err == "Project: shop, from the setting `project`.\n"
    assert everkept("where", "--json").json["reason"] == "The setting `project` names it."
    assert everkept("where", "--json", "--project", "ideas").json["reason"] == "--project names it."


def test_a_command_in_any_folder_uses_the_default_project_and_says_so(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = everkept("search-nodes", "anything")
    assert told.status == 0
    assert told.err == "Project: default, because this folder is not a project.\n"
    assert everkept("search-nodes", "anything", "--json").json["project"] == "default"
    assert everkept("list", "--json", "--project", "default").status == 2  # it does not exist yet


def test_counts_of_nothing_are_not_shown_above_rows(everkept: Run) -> None:
    entity = '[{"name": "Ada", "entity_type": "person", "observations": []}]'
    everkept("create-entities", entity, "--project", "shop")
    relation = '[{"from": "Ada", "to": "Ada", "relation_type": "knows"}]'
    assert "existed" not in everkept("create-relations", relation, "--project", "shop").out
    assert "existed" in everkept("create-relations", relation, "--project", "shop").out
    assert "stats" not in everkept("search-knowledge-graph", "Nothing", "--project", "shop").out.lower()


def test_a_change_of_a_project_is_told_in_a_sentence(everkept: Run) -> None:
    assert everkept("create-project", "my shop").out.startswith('Created project "my shop".\n')
    assert "run `everkept restore-project 'my shop'`.\n" in everkept("archive-project", "my shop").out
    assert everkept("restore-project", "my shop").out.startswith('Restored project "my shop".\n')
    assert everkept("switch-project", "my shop").out.startswith('Selected project "my shop".\n')
