from console_calls import ConsoleClient


async def test_a_token_is_shown_once_and_works_until_it_is_revoked(client: ConsoleClient) -> None:
    made = await client.call("create_account_token", account="mira", label="laptop")
    state = await client.call("read_console_state", token=made["secret"])
    assert (state["account"], state["data_dir"]) == ("mira", None)
    team = await client.call("list_team")
    assert [(each["account"], each["label"]) for each in team["tokens"]] == [("mira", "laptop")]
    assert made["secret"] not in str(team)
    await client.call("revoke_account_token", token_id=made["id"])
    answer = await client.post("call", {"name": "read_console_state", "arguments": {}}, token=made["secret"])
    assert answer.status == 401


async def test_access_is_given_changed_and_taken_away(client: ConsoleClient) -> None:
    token = await client.create_account("mira", shop="read")

    async def grants() -> list[tuple[str, str, str]]:
        return [
            (each["account"], each["project"], each["access"]) for each in (await client.call("list_team"))["grants"]
        ]

    assert await grants() == [("mira", "shop", "read")]
    await client.call("set_access", account="mira", project="shop", access="write")
    assert await grants() == [("mira", "shop", "write")]
    await client.remember("by mira", token=token)
    await client.call("set_access", account="mira", project="shop")
    assert await grants() == []
    assert await client.refused("list_memories", token=token, project="shop") == "not_found"
    assert await client.refused("set_access", account="mira", project="shop", access="rule") == "invalid_input"
    assert await client.refused("set_access", account="nemo", project="shop", access="read") == "not_found"


async def test_a_removed_account_is_gone_with_its_tokens(client: ConsoleClient) -> None:
    token = await client.create_account("mira", shop="read")
    await client.call("remove_account", account="mira")
    assert await client.call("list_team") == {"accounts": [], "tokens": [], "grants": []}
    assert (await client.post("call", {"name": "list_memories", "arguments": {}}, token=token)).status == 401


async def test_the_owners_own_acts_are_in_the_access_log(client: ConsoleClient) -> None:
    await client.create_account("mira", shop="read")
    calls = (await client.call("read_access_log"))["calls"]
    assert [each["what"] for each in calls] == ["grant", "token"]  # newest first


async def test_the_team_is_only_the_owners(client: ConsoleClient) -> None:
    token = await client.create_account("mira", shop="write")
    for tool, arguments in (
        ("list_team", {}),
        ("create_account_token", {"account": "jon"}),
        ("revoke_account_token", {"token_id": "x"}),
        ("set_access", {"account": "mira", "project": "shop", "access": "write"}),
        ("remove_account", {"account": "mira"}),
        ("read_access_log", {}),
    ):
        assert await client.refused(tool, token=token, **arguments) == "refused", tool
    assert [each["name"] for each in (await client.call("list_team"))["accounts"]] == ["mira"]
