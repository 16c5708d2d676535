"""Backups beside writers, and restores under servers that go on: nothing is lost or torn."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from care_actors import DIED
from data_folders import backed_up, everything, filled, restored, statement
from processes import Actor, acting
from server_processes import INITIALIZE, StdioServer, run, stdio_server

ROUNDS = 20  # of a writer before and after what is tested


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    filled(folder, "shop", "old", archived=("old",))
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy.zip"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def started(stack: ExitStack, name: str, *arguments: Any) -> Actor:
    actor = stack.enter_context(acting(f"care_actors:{name}", *arguments))
    assert actor.hear() == "writing"
    return actor


def counted_to(actor: Actor, least: int) -> int:
    """How far it is, once it is so far."""
    count = actor.ask(str(least))
    assert count >= least
    return count


def ended(actor: Actor) -> Any:
    actor.tell("end")
    return actor.finish()[-1]


def test_a_backup_beside_writers_has_all_that_was_acknowledged_before_it(
    data: Path, copy: Path, tmp_path: Path, stack: ExitStack
) -> None:
    names = ["ada", "bela", "cyr"]
    writers = {who: started(stack, "write_much", data, "shop", who) for who in names}
    before = {who: counted_to(writer, ROUNDS) for who, writer in writers.items()}
    made = backed_up(data, copy)
    after = {who: ended(writer) for who, writer in writers.items()}
    elsewhere = tmp_path / "elsewhere"
    restored(elsewhere, copy)
    live, copy_of_it = everything(data), everything(elsewhere)
    copied = copy_of_it["stores"]
    assert [name for name, store in copied.items() if store["faults"]] == []
    for who, rounds in before.items():
        assert after[who] > rounds  # it wrote on meanwhile
        for number in range(rounds):
            name = f"{who}-{number}"
            assert copy_of_it["notes"][name] == str(number)
            assert f"/work/{name}" in copy_of_it["workspaces"]["shop"]
            for place in ("shop", "@user"):
                for kind, key in _expected(name, number, who):
                    assert copied[place][kind][key] == live["stores"][place][kind][key], (place, kind, key)
    for place in ("shop", "@user", "@history", "old"):
        _assert_beginning(copied[place], live["stores"][place])
    assert made.manifest.damaged == []


def _expected(name: str, number: int, who: str) -> list[tuple[str, str]]:
    text = f"{name} is remembered"
    found = [("records", name), ("records", f"about {name}"), ("records", text)]
    found += [("vectors", text), ("accesses", text)]
    return found + ([("links", f"{name} follows {who}-{number - 1}")] if number else [])


def _assert_beginning(copied: dict[str, Any], live: dict[str, Any]) -> None:
    """What was copied is what the live one was at one moment: its first changes, whole."""
    newest = max(copied["changes"])
    assert copied["changes"] == {s: c for s, c in live["changes"].items() if s <= newest}
    touched = {edit.id for seq, edit in live["edits"] if seq <= newest}
    assert {*copied["records"]} == touched & {*live["records"]}
    for record_id, record in copied["records"].items():
        assert record == live["records"][record_id]


def test_what_moves_between_two_databases_is_never_in_neither_of_the_copies(
    data: Path, tmp_path: Path, stack: ExitStack, thorough: bool
) -> None:
    mover = started(stack, "move_back_and_forth", data, "shop")
    for number in range(8 if thorough else 4):
        counted_to(mover, 10 * number)
        file = tmp_path / f"{number}.zip"
        backed_up(data, file)
        restored(tmp_path / f"at {number}", file)
        found = everything(tmp_path / f"at {number}")
        there = [
            record
            for place in ("shop", "@user")
            for record in found["stores"][place]["records"].values()
            if record.id.startswith("wanderer") and record.deleted_at is None
        ]
        assert there
    assert ended(mover) > 0


def test_projects_that_come_and_go_meanwhile_are_in_it_as_its_catalogue_says(
    data: Path, tmp_path: Path, stack: ExitStack, thorough: bool
) -> None:
    maker = started(stack, "make_and_delete_projects", data, "moved")
    for number in range(5 if thorough else 3):
        counted_to(maker, 3 * number)
        file = tmp_path / f"{number}.zip"
        made = backed_up(data, file)
        restored(tmp_path / f"at {number}", file)
        found = everything(tmp_path / f"at {number}")
        assert {p[1] for p in found["projects"]} == {c.project for c in made.manifest.projects}
        assert all(not found["stores"][name]["faults"] for _, name, _, _ in found["projects"])
    assert ended(maker) > 0


def test_servers_go_on_through_a_restore_and_lose_nothing_that_they_acknowledged(
    data: Path, copy: Path, stack: ExitStack
) -> None:
    backed_up(data, copy)
    servers = [started(stack, "serve_through", data, "shop", who) for who in ("ada", "bela")]
    for server in servers:
        counted_to(server, ROUNDS)
    outcome = restored(data, copy, replace=True)
    since = [counted_to(server, 0) for server in servers]
    for server, count in zip(servers, since, strict=True):
        counted_to(server, count + ROUNDS)
    told = [ended(server) for server in servers]
    assert outcome.safety is not None
    restored(outcome.safety.with_suffix(""), outcome.safety)
    saved = everything(outcome.safety.with_suffix(""))["stores"]
    live = everything(data)["stores"]
    for answer, count in zip(told, since, strict=True):
        assert {*answer["refused"]} <= {"conflict", "store_busy", "unavailable"}
        for place, ids in answer["kept"].items():
            assert live[place]["faults"] == []
            lost = [i for i in ids if i not in {*live[place]["records"], *saved[place]["records"]}]
            assert lost == []
            after = [i for i in ids if int(i.split("-")[1]) > count]
            assert after
            assert [i for i in after if i not in live[place]["records"]] == []
    for place in ("shop", "@user", "@history"):
        kept = [i for i in live[place]["records"] if i.startswith(("ada", "bela"))]
        assert len(kept) < sum(len(answer["kept"][place]) for answer in told)


def test_a_running_server_goes_on_with_what_was_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOME", "USERPROFILE"):  # whose clients the doctor looks at
        monkeypatch.setenv(variable, str(tmp_path))
    data, file = tmp_path / "data", tmp_path / "copy.zip"
    with stdio_server(data, "--project", "shop", EVERKEPT_EMBEDDING_MODEL="none") as server:
        server.ask(0, "initialize", **INITIALIZE)
        _store(server, "Said before the backup", "project")
        _store(server, "Mine before the backup", "user")
        assert run("backup", file, "--data-dir", data).returncode == 0
        _store(server, "Said after the backup", "project")
        _store(server, "Mine after the backup", "user")
        restored = run("restore", file, "--replace", "--yes", "--data-dir", data)
        assert restored.returncode == 0, restored.stderr
        assert _recalled(server) == {"Said before the backup", "Mine before the backup"}
        _store(server, "Said after the restore", "project")
        _store(server, "Mine after the restore", "user")
        expected = _recalled(server)
        assert expected >= {"Said after the restore", "Mine after the restore"}
    with stdio_server(data, "--project", "shop", EVERKEPT_EMBEDDING_MODEL="none") as again:
        again.ask(0, "initialize", **INITIALIZE)
        assert _recalled(again) == expected
    assert run("doctor", "--full", "--data-dir", data).returncode == 0


def _store(server: StdioServer, content: str, scope: str) -> None:
    server.call("store_memory", content=content, type="semantic", scope=scope)


def _recalled(server: StdioServer) -> set[str]:
    answer = server.call("recall_memories", query="said mine before after", limit=50)
    return {memory["content"] for memory in answer["memories"]}


@pytest.mark.parametrize("after", range(5))
def test_a_restore_that_is_killed_is_finished_by_the_same_command(
    data: Path, copy: Path, tmp_path: Path, after: int
) -> None:
    backed_up(data, copy)
    wanted = everything(data)
    statement(data / "user.db", "UPDATE records SET text = 'changed since'")
    before = everything(data)
    safety = tmp_path / "safety.zip"
    actor = Actor("care_actors:restore_and_die", data, copy, safety, after)
    actor.process.communicate(timeout=60)
    assert actor.process.returncode == DIED
    assert [*data.glob("restoring-*/about.json")]
    restored(tmp_path / "saved", safety)
    assert everything(tmp_path / "saved") == before
    restored(data, copy, replace=True)
    assert everything(data) == wanted
    assert [*data.glob("restoring-*")] == []
