import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server_processes import HANG

Run = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("repository")


def stored(everkept: Run, *arguments: str) -> str:
    return everkept("remember", *arguments, "--json").json["memory_id"]


def contents(answer: Any) -> list[str]:
    return [memory["content"] for memory in answer.json["memories"]]


def test_what_is_remembered_is_recalled_in_other_words(everkept: Run) -> None:
    stored(everkept, "We chose PostgreSQL for the order data", "--tag", "decision")
    stored(everkept, "Tea is in the upper drawer")
    found = everkept("recall", "which database keeps the purchases?", "--json")
    assert contents(found)[0] == "We chose PostgreSQL for the order data"
    assert found.json["memories"][0]["why"]["meaning"] > 0
    shown = everkept("recall", "database")
    assert "why: " in shown.out
    assert "#decision" in shown.out


def test_text_comes_from_standard_input_too(everkept: Run) -> None:
    assert everkept("remember", "-", stdin="From a pipe").status == 0
    assert contents(everkept("list", "--json")) == ["From a pipe"]


def test_the_same_text_is_known_already(everkept: Run) -> None:
    first = everkept("remember", "Only once")
    again = everkept("remember", "Only once")
    assert first.out.startswith("Remembered: ")
    assert again.out.startswith("Already stored: ")
    assert len(contents(everkept("list", "--json"))) == 1


def test_the_list_is_filtered_by_scope_tag_type_and_time(everkept: Run) -> None:
    stored(everkept, "a", "--tag", "x")
    stored(everkept, "b", "--scope", "user", "--type", "procedural")
    stored(everkept, "c", "--when", "2020-05-01", "--pin")
    assert contents(everkept("list", "--json")) == ["c", "b", "a"]
    assert contents(everkept("list", "--scope", "user", "--json")) == ["b"]
    assert contents(everkept("list", "--tag", "x", "--json")) == ["a"]
    assert contents(everkept("list", "--type", "procedural", "--json")) == ["b"]
    assert contents(everkept("list", "--since", "yesterday", "--json")) == ["b", "a"]
    assert contents(everkept("list", "--until", "2020-12-31", "--json")) == ["c"]
    assert contents(everkept("list", "--pinned", "--json")) == ["c"]
    assert contents(everkept("list", "--limit", "1", "--json")) == ["c"]


def test_a_time_that_is_none_is_refused(everkept: Run) -> None:
    refused = everkept("list", "--since", "whenever")
    assert refused.status == 2
    assert "whenever" in refused.err
    assert "2026-03-01" in refused.err


def test_an_edit_can_be_taken_back(everkept: Run) -> None:
    memory = stored(everkept, "Port 8080")
    changed = everkept("edit", memory, "--content", "Port 8443", "--tag", "net")
    assert changed.out == "Changed content, tags.\n"
    assert contents(everkept("list", "--json")) == ["Port 8443"]
    assert everkept("undo").status == 0
    assert contents(everkept("list", "--json")) == ["Port 8080"]


def test_an_edit_takes_its_new_text_as_words_or_from_standard_input(everkept: Run) -> None:
    memory = stored(everkept, "Port 8080")
    assert everkept("edit", memory, "Port", "8443").out == "Changed content.\n"
    assert contents(everkept("list", "--json")) == ["Port 8443"]
    everkept("edit", memory, "-", stdin="Port 9000")
    assert contents(everkept("list", "--json")) == ["Port 9000"]
    assert everkept("edit", memory, "one", "--content", "other").status == 2
    assert contents(everkept("list", "--json")) == ["Port 9000"]


def test_the_beginning_of_an_id_is_enough_everywhere(everkept: Run) -> None:
    memory = stored(everkept, "Port 8080")
    short = memory.removeprefix("memory:")[:8]
    assert everkept("list").out.endswith(f" · {short}\n")
    everkept("forget", stored(everkept, "An older port"))  # stored at the same time, and forgotten since
    assert everkept("edit", short, "Port 8443").status == 0
    assert everkept("pin", f"memory:{short.lower()}").status == 0
    assert everkept("tag-memory", short, "--add", "net").status == 0
    assert everkept("remember", "Port 9000", "--supersedes", short).status == 0
    assert everkept("forget", memory[:-1], "--json").json["memory_id"] == memory
    assert everkept("purge", memory[:-2], "--yes", "--json").json["purged"]["records"] == 1
    assert everkept("pin", "01M").status == 2


def test_an_ambiguous_beginning_of_an_id_lists_the_matches(everkept: Run) -> None:
    first, second = stored(everkept, "Port 8080"), stored(everkept, "Port 8443")
    shared = first.removeprefix("memory:")[:5]
    refused = everkept("forget", shared)
    assert refused.status == 2
    assert f"Port 8080  {first}" in refused.err
    assert f"Port 8443  {second}" in refused.err
    listed = everkept("purge", shared, "--yes", "--json").json["candidates"]
    assert [each["id"] for each in listed] == [first, second]
    assert len(contents(everkept("list", "--json"))) == 2


