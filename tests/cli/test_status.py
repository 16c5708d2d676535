import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from account_homes import kept_at_home
from database_places import variables
from everkept.core.mcp import ToolUsage
from everkept.core.times import format_iso, read_clock
from everkept.engines.sqlite.library import SqliteLibrary

Run = Callable[..., Any]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a command that is called in a folder named shop."""
    home, folder = tmp_path / "home", tmp_path / "shop"
    for place in (home, folder):
        (place / ".git").mkdir(parents=True)
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(home))
    monkeypatch.chdir(folder)
    return tmp_path / "data"


def test_an_empty_memory_has_a_status(everkept: Run, data: Path) -> None:
    outcome = everkept("status")
    assert outcome.status == 0
    assert outcome.out.startswith("0 memories, 0 entities, 0 conversations in 0 projects")
    assert str(data) in "".join(outcome.out.split("\n"))
    assert everkept("status", "--json").json["totals"]["size_bytes"] == 0
    assert not data.exists()


def test_the_status_tells_how_much_is_remembered_and_where(everkept: Run, data: Path) -> None:
    everkept("remember", "Tests run with [bold]tox[/bold]")
    everkept("remember", "Prefers tea", "--scope", "user", "--type", "episodic")
    everkept("recall", "tests")
    out = everkept("status").out
    assert "2 memories" in out
    assert "semantic 1" in out
    assert "episodic 1" in out
    assert "here" in next(line for line in out.splitlines() if line.strip().startswith("shop"))
    assert "this week" in out
    assert "██" in out
    assert "Tests run with [bold]tox[/bold]" in out


def test_json_has_the_same_facts(everkept: Run, data: Path) -> None:
    everkept("remember", "Tests run with tox")
    everkept("recall", "tests")
    told = everkept("status", "--json").json
    assert told["totals"]["memories"] == told["counts"]["total"] == 1
    assert [(each["name"], each["memories"]) for each in told["projects"]] == [("shop", 1)]
    assert len(told["weeks"]) == 12
    assert told["weeks"][-1]["memories"] == 1
    assert [(each["times"], each["content"]) for each in told["recalled"]] == [(1, "Tests run with tox")]
    assert told["data_dir"] == str(data)
    assert told["hooks"] == {"enabled": True, "waiting": 0, "failed": 0}
    assert {"connection", "storage", "history", "files"} <= told.keys()


def test_a_project_that_is_off_is_said_to_be_so(everkept: Run, data: Path) -> None:
    everkept("remember", "Tests run with tox")
    everkept("recall", "tests")
    everkept("off")
    outcome = everkept("status")
    assert outcome.status == 0
    assert "everkept on" in outcome.out
    assert "here, off" in outcome.out
    assert "tox" not in outcome.out
    told = everkept("status", "--json").json
    assert told["off_since"] == everkept("off", "--json").json["since"]
    assert told["projects"][0]["off"] is True
    assert told["totals"]["memories"] == 1


def test_an_archived_project_has_a_status_too(everkept: Run, data: Path) -> None:
    everkept("remember", "Tests run with tox")
    everkept("archive-project", "shop")
    outcome = everkept("status", "--project", "shop")
    assert outcome.status == 0
    assert "is archived" in outcome.out
    told = everkept("status", "--project", "shop", "--json").json
    assert told["projects"][0]["status"] == "archived"
    assert told["projects"][0]["size_bytes"] > 0


def test_waiting_jobs_and_the_last_fault_of_hooks_are_told(everkept: Run, data: Path) -> None:
    hooks = data / "hooks"
    (hooks / "jobs").mkdir(parents=True)
    (hooks / "failed").mkdir()
    (hooks / "jobs" / "1.json").write_text("{}", "utf-8")
    (hooks / "failed" / "2.json").write_text(json.dumps({"reason": "x"}), "utf-8")
    lines = "2026-03-01T10:00:00.000Z SessionEnd old\n2026-03-02T10:00:00.000Z Stop store_busy: x\n"
    (hooks / "faults.log").write_text(lines, "utf-8")
    told = everkept("status", "--json").json["hooks"]
    assert (told["waiting"], told["failed"]) == (1, 1)
    assert told["last_fault"]["event"] == "Stop"
    out = " ".join(everkept("status").out.split())
    assert "1 session pending" in out
    assert "store_busy: x" in out


def test_many_projects_are_summed_up_and_this_one_is_among_them(everkept: Run, data: Path) -> None:
    for number in range(17):
        everkept("create-project", f"p{number:02}")
        everkept("remember", "x", "--project", f"p{number:02}")
    out = everkept("status").out
    assert "and 2 more projects" in out
    here = next(line for line in out.splitlines() if line.rstrip().endswith("here"))
    assert here.strip().startswith("p16")  # the last that was chosen
    assert len(everkept("status", "--json").json["projects"]) == 17


def test_a_project_that_is_not_there_is_refused(everkept: Run, data: Path) -> None:
    assert everkept("status", "--project", "nope").status == 2
    assert not data.exists()
    everkept("remember", "x")
    refused = everkept("status", "--project", "nope", "--json")
    assert (refused.status, refused.json["error"]) == (2, "not_found")
    assert everkept("status", "--project", "shop").status == 0


def test_conversations_in_folders_without_a_project_have_a_row(everkept: Run, data: Path) -> None:
    folder = data.parent / "shop"
    path = folder.parent / "home" / "talks.jsonl"
    line = {"author": "Ada", "timestamp": "2026-03-02T09:00:00Z", "text": "Hello there."}
    talks = [{"session": name, "project": str(folder), **line} for name in ("one", "two")]
    path.write_text("".join(json.dumps(talk) + "\n" for talk in talks), "utf-8")
    everkept("import", "history", "--source", "jsonl", str(path))
    out = everkept("status").out
    assert "2 conversations in 0 projects and elsewhere" in out
    row = next(line for line in out.splitlines() if line.strip().startswith("(elsewhere)"))
    assert row.split()[1] == "2"
    everkept("remember", "Now it has a project")
    assert "elsewhere" not in everkept("status").out
    assert everkept("status", "--json").json["elsewhere"] == 0


def count(data: Path, *rows: ToolUsage) -> None:
    async def run() -> None:
        library = SqliteLibrary(data)
        await library.add_usage(rows)
        await library.close()

    asyncio.run(run())


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a gateway, whose servers nobody can start."""
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    tool = {"name": "memory__read", "description": "Reads.", "inputSchema": schema}
    content: dict[str, Any] = {
        "upstreams": {
            "notes": {"command": "no-such-[bold]server", "args": ["--password", "hunter2hunter2"]},
            "web": {"url": "https://nowhere.invalid/mcp", "passThrough": True},
        },
        "tools": [{**tool, "upstream": {"server": "notes", "tool": "read", "paramMapping": {}}}],
    }
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(content, indent=2), "utf-8")
    monkeypatch.setenv("EVERKEPT_GATEWAY_CONFIG", str(path))
    return path


