from pathlib import Path

import pytest

from console_calls import ConsoleClient


async def test_the_owner_is_told_where_and_what_this_server_is(client: ConsoleClient) -> None:
    state = await client.call("read_console_state")
    assert state["account"] is None
    assert state["data_dir"] == str(client.app.settings.data_dir)
    assert {"graph", "memories"} <= set(state["families"])
    assert (state["engine"], state["reachable"], state["read_only"]) == ("sqlite", True, False)


async def test_the_overview_counts_what_the_list_counts(client: ConsoleClient) -> None:
    await client.remember("one")
    await client.remember("two", scope="user")
    overview = await client.call("read_overview")
    assert overview["totals"]["memories"] == (await client.call("list_memories"))["total"] == 2
    assert sum(week["memories"] for week in overview["weeks"]) == 2


async def test_findings_come_with_the_command_that_fixes_them(client: ConsoleClient) -> None:
    health = await client.call("read_health")
    commands = {each["what"]: each["command"] for each in health["findings"] if each["severity"] != "ok"}
    assert any(command and command.startswith("everkept ") for command in commands.values())


async def test_assistants_of_this_machine_say_what_they_use(
    client: ConsoleClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text(
        '{"mcpServers": {"everkept": {"command": "everkept", "args": ["serve"]}}}', encoding="utf-8"
    )
    clients = {each["name"]: each for each in (await client.call("list_clients"))["clients"]}
    cursor, codex = clients["cursor"], clients["codex"]
    assert (cursor["installed"], cursor["uses"], cursor["problem"]) == (True, ["server"], None)
    assert cursor["files"] == [str(tmp_path / ".cursor" / "mcp.json")]
    assert (codex["uses"], codex["has_hooks"], codex["can_hook"]) == ([], False, True)


async def test_a_project_is_turned_off_and_on(client: ConsoleClient) -> None:
    await client.remember("one")
    await client.call("turn_project_off", project="shop")
    assert await client.refused("list_memories", project="shop") == "project_off"
    assert (await client.call("list_memories"))["total"] == 0
    [project] = (await client.call("list_projects_to_show"))["projects"]
    assert project["off"] is True
    await client.call("turn_project_off", project="shop", off=False)
    assert (await client.call("list_memories", project="shop"))["total"] == 1


async def test_an_account_is_told_nothing_of_the_machine(client: ConsoleClient) -> None:
    token = await client.create_account("mira", shop="read")
    assert await client.refused("read_overview", token=token) == "refused"
    assert await client.refused("read_health", token=token) == "refused"
    assert await client.refused("list_clients", token=token) == "refused"
    assert await client.refused("turn_project_off", token=token, project="shop") == "refused"
    state = await client.call("read_console_state", token=token)
    assert (state["account"], state["data_dir"], state["folder_project"]) == ("mira", None, None)