def test_the_author_is_the_user_of_git(everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text("[user]\n\tname = Ada Lovelace\n", encoding="utf-8")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "git"))
    stored(everkept, "by nobody named")
    stored(everkept, "by another", "--author", "Bob")
    authors = [memory["author"] for memory in everkept("list", "--json").json["memories"]]
    assert authors == ["Bob", "Ada Lovelace"]


def test_without_options_the_editor_opens_with_the_text(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = stored(everkept, "old words")
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import pathlib, sys\n"
        "file = pathlib.Path(sys.argv[1])\n"
        "file.write_text(file.read_text(encoding='utf-8').replace('old', 'new'), encoding='utf-8')",
        encoding="utf-8",
    )
    monkeypatch.setenv("VISUAL", f"{sys.executable} {editor}")
    assert everkept("edit", memory).status == 2  # nobody could type there
    assert everkept("edit", memory, terminal=True).status == 0
    assert contents(everkept("list", "--json")) == ["new words"]


def test_a_forgotten_memory_is_listed_apart_and_comes_back_by_undo(everkept: Run) -> None:
    memory = stored(everkept, "Gone tomorrow")
    assert everkept("forget", memory, "--reason", "wrong").status == 0
    assert contents(everkept("list", "--json")) == []
    assert contents(everkept("list", "--forgotten", "--json")) == ["Gone tomorrow"]
    assert contents(everkept("recall", "gone", "--forgotten", "--json")) == ["Gone tomorrow"]
    everkept("undo")
    assert contents(everkept("list", "--json")) == ["Gone tomorrow"]


def test_what_the_user_keeps_is_undone_too(everkept: Run) -> None:
    stored(everkept, "in the project")
    stored(everkept, "of the user", "--scope", "user")
    assert "@user" in everkept("log").out
    everkept("undo")
    assert contents(everkept("list", "--json")) == ["in the project"]


def test_a_pinned_memory_says_so(everkept: Run) -> None:
    memory = stored(everkept, "Never forget")
    everkept("pin", memory)
    assert "pinned" in everkept("list").out
    everkept("pin", memory, "--off")
    assert "pinned" not in everkept("list").out


def test_the_status_names_memories_that_say_the_same(everkept: Run, monkeypatch: Any) -> None:
    monkeypatch.setenv("EVERKEPT_EMBEDDING_MODEL", "none")  # so that they are sure to wait
    stored(everkept, "The server listens on port 8443 for HTTPS")
    stored(everkept, "The server is listening on port 8443 for HTTPS")
    monkeypatch.delenv("EVERKEPT_EMBEDDING_MODEL")
    assert everkept("index", "--json").json == {"embedded": 2}
    assert everkept("index").out == "All texts already have embeddings.\n"
    told = everkept("status", "--json").json
    assert told["counts"]["total"] == 2
    assert told["storage"]["embeddings"] == {"stored": 2, "pending": 0}
    assert len(told["similar"]) == 1
    assert "Similar memories" in everkept("status").out


def test_sections_of_the_memory_bank_count_among_the_texts(everkept: Run, monkeypatch: Any) -> None:
    monkeypatch.setenv("EVERKEPT_EMBEDDING_MODEL", "none")  # so that it is sure to wait
    stored(everkept, "Tea is in the upper drawer")
    monkeypatch.delenv("EVERKEPT_EMBEDDING_MODEL")
    assert everkept("index").out == "Embedded 1 text.\n"
    everkept("initialize-memory-bank", ".")
    everkept("track-progress", "Fixed login", "The token was compared too early")
    everkept("search-memory-bank", "sign-in problem")
    told = everkept("status", "--json").json
    assert told["counts"]["total"] == 1
    assert told["storage"]["embeddings"] == {"stored": 3, "pending": 0}


def test_the_context_is_printed_as_an_assistant_gets_it(everkept: Run) -> None:
    assert everkept("context").out == "No memories match this task yet.\n"
    stored(everkept, "Prefers short answers", "--scope", "user")
    assert "### User Preferences" in everkept("context", "write", "docs").out