def test_without_a_gateway_nothing_is_said_of_one(everkept: Run, data: Path) -> None:
    everkept("remember", "Tests run with tox")
    assert "gateway" not in everkept("status", "--json").json
    assert "Gateway" not in everkept("status").out


def test_a_gateway_is_told_with_its_servers_and_the_calls_of_its_tools(
    everkept: Run, data: Path, gateway: Path
) -> None:
    at = read_clock()
    count(data, ToolUsage("memory__search", 4, 1, 10.0, 5.25, at), ToolUsage("other", 1, 0, 1.0, 1.0, at))
    told = everkept("status", "--json").json["gateway"]
    assert told.keys() == {"config", "upstreams", "tools"}
    assert told["config"] == str(gateway)
    assert [(each["name"], each["way"]) for each in told["upstreams"]] == [("notes", "stdio"), ("web", "http")]
    assert told["upstreams"][1]["reached"] == "https://nowhere.invalid"
    assert told["tools"][0] == {
        "tool": "memory__search",
        "calls": 4,
        "errors": 1,
        "mean_ms": 2.5,
        "longest_ms": 5.2,
        "last_at": format_iso(at),
    }
    assert [each["tool"] for each in told["tools"]] == ["memory__search", "other", "memory__read"]
    assert told["tools"][2]["last_at"] is None
    out = everkept("status").out
    row = next(line for line in out.splitlines() if line.strip().startswith("memory__search"))
    assert row.split()[1:5] == ["4", "1", "2.5", "5.2"]
    assert "no-such-[bold]server" in out
    assert "hunter2" not in out


def test_tools_that_the_file_does_not_have_any_more_are_only_counted(everkept: Run, data: Path, gateway: Path) -> None:
    whole = json.loads(gateway.read_text("utf-8"))
    whole["upstreams"]["web"]["passThrough"] = {"prefix": "web_"}
    gateway.write_text(json.dumps(whole), "utf-8")
    count(data, *(ToolUsage(name, 1, 0, 1.0, 1.0, 1) for name in ("gone", "memory__read", "web_find")))
    told = everkept("status", "--json").json["gateway"]
    assert {each["tool"] for each in told["tools"]} == {"memory__read", "web_find"}
    assert [each["tool"] for each in told["earlier"]] == ["gone"]
    out = everkept("status").out
    assert "1 tool of an earlier gateway file" in out
    assert "gone" not in out


