import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plugin_databases import make_folder, read_files
from server_processes import command, environment

Run = Callable[..., Any]

SAMPLES = Path(__file__).parents[1] / "transcripts" / "samples"
UUID = "55555555-6666-4777-8888-999999999999"


def test_a_file_of_the_official_server_is_taken_in_once(everkept: Run, tmp_path: Path) -> None:
    lines = [
        {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["x"]},
        {"type": "relation", "from": "Ada", "to": "Ghost", "relationType": "sees"},
    ]
    path = tmp_path / "memory.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n{broken", encoding="utf-8")
    before = path.read_bytes()
    first = everkept("import", "server-memory", str(path), "--json").json
    assert (first["entities"], first["observations"], first["relations"]) == (2, 1, 1)
    assert [item["line"] for item in first["unreadable"]] == [3]
    again = everkept("import", "server-memory", str(path))
    assert f"Added 0 entities, 0 observations and 0 relations from {path} to default." in again.out
    assert "To import into it, run the command again with --project" in again.out
    assert "line 3" in again.err
    assert path.read_bytes() == before
    into = everkept("import", "server-memory", str(path), "--project", "shop", "--json").json
    assert into["entities"] == 2
    names = [p["name"] for p in everkept("list-projects", "--json").json["projects"]]
    assert names == ["default", "shop"]


def test_a_dry_run_counts_what_the_file_would_add_and_stores_nothing(everkept: Run, tmp_path: Path) -> None:
    people = [
        {"type": "entity", "name": name, "entityType": "person", "observations": ["x"]} for name in ("Ada", "Bob")
    ]
    relation = {"type": "relation", "from": "Ada", "to": "Bob", "relationType": "knows"}
    path = tmp_path / "memory.jsonl"
    path.write_text(json.dumps(people[0]), encoding="utf-8")
    planned = everkept("import", "server-memory", str(path), "--dry-run")
    assert "Would add 1 entity, 1 observation and 0 relations" in planned.out
    assert everkept("list-projects", "--json").json == {"projects": []}
    everkept("import", "server-memory", str(path))
    path.write_text("\n".join(map(json.dumps, [*people, relation])), encoding="utf-8")
    planned = everkept("import", "server-memory", str(path), "--dry-run", "--json").json
    assert (planned["entities"], planned["observations"], planned["relations"]) == (1, 1, 1)
    assert [(each["kind"], each["becomes"], each["count"]) for each in planned["kinds"]] == [
        ("person", "entity", 2),
        ("observation", "observation", 2),
        ("relation", "relation", 1),
    ]
    stored = everkept("read-graph", "--project", "default", "--json").json
    assert [each["name"] for each in stored["entities"]] == ["Ada"]