def test_a_command_has_no_session_of_its_own(everkept: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = everkept("remember", "x", "--scope", "session")
    assert refused.status == 2
    assert "EVERKEPT_SESSION_ID" in refused.err
    monkeypatch.setenv("EVERKEPT_SESSION_ID", "s1")
    assert everkept("remember", "x", "--scope", "session").status == 0
    assert contents(everkept("recall", "x", "--json")) == ["x"]
    assert "current_session" in everkept("status", "--json").json
    monkeypatch.delenv("EVERKEPT_SESSION_ID")
    assert contents(everkept("recall", "x", "--json")) == []
    assert "current_session" not in everkept("status", "--json").json


@pytest.mark.parametrize("command", ["edit", "pin", "forget"])
def test_an_unknown_memory_is_named(everkept: Run, command: str) -> None:
    refused = everkept(command, "memory:none")
    assert refused.status == 2
    assert "memory:none" in refused.err


def test_two_repositories_never_share_memories(everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(everkept, "of the shop")
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    (other / "deep" / "inside").mkdir(parents=True)
    monkeypatch.chdir(other / "deep" / "inside")
    stored(everkept, "of the other")
    monkeypatch.chdir(other)
    assert contents(everkept("list", "--json")) == ["of the other"]


def test_a_memory_is_removed_for_good_from_where_it_lives(everkept: Run) -> None:
    of_project = stored(everkept, "the project's")
    of_user = stored(everkept, "the user's", "--scope", "user")
    for memory, place in ((of_project, "shop"), (of_user, "@user")):
        removed = everkept("purge", memory, "--yes", "--json").json
        assert removed["project"] == place
        assert removed["purged"]["records"] == 1
    assert contents(everkept("list", "--json")) == []
    assert everkept("purge", of_user, "--yes").status == 2


def test_a_promotion_is_undone_in_both_places(everkept: Run) -> None:
    memory = stored(everkept, "from here to everywhere")
    assert everkept("promote-memory", memory, "user").status == 0
    assert contents(everkept("list", "--scope", "user", "--json")) == ["from here to everywhere"]
    assert everkept("undo").status == 0
    assert contents(everkept("list", "--scope", "user", "--json")) == []
    assert contents(everkept("list", "--scope", "project", "--json")) == ["from here to everywhere"]


def test_undo_leaves_the_end_of_a_session_alone(everkept: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "s")
    stored(everkept, "in a session")
    assert 'Deleted memory "in a session"' in everkept("undo").out
    assert contents(everkept("list", "--json")) == []


def test_a_purge_looks_in_the_project_and_among_the_users_memories(everkept: Run) -> None:
    stored(everkept, "numbat here")
    stored(everkept, "numbat everywhere", "--scope", "user")
    removed = everkept("purge", "--containing", "numbat", "--yes", "--json").json
    assert removed == {"project": "shop and @user", "purged": {"records": 2, "links": 0, "complete": True}}
    assert "shop and @user" in everkept("purge", "--containing", "numbat", "--yes").out


def test_where_a_memory_went_is_said(everkept: Run) -> None:
    assert "(semantic, project shop)" in everkept("remember", "x y z").out
    assert everkept("status", "--json").json["project"] == "shop"


def test_a_long_memory_is_shown_in_part(everkept: Run) -> None:
    stored(everkept, "word " * 2_000)
    shown = everkept("list").out
    assert len(shown) < 2_000
    assert "(cut;" in shown or "9,999 characters" in shown


def test_a_blank_question_is_refused(everkept: Run) -> None:
    assert everkept("recall", " ").status == 2


@pytest.mark.parametrize("given", ["abc", "0", "10001", "1.5"])
def test_a_limit_that_is_none_is_told_what_would_do(everkept: Run, given: str) -> None:
    refused = everkept("list", "--limit", given)
    assert refused.status == 2
    assert f"'{given}' is not a whole number from 1 to 10,000." in refused.err


def test_texts_of_all_projects_are_embedded(everkept: Run, monkeypatch: Any) -> None:
    monkeypatch.setenv("EVERKEPT_EMBEDDING_MODEL", "none")
    for name in ("shop", "blog", "private"):
        everkept("remember", f"About {name}", "--project", name)
    everkept("off", "--project", "private")
    monkeypatch.delenv("EVERKEPT_EMBEDDING_MODEL")
    assert "3 texts pending" in everkept("status").out
    assert everkept("index").out == "Embedded 3 texts.\n"
    assert "to be embedded" not in everkept("status").out
    assert everkept("index", "--project", "nope").status == 2


def test_what_could_not_be_embedded_is_told_beside_the_rest(everkept: Run, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("EVERKEPT_EMBEDDING_MODEL", "none")
    everkept("remember", "About the shop")
    everkept("create-project", "broken")
    monkeypatch.delenv("EVERKEPT_EMBEDDING_MODEL")
    listed = everkept("list-projects", "--json").json["projects"]
    [broken] = [each["id"] for each in listed if each["name"] == "broken"]
    (tmp_path / "data" / "projects" / f"{broken}.db").write_bytes(b"no database" * 999)
    told = everkept("index")
    assert (told.status, told.out) == (1, "Embedded 1 text.\n")
    assert "broken" in told.err
    [problem] = everkept("index", "--json").json["problems"]
    assert problem["error"] == "store_damaged"


def test_what_is_kept_in_memory_alone_is_said_not_to_stay(everkept: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert everkept("remember", "Prefers tea", "--scope", "user").err == ""
    monkeypatch.setenv("EVERKEPT_DEPLOYMENT_MODE", "embedded-memory")
    for command in (("remember", "Prefers tea"), ("create-project", "shop")):
        told = everkept(*command)
        assert told.status == 0
        assert "is lost when the command ends" in told.err
    assert everkept("recall", "tea").err == ""


@pytest.mark.parametrize("command", [("list",), ("recall", "tea"), ("context", "tea")])
def test_a_mistyped_project_is_not_read_as_an_empty_one(everkept: Run, command: tuple[str, ...]) -> None:
    stored(everkept, "Prefers tea", "--scope", "user")
    refused = everkept(*command, "--project", "nosuch", "--json")
    assert (refused.status, refused.json["error"]) == (2, "not_found")
    everkept("create-project", "shop")
    assert everkept(*command, "--project", "shop").status == 0


def test_another_project_is_searched_when_asked_for_and_named_when_it_knows(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(everkept, "The orders database runs on port 5433")
    (tmp_path / "blog" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "blog")
    nothing = everkept("recall", "orders database port")
    assert nothing.out == "No memories.\n"
    assert 'project "shop" has a close one. To see it, pass --all-projects.' in nothing.err
    assert "shop" in everkept("recall", "orders database port", "--all-projects").out
    listed = everkept("list")
    assert (listed.out, "--all-projects" in listed.err) == ("No memories.\n", True)
    found = everkept("find", "orders database port", "--all-projects", "--json").json["results"]
    assert [each["context"]["project_path"] for each in found] == ["shop"]
    assert "--all-projects" in everkept("find", "orders database port").out


@pytest.mark.parametrize("command", [("search-nodes",), ("search-knowledge-graph",), ("find",), ("recall",)])
def test_an_entity_of_another_project_is_named_when_nothing_here_matches(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("EVERKEPT_RECALL_TIME_LIMIT", str(HANG))  # a busy machine must not skip the hint
    arguments = ("name=Orders DB", "entity_type=database", "observations=Runs on the shelf server")
    everkept("create-entities", *arguments, "--project", "shop")
    (tmp_path / "blog" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "blog")
    told = everkept(*command, "orders db")
    hint = 'No entity here matches, but project "shop" has the entity "Orders DB". To see it, pass --project.'
    assert (told.out + told.err).count(hint) == 1
    assert hint not in everkept(*command, "colour of the page").out
    everkept("off", "--project", "shop")
    told = everkept(*command, "orders db")
    assert "Orders DB" not in told.out + told.err


def test_an_entity_elsewhere_is_not_named_when_a_memory_here_matches(everkept: Run, repository: Path) -> None:
    everkept("create-entities", "name=Orders DB", "entity_type=database", "--project", "web")
    everkept("remember", "The orders db has a replica")
    assert '"web"' not in everkept("find", "orders db").out


def test_an_entity_elsewhere_is_not_named_for_filters_that_entities_lack(everkept: Run, repository: Path) -> None:
    everkept("create-entities", "name=Orders DB", "entity_type=database", "--project", "web")
    assert "Orders DB" in everkept("recall", "orders db").err
    assert "Orders DB" not in everkept("recall", "orders db", "--tag", "net").err


@pytest.mark.parametrize(
    "options", [("--tags", "a,b"), ("--tag", "a", "--tag", "b"), ("--tags", "a", "--tags", " b,"), ("--tag", "a, b")]
)
@pytest.mark.parametrize("command", ["remember", "store-memory"])
def test_tags_are_repeated_or_separated_with_commas(everkept: Run, command: str, options: tuple[str, ...]) -> None:
    everkept(command, "Tea is in the drawer", *options)
    [memory] = everkept("list", "--tags", "b,c", "--json").json["memories"]
    assert sorted(memory["tags"]) == ["a", "b"]
    everkept("update-memory", memory["id"], "--tags", "c,d")
    everkept("edit", memory["id"], "--untag", "a,b")
    [memory] = everkept("list", "--json").json["memories"]
    assert sorted(memory["tags"]) == ["c", "d"]


def test_a_hit_without_a_reason_worth_showing_has_no_line_for_it(everkept: Run) -> None:
    for text in ("Deploys run on Tuesday", *(f"Fact {number} about port {9000 + number}" for number in range(8))):
        everkept("remember", text)
    lines = everkept("recall", "when do we ship?").out.splitlines()
    assert any("why: meaning" in line for line in lines)
    assert "why:" not in [line.strip() for line in lines]