def test_a_gateway_without_any_call_makes_no_folder(everkept: Run, data: Path, gateway: Path) -> None:
    told = everkept("status", "--json").json["gateway"]
    assert [each["calls"] for each in told["tools"]] == [0]
    assert "1 tool not called yet" in everkept("status").out
    assert not data.exists()


def test_the_fault_of_a_gateway_is_told_with_file_and_line_and_stops_nothing(
    everkept: Run, data: Path, gateway: Path
) -> None:
    gateway.write_text('{\n  "upstream": {"comand": "x"}\n}', "utf-8")
    everkept("remember", "Tests run with tox")
    outcome = everkept("status", "--json")
    assert outcome.status == 0
    assert f"{gateway}, line 2" in outcome.json["gateway"]["fault"]
    assert outcome.json["gateway"]["upstreams"] == []
    assert "line 2" in " ".join(everkept("status").out.split())


def test_another_file_of_a_gateway_can_be_named(everkept: Run, data: Path, gateway: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(gateway.read_text("utf-8"), "utf-8")
    named = everkept("status", "--gateway-config", str(other), "--json").json["gateway"]
    assert named["config"] == str(other)
    assert "gateway" not in everkept("status", "--gateway-config", "none", "--json").json


def test_many_tools_of_a_gateway_are_summed_up(everkept: Run, data: Path) -> None:
    count(data, *(ToolUsage(f"tool_{number}", 1, 0, 1.0, 1.0, 1) for number in range(17)))
    assert "and 2 more tools" in everkept("status").out
    assert len(everkept("status", "--json").json["gateway"]["tools"]) == 17


def test_calls_are_no_part_of_what_is_exported(everkept: Run, data: Path, tmp_path: Path) -> None:
    everkept("remember", "Tests run with tox")
    count(data, ToolUsage("memory__search", 4, 1, 10.0, 5.25, 1))
    assert everkept("export", str(tmp_path / "export")).status == 0
    files = [path for path in (tmp_path / "export").rglob("*") if path.is_file()]
    written = "".join(path.read_text("utf-8") for path in files)
    assert "tox" in written
    assert "memory__search" not in written


def test_the_engine_is_told_where_it_is_not_the_usual_one(
    everkept: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert "SQLite" not in everkept("status").out
    assert everkept("status", "--json").json["connection"]["engine"] == "sqlite"
    shown = everkept("status", "--engine", "surreal")
    assert f"SurrealDB (embedded-file) at {data / 'surreal'}" in shown.out
    assert not data.exists()


@pytest.mark.parametrize(
    ("address", "title"), [("ws://127.0.0.1:1", "SurrealDB"), ("postgresql://127.0.0.1:1/team", "PostgreSQL")]
)
def test_a_server_that_is_away_is_told_with_what_waits_for_it(
    everkept: Run, data: Path, monkeypatch: pytest.MonkeyPatch, address: str, title: str
) -> None:
    monkeypatch.setenv("EVERKEPT_DATABASE_URL", address)
    monkeypatch.setenv("EVERKEPT_DATABASE_USER", "anna")
    monkeypatch.setenv("EVERKEPT_DATABASE_PASSWORD", "hunter2")
    monkeypatch.setenv("COLUMNS", "300")
    assert everkept("remember", "Prefers tea", "--scope", "user").status == 0
    told = everkept("status", "--json").json["connection"]
    assert told["status"] in ("reconnecting", "degraded")
    assert (told["mode"], told["path"]) == ("local-server", address)
    assert told["waiting_writes"] >= 1
    shown = everkept("status")
    assert shown.status == 0
    assert f"{title} (local-server) at {address} cannot be reached; " in shown.out
    assert f"{told['waiting_writes']} write" in shown.out
    assert "waiting here" in shown.out
    assert shown.out.startswith("1 memory")


def test_a_mistyped_project_is_a_mistake_while_the_server_is_away_too(
    everkept: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERKEPT_DATABASE_URL", "ws://127.0.0.1:1")
    outcome = everkept("status", "--project", "mistyped")
    assert outcome.status == 2
    assert "mistyped" in outcome.err


def test_what_waits_for_a_server_of_before_is_told(everkept: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    server = ("--database-url", "ws://127.0.0.1:1")
    assert everkept("remember", "Prefers tea", "--scope", "user", *server).status == 0
    shown = everkept("status")
    assert "Writes for ws://127.0.0.1:1 (memory/default) are still on this machine" in shown.out
    assert "--database-url ws://127.0.0.1:1` sends" in shown.out
    [left] = everkept("status", "--json").json["left_elsewhere"]
    assert left["address"] == "ws://127.0.0.1:1 (memory/default)"
    assert left["waiting"] >= 1
    assert "left_elsewhere" not in everkept("status", "--json", *server).json


def test_of_what_is_an_accounts_alone_the_owner_sees_how_much_there_is(everkept: Run, data: Path) -> None:
    everkept("remember", "Tests run with tox")
    kept_at_home(data)
    out = everkept("status").out
    assert "theirs alone" in next(line for line in out.splitlines() if "(1 account)" in line)
    assert "in 1 project" in out
    told = everkept("status", "--json")
    assert told.json["accounts"]["memories"] == 1
    for shown in (out, told.out):
        assert "quokka" not in shown
        assert "anna" not in shown


@pytest.fixture
def on_postgres(monkeypatch: pytest.MonkeyPatch) -> str:
    """The namespace of commands that keep everything on a server."""
    chosen = variables("postgres")
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    return chosen["EVERKEPT_NAMESPACE"]


def test_of_a_server_its_own_size_is_told_and_beside_it_what_is_here(
    everkept: Run, data: Path, on_postgres: str
) -> None:
    everkept("remember", "Tests run with tox")
    told = everkept("status", "--json").json
    [shop] = told["projects"]
    assert told["totals"]["size_bytes"] >= shop["size_bytes"] > 0
    assert told["totals"]["here_bytes"] == sum(file["size_bytes"] for file in told["files"])
    out = " ".join(everkept("status").out.split())
    assert re.search(r"[1-9][0-9.]* [KM]B in the database\.", out)  # it goes on to grow by itself
    assert "standby/ (replica and journal)" in out


def test_a_mistyped_namespace_is_told_and_made_by_nobody_who_reads(
    everkept: Run, data: Path, on_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    everkept("remember", "Tests run with tox")
    monkeypatch.setenv("EVERKEPT_NAMESPACE", "mistyped")
    for command in (("status",), ("recall", "tox"), ("list-projects",), ("token", "list")):
        refused = everkept(*command, "--json")
        assert (refused.status, refused.json["argument"]) == (2, "namespace")
        assert on_postgres in refused.json["others"]
        assert "mistyped" not in refused.json["others"]


def test_why_a_server_is_away_is_told_of_a_project_that_is_off_too(everkept: Run, data: Path) -> None:
    server = ("--database-url", "ws://127.0.0.1:1")
    everkept("remember", "x", *server)
    everkept("off", *server)
    told = everkept("status", "--json", *server).json
    assert told["off_since"]
    assert told["connection"]["since"]
    out = " ".join(everkept("status", *server).out.split())
    assert told["connection"]["reason"] in out
    assert "writes waiting here" in out


def test_what_a_server_had_that_came_back_with_less_is_named(everkept: Run, data: Path) -> None:
    server = ("--database-url", "ws://127.0.0.1:1")
    everkept("remember", "x", *server)
    [standby] = (data / "standby").iterdir()
    kept = standby / "replica.before-20260301T100000Z"
    kept.mkdir()
    assert everkept("status", "--json", *server).json["copies_kept"] == [str(kept)]
    assert f"earlierdataisin{kept}" in "".join(everkept("status", *server).out.split())


def test_accounts_peers_and_the_access_log_have_a_line_each(everkept: Run, data: Path) -> None:
    everkept("token", "--user", "anna")
    everkept("token", "--peer", "bert")
    add = ("peer", "add", "carl", "https://127.0.0.1:1", "--token-file", "-")
    everkept(*add, "--fingerprint", "ab" * 32, stdin="evkp_x")
    (data / "access").mkdir(exist_ok=True)
    (data / "access" / "access-1.jsonl").write_bytes(b"x" * 5_000)
    told = everkept("status", "--json").json["team"]
    assert (told["users"], told["servers"], told["peers"]) == (1, 1, 1)
    lines = {line.split()[0]: line for line in everkept("status").out.splitlines() if line.strip()}
    assert "1 user and 1 other server" in lines["accounts"]
    assert str(data / "access")[:40] in lines["access"]
    assert "1 server;" in lines["peers"]


def test_a_team_sees_its_limits_and_how_near_they_are(everkept: Run, data: Path) -> None:
    everkept("token", "--user", "anna")
    assert everkept("status", "--json").json["team"]["limits"]["quota_account_records"] == 200_000
    everkept("remember", "Tests run with tox")
    kept_at_home(data)
    told = everkept("status", "--json").json["team"]
    assert told["most_records"] >= 1
    out = " ".join(everkept("status").out.split())
    assert "the limit is 200,000 records and 2.1 GB" in out
    [listed] = everkept("account", "list", "--json").json["accounts"]
    assert listed["records"] == told["most_records"]
    assert "stored " in everkept("account", "list").out
