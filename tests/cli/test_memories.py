import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository to work in, so that memories have a project."""
    repository = tmp_path / "shop"
    (repository / ".git").mkdir(parents=True)
    monkeypatch.chdir(repository)
    return repository


def stored(recollect: Run, *arguments: str) -> str:
    return recollect("remember", *arguments, "--json").json["memory_id"]


def contents(answer: Any) -> list[str]:
    return [memory["content"] for memory in answer.json["memories"]]


def test_what_is_remembered_is_recalled_in_other_words(recollect: Run) -> None:
    stored(recollect, "We chose PostgreSQL for the order data", "--tag", "decision")
    stored(recollect, "Tea is in the upper drawer")
    found = recollect("recall", "which database keeps the purchases?", "--json")
    assert contents(found)[0] == "We chose PostgreSQL for the order data"
    assert found.json["memories"][0]["why"]["meaning"] > 0
    shown = recollect("recall", "database")
    assert "why: " in shown.out
    assert "#decision" in shown.out


def test_text_comes_from_standard_input_too(recollect: Run) -> None:
    assert recollect("remember", "-", stdin="From a pipe").status == 0
    assert contents(recollect("list", "--json")) == ["From a pipe"]


def test_the_same_text_is_known_already(recollect: Run) -> None:
    first = recollect("remember", "Only once")
    again = recollect("remember", "Only once")
    assert first.out.startswith("Remembered: ")
    assert again.out.startswith("Known already: ")
    assert len(contents(recollect("list", "--json"))) == 1


def test_the_list_is_filtered_by_scope_tag_type_and_time(recollect: Run) -> None:
    stored(recollect, "a", "--tag", "x")
    stored(recollect, "b", "--scope", "user", "--type", "procedural")
    stored(recollect, "c", "--when", "2020-05-01", "--pin")
    assert contents(recollect("list", "--json")) == ["c", "b", "a"]
    assert contents(recollect("list", "--scope", "user", "--json")) == ["b"]
    assert contents(recollect("list", "--tag", "x", "--json")) == ["a"]
    assert contents(recollect("list", "--type", "procedural", "--json")) == ["b"]
    assert contents(recollect("list", "--since", "yesterday", "--json")) == ["b", "a"]
    assert contents(recollect("list", "--until", "2020-12-31", "--json")) == ["c"]
    assert contents(recollect("list", "--pinned", "--json")) == ["c"]
    assert contents(recollect("list", "--limit", "1", "--json")) == ["c"]


def test_a_time_that_is_none_is_refused(recollect: Run) -> None:
    refused = recollect("list", "--since", "whenever")
    assert refused.status == 2
    assert "whenever" in refused.err
    assert "2026-03-01" in refused.err


def test_an_edit_can_be_taken_back(recollect: Run) -> None:
    memory = stored(recollect, "Port 8080")
    changed = recollect("edit", memory, "--content", "Port 8443", "--tag", "net")
    assert changed.out == "Changed content, tags.\n"
    assert contents(recollect("list", "--json")) == ["Port 8443"]
    assert recollect("undo").status == 0
    assert contents(recollect("list", "--json")) == ["Port 8080"]


def test_without_options_the_editor_opens_with_the_text(
    recollect: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = stored(recollect, "old words")
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import pathlib, sys\n"
        "file = pathlib.Path(sys.argv[1])\n"
        "file.write_text(file.read_text(encoding='utf-8').replace('old', 'new'), encoding='utf-8')",
        encoding="utf-8",
    )
    monkeypatch.setenv("VISUAL", f"{sys.executable} {editor}")
    assert recollect("edit", memory).status == 2  # nobody could type there
    assert recollect("edit", memory, terminal=True).status == 0
    assert contents(recollect("list", "--json")) == ["new words"]


def test_a_forgotten_memory_is_listed_apart_and_comes_back_by_undo(recollect: Run) -> None:
    memory = stored(recollect, "Gone tomorrow")
    assert recollect("forget", memory, "--reason", "wrong").status == 0
    assert contents(recollect("list", "--json")) == []
    assert contents(recollect("list", "--forgotten", "--json")) == ["Gone tomorrow"]
    assert contents(recollect("recall", "tomorrow", "--forgotten", "--json")) == ["Gone tomorrow"]
    recollect("undo")
    assert contents(recollect("list", "--json")) == ["Gone tomorrow"]


def test_what_the_user_keeps_is_undone_too(recollect: Run) -> None:
    stored(recollect, "in the project")
    stored(recollect, "of the user", "--scope", "user")
    assert "@user" in recollect("log").out
    recollect("undo")
    assert contents(recollect("list", "--json")) == ["in the project"]


def test_a_pinned_memory_says_so(recollect: Run) -> None:
    memory = stored(recollect, "Never forget")
    recollect("pin", memory)
    assert "pinned" in recollect("list").out
    recollect("pin", memory, "--off")
    assert "pinned" not in recollect("list").out


def test_the_status_names_memories_that_say_the_same(recollect: Run, monkeypatch: Any) -> None:
    monkeypatch.setenv("RECOLLECT_EMBEDDING_MODEL", "none")  # so that they are sure to wait
    stored(recollect, "The server listens on port 8443 for HTTPS")
    stored(recollect, "The server is listening on port 8443 for HTTPS")
    monkeypatch.delenv("RECOLLECT_EMBEDDING_MODEL")
    assert recollect("index", "--json").json == {"embedded": 2}
    assert recollect("index").out == "Nothing was waiting.\n"
    told = recollect("status", "--json").json
    assert told["counts"]["total"] == 2
    assert told["storage"]["embeddings"] == {"stored": 2, "pending": 0}
    assert len(told["similar"]) == 1
    assert "Say nearly the same" in recollect("status").out


def test_sections_of_the_memory_bank_count_among_the_texts(
    recollect: Run, monkeypatch: Any
) -> None:
    monkeypatch.setenv("RECOLLECT_EMBEDDING_MODEL", "none")  # so that it is sure to wait
    stored(recollect, "Tea is in the upper drawer")
    monkeypatch.delenv("RECOLLECT_EMBEDDING_MODEL")
    assert recollect("index").out == "Embedded 1 text.\n"
    recollect("initialize-memory-bank", ".")
    recollect("track-progress", "Fixed login", "The token was compared too early")
    recollect("search-memory-bank", "sign-in problem")
    told = recollect("status", "--json").json
    assert told["counts"]["total"] == 1
    assert told["storage"]["embeddings"] == {"stored": 3, "pending": 0}


def test_the_context_is_printed_as_an_assistant_gets_it(recollect: Run) -> None:
    assert recollect("context").out == "Nothing is remembered for this yet.\n"
    stored(recollect, "Prefers short answers", "--scope", "user")
    assert "### User Preferences" in recollect("context", "write", "docs").out


def test_a_command_has_no_session_of_its_own(
    recollect: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = recollect("remember", "x", "--scope", "session")
    assert refused.status == 2
    assert "RECOLLECT_SESSION_ID" in refused.err
    monkeypatch.setenv("RECOLLECT_SESSION_ID", "s1")
    assert recollect("remember", "x", "--scope", "session").status == 0
    assert contents(recollect("recall", "x", "--json")) == ["x"]
    assert "current_session" in recollect("status", "--json").json
    monkeypatch.delenv("RECOLLECT_SESSION_ID")
    assert contents(recollect("recall", "x", "--json")) == []
    assert "current_session" not in recollect("status", "--json").json


@pytest.mark.parametrize("command", ["edit", "pin", "forget"])
def test_an_unknown_memory_is_named(recollect: Run, command: str) -> None:
    refused = recollect(command, "memory:none")
    assert refused.status == 2
    assert "memory:none" in refused.err


def test_two_repositories_never_share_memories(
    recollect: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(recollect, "of the shop")
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    (other / "deep" / "inside").mkdir(parents=True)
    monkeypatch.chdir(other / "deep" / "inside")
    stored(recollect, "of the other")
    monkeypatch.chdir(other)
    assert contents(recollect("list", "--json")) == ["of the other"]


def test_a_memory_is_removed_for_good_from_where_it_lives(recollect: Run) -> None:
    of_project = stored(recollect, "the project's")
    of_user = stored(recollect, "the user's", "--scope", "user")
    for memory, place in ((of_project, "shop"), (of_user, "@user")):
        removed = recollect("purge", memory, "--yes", "--json").json
        assert removed["project"] == place
        assert removed["purged"]["records"] == 1
    assert contents(recollect("list", "--json")) == []
    assert recollect("purge", of_user, "--yes").status == 2


def test_a_promotion_is_undone_in_both_places(recollect: Run) -> None:
    memory = stored(recollect, "from here to everywhere")
    assert recollect("promote-memory", memory, "user").status == 0
    assert contents(recollect("list", "--scope", "user", "--json")) == ["from here to everywhere"]
    assert recollect("undo").status == 0
    assert contents(recollect("list", "--scope", "user", "--json")) == []
    assert contents(recollect("list", "--scope", "project", "--json")) == [
        "from here to everywhere"
    ]


def test_undo_leaves_the_end_of_a_session_alone(
    recollect: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "s")
    stored(recollect, "in a session")
    assert "store_memory" in recollect("undo").out
    assert contents(recollect("list", "--json")) == []


def test_a_purge_looks_in_the_project_and_among_the_users_memories(recollect: Run) -> None:
    stored(recollect, "numbat here")
    stored(recollect, "numbat everywhere", "--scope", "user")
    removed = recollect("purge", "--containing", "numbat", "--yes", "--json").json
    assert removed == {
        "project": "shop and @user",
        "purged": {"records": 2, "links": 0, "complete": True},
    }
    assert "shop and @user" in recollect("purge", "--containing", "numbat", "--yes").out


def test_where_a_memory_went_is_said(recollect: Run) -> None:
    assert "(semantic, project shop)" in recollect("remember", "x y z").out
    assert recollect("status", "--json").json["project"] == "shop"


def test_a_long_memory_is_shown_in_part(recollect: Run) -> None:
    stored(recollect, "word " * 2_000)
    shown = recollect("list").out
    assert len(shown) < 2_000
    assert "10,000 characters" in shown or "9,999 characters" in shown


def test_a_blank_question_is_refused(recollect: Run) -> None:
    assert recollect("recall", " ").status == 2


@pytest.mark.parametrize("given", ["abc", "0", "10001", "1.5"])
def test_a_limit_that_is_none_is_told_what_would_do(recollect: Run, given: str) -> None:
    refused = recollect("list", "--limit", given)
    assert refused.status == 2
    assert f"'{given}' is not a whole number from 1 to 10,000." in refused.err


def test_texts_of_all_projects_are_embedded(recollect: Run, monkeypatch: Any) -> None:
    monkeypatch.setenv("RECOLLECT_EMBEDDING_MODEL", "none")
    for name in ("shop", "blog", "private"):
        recollect("remember", f"About {name}", "--project", name)
    recollect("off", "--project", "private")
    monkeypatch.delenv("RECOLLECT_EMBEDDING_MODEL")
    assert "3 texts to be embedded" in recollect("status").out
    assert recollect("index").out == "Embedded 3 texts.\n"
    assert "to be embedded" not in recollect("status").out
    assert recollect("index", "--project", "nope").status == 2


def test_what_could_not_be_embedded_is_told_beside_the_rest(
    recollect: Run, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("RECOLLECT_EMBEDDING_MODEL", "none")
    recollect("remember", "About the shop")
    recollect("create-project", "broken")
    monkeypatch.delenv("RECOLLECT_EMBEDDING_MODEL")
    listed = recollect("list-projects", "--json").json["projects"]
    [broken] = [each["id"] for each in listed if each["name"] == "broken"]
    (tmp_path / "data" / "projects" / f"{broken}.db").write_bytes(b"no database" * 999)
    told = recollect("index")
    assert (told.status, told.out) == (1, "Embedded 1 text.\n")
    assert "broken" in told.err
    [problem] = recollect("index", "--json").json["problems"]
    assert problem["error"] == "store_damaged"


def test_what_is_kept_in_memory_alone_is_said_not_to_stay(
    recollect: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert recollect("remember", "Prefers tea", "--scope", "user").err == ""
    monkeypatch.setenv("RECOLLECT_DEPLOYMENT_MODE", "embedded-memory")
    for command in (("remember", "Prefers tea"), ("create-project", "shop")):
        told = recollect(*command)
        assert told.status == 0
        assert "nothing of it is left once the command ends" in told.err
    assert recollect("recall", "tea").err == ""


@pytest.mark.parametrize("command", [("list",), ("recall", "tea"), ("context", "tea")])
def test_a_mistyped_project_is_not_read_as_an_empty_one(
    recollect: Run, command: tuple[str, ...]
) -> None:
    stored(recollect, "Prefers tea", "--scope", "user")
    refused = recollect(*command, "--project", "nosuch", "--json")
    assert (refused.status, refused.json["error"]) == (2, "not_found")
    recollect("create-project", "shop")
    assert recollect(*command, "--project", "shop").status == 0