def test_without_a_file_the_one_of_the_server_is_imported(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MEMORY_FILE_PATH", str(tmp_path / "memory.jsonl"))
    assert "Pass its FILE" in everkept("import", "server-memory").err
    ada = {"type": "entity", "name": "Ada", "entityType": "person", "observations": []}
    (tmp_path / "memory.jsonl").write_text(json.dumps(ada), encoding="utf-8")
    assert "Added 1 entity" in everkept("import", "server-memory").out


@pytest.mark.parametrize("text", ["hello\nworld\n", '{"mcpServers": {}}', '[{"type": "entity"}]'])
def test_another_file_is_refused(everkept: Run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text, encoding="utf-8")
    refused = everkept("import", "server-memory", str(path))
    assert refused.status == 2
    assert "is not a file of the official memory server" in refused.err
    assert everkept("list-projects", "--json").json == {"projects": []}


def test_an_import_names_the_project_of_the_working_folder(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shop")
    path = tmp_path / "memory.jsonl"
    path.write_text(json.dumps({"type": "entity", "name": "Ada", "entityType": "person", "observations": []}), "utf-8")
    assert everkept("import", "server-memory", str(path), "--project", "auto").out.endswith(" to shop.\n")


ADA = json.dumps({"type": "entity", "name": "Ada", "entityType": "person", "observations": []})


def test_a_file_in_a_repository_goes_to_its_project_and_any_other_to_the_default_one(
    everkept: Run, repository: Path, tmp_path: Path
) -> None:
    (repository / "kept").mkdir()
    inside, outside = repository / "kept" / "memory.json", tmp_path / "memory.json"
    for path in (inside, outside):
        path.write_text(ADA, encoding="utf-8")
    assert everkept("import", "server-memory", str(inside), "--dry-run").out.endswith("to shop.\n")
    assert everkept("import", "server-memory", str(inside)).out.endswith("to shop.\n")
    assert " to default.\nThis folder uses project shop." in everkept("import", "server-memory", str(outside)).out
    assert everkept("import", "server-memory", str(inside), "--project", "web").out.endswith("to web.\n")


def test_a_person_may_choose_the_folders_project_for_a_file_of_no_folder(
    everkept: Run, repository: Path, tmp_path: Path
) -> None:
    path = tmp_path / "memory.json"
    path.write_text(ADA, encoding="utf-8")
    kept = everkept("import", "server-memory", str(path), stdin="\n", terminal=True)
    assert 'not in a folder of project "shop"' in kept.err
    assert " to default." in kept.out
    chosen = everkept("import", "server-memory", str(path), stdin="y\n", terminal=True)
    assert chosen.out.endswith("to shop.\n")


def test_the_setting_for_the_project_counts_for_imports(
    everkept: Run, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "memory.json"
    path.write_text(ADA, encoding="utf-8")
    monkeypatch.setenv("EVERKEPT_PROJECT", "web")
    assert " to web." in everkept("import", "server-memory", str(path)).out


def test_a_missing_file_is_the_callers_mistake(everkept: Run, tmp_path: Path) -> None:
    assert everkept("import", "server-memory", str(tmp_path / "none")).status == 2


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(place))
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    places = {
        "claude_code_session.jsonl": ".claude/projects/-home-dev-shop-api/1111.jsonl",
        "codex_rollout.jsonl": ".codex/sessions/2026/03/02/rollout-1.jsonl",
        "gemini_session.jsonl": ".gemini/tmp/abc/chats/session-1.jsonl",
        "gemini_session_legacy.json": ".gemini/tmp/abc/chats/session-0.json",
        "cursor_agent_transcript.jsonl": f".cursor/projects/s/agent-transcripts/{UUID}/a.jsonl",
    }
    for sample, name in places.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((SAMPLES / sample).read_bytes())
    return place


def test_conversations_of_every_program_are_found_and_read_once(everkept: Run, home: Path) -> None:
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    first = everkept("import", "history", "--json").json
    assert set(first["sources"]) == {"claude-code", "codex", "gemini", "cursor"}
    assert first["failures"] == []
    assert first["total"]["turns"] == 14
    again = everkept("import", "history")
    assert "Read 0 of 5 transcripts (5 unchanged)" in again.out
    only = everkept("import", "history", "--source", "codex", "--json").json
    assert set(only["sources"]) == {"codex"}
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_what_is_older_comes_in_when_it_is_asked_for(everkept: Run, home: Path) -> None:
    since = ("import", "history", "--since", "2026-03-02T10:30:00Z", "--json")
    early = everkept(*since).json["total"]["turns"]
    assert 0 < early < 14
    assert everkept("import", "history", "--json").json["total"]["turns"] == 14 - early


def test_with_its_vectors_at_once_nothing_waits(everkept: Run, home: Path) -> None:
    outcome = everkept("import", "history", "--source", "codex", "--embed")
    assert "found by meaning" not in outcome.out
    assert everkept("index").out == "All texts already have embeddings.\n"


def test_no_conversations_are_said_to_be_none(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "nobody"))
    assert "Found no conversations" in everkept("import", "history").out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--source", "aol"),
        ("--source", "jsonl"),
        ("--since", "once upon a time"),
        ("--source", "jsonl", "missing.jsonl"),
    ],
)
def test_an_import_that_makes_no_sense_is_refused(everkept: Run, home: Path, arguments: tuple[str, ...]) -> None:
    outcome = everkept("import", "history", *arguments)
    assert outcome.status == 2
    assert outcome.err.startswith("everkept: ")


def test_a_named_file_that_cannot_be_read_is_no_success(everkept: Run, tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("no JSON at all\n", encoding="utf-8")
    outcome = everkept("import", "history", "--source", "jsonl", str(path))
    assert outcome.status == 1
    assert "found no conversation" in outcome.err


def test_what_comes_while_somebody_watches_is_taken_in(home: Path, tmp_path: Path) -> None:
    kept = {k: v for k, v in environment().items() if k not in ("CODEX_HOME", "XDG_CONFIG_HOME")}
    watching = subprocess.Popen(
        command("import", "history", "--watch", "--data-dir", tmp_path / "data"),
        env=kept | {"HOME": str(home), "USERPROFILE": str(home)},
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert watching.stdout is not None
    try:
        assert "14 new turns" in watching.stdout.readline()
        watching.stdout.readline()  # about vectors
        path = next((home / ".codex").rglob("*.jsonl"))
        said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hm."}]}
        with path.open("a", encoding="utf-8") as file:
            line = {"timestamp": "2026-03-02T11:00:00Z", "type": "response_item", "payload": said}
            file.write(json.dumps(line) + "\n")
        assert "1 new turn" in watching.stdout.readline()
    finally:
        watching.kill()  # a process group in the background may ignore anything softer
        watching.wait()
        watching.stdout.close()


@pytest.fixture(scope="module")
def plugin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("plugin") / "data")


def test_the_plugins_database_is_imported_once_and_stays_as_it_is(everkept: Run, plugin_folder: Path) -> None:
    before = read_files(plugin_folder)
    dry = everkept("import", "surrealdb-memory", str(plugin_folder), "--dry-run")
    assert f"Would add 6 memories, 2 entities and 5 relations from {plugin_folder} to default" in dry.out
    assert everkept("list-projects", "--json").json["projects"] == []
    first = everkept("import", "surrealdb-memory", str(plugin_folder), "--project", "shop")
    assert "Added 6 memories, 2 entities and 5 relations" in first.out
    assert "masked: anthropic key" in first.err
    assert "skipped memory:empty: `content` is empty" in first.err
    again = everkept("import", "surrealdb-memory", str(plugin_folder), "--project", "shop", "--json").json
    assert (again["memories"], again["entities"], again["links"], again["updated"]) == (0, 0, 0, 0)
    found = everkept("recall", "green tea", "--project", "shop", "--json").json["memories"]
    assert found[0]["id"] == "memory:01JNFACT"
    assert read_files(plugin_folder) == before


def test_memories_of_a_session_go_to_the_project_of_its_folder(everkept: Run, tmp_path: Path) -> None:
    workspace = tmp_path / "bakery"
    (workspace / ".git").mkdir(parents=True)
    folder = make_folder(tmp_path / "plugin", f"UPDATE session:s1 SET project_path = '{workspace.as_posix()}'")
    dry = everkept("import", "surrealdb-memory", str(folder), "--dry-run", "--json").json
    assert (dry["projects"], dry["memories"]) == (["bakery", "default"], 6)
    assert everkept("list-projects", "--json").json["projects"] == []
    taken = everkept("import", "surrealdb-memory", str(folder), "--json").json
    assert (taken["projects"], taken["memories"]) == (["bakery", "default"], 6)
    there = everkept("list", "--project", "bakery")
    assert "01JNEVEN" in there.out
    assert "memory:01JNFACT" not in there.out
    again = everkept("import", "surrealdb-memory", str(folder), "--json").json
    assert (again["memories"], again["links"]) == (0, 0)


def test_without_a_path_the_plugins_settings_name_its_database(plugin_folder: Path) -> None:
    told = subprocess.run(
        command("import", "surrealdb-memory", "--json"),
        capture_output=True,
        check=True,
        encoding="utf-8",
        env=environment() | {"MEMORY_DB_PATH": str(plugin_folder)},
    )
    assert json.loads(told.stdout)["place"] == str(plugin_folder)
    assert json.loads(told.stdout)["memories"] == 6
    assert sorted(each.name for each in plugin_folder.iterdir()) == ["clog", "manifest"]
    assert (plugin_folder.parent / "data.everkept" / "user.db").exists()


@pytest.mark.parametrize(("make", "words"), [(False, "does not exist"), (True, "is not the folder of a SurrealDB")])
def test_a_place_without_a_database_is_refused(everkept: Run, tmp_path: Path, make: bool, words: str) -> None:
    place = tmp_path / "nothing"
    if make:
        place.mkdir()
    refused = everkept("import", "surrealdb-memory", str(place))
    assert refused.status == 2
    assert words in refused.err
    assert everkept("import", "surrealdb-memory", "postgresql://localhost/x").status == 2


def test_a_database_that_the_plugin_never_used_is_refused_and_makes_no_project(
    everkept: Run, plugin_folder: Path
) -> None:
    refused = everkept("import", "surrealdb-memory", str(plugin_folder), "--namespace", "other")
    assert refused.status == 2
    assert "(namespace other, database default)" in refused.err
    assert everkept("list-projects", "--json").json["projects"] == []


def test_files_of_a_newer_database_are_told_how_to_be_read(everkept: Run, tmp_path: Path) -> None:
    for name in ("manifest", "wal", "sstables"):
        (tmp_path / "new" / name).mkdir(parents=True)
    refused = everkept("import", "surrealdb-memory", str(tmp_path / "new"))
    assert refused.status == 1
    assert "surreal start surrealkv://" in refused.err
