import pytest

from console_calls import ConsoleClient


async def test_the_log_is_read_in_pages_from_the_newest(client: ConsoleClient) -> None:
    for number in range(5):
        await client.remember(f"memory {number}")
    seen: list[str] = []
    cursor = None
    while True:
        page = await client.call("list_changes", project="shop", limit=2, **({"cursor": cursor} if cursor else {}))
        seen += [each["change"] for each in page["changes"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert seen == [each["change"] for each in (await client.call("list_changes", project="shop"))["changes"]]
    assert len(seen) == len(set(seen)) == 6


async def test_changes_are_found_by_tool_client_and_record(client: ConsoleClient) -> None:
    memory = await client.remember("one")
    await client.remember("two")
    await client.call("update_memory", memory_id=memory, content="one and a half", project="shop")

    async def tools(**wanted: str) -> list[str]:
        return [each["tool"] for each in (await client.call("list_changes", project="shop", **wanted))["changes"]]

    assert await tools(tool="update_memory") == ["update_memory"]
    assert await tools(record=memory) == ["update_memory", "store_memory"]
    assert await tools(client="consol") == ["update_memory", "store_memory", "store_memory"]
    assert await tools(client="another") == []


async def test_an_edit_is_told_with_its_values_before_and_after(client: ConsoleClient) -> None:
    memory = await client.remember("first", importance=0.3)
    await client.call("update_memory", memory_id=memory, content="second", project="shop")
    await client.call("update_memory", memory_id=memory, content="third", importance=0.8, project="shop")
    changes = (await client.call("list_changes", project="shop", record=memory))["changes"]
    told = []
    for each in reversed(changes):
        [edit] = (await client.call("read_change", change=each["change"]))["edits"]
        told.append((edit["operation"], edit["before"].get("text"), edit["after"].get("text")))
    # Also after later changes, each shows what was there then.
    assert told == [("insert", None, "first"), ("update", "first", "second"), ("update", "second", "third")]


async def test_a_relation_is_told_by_the_names_of_its_ends(client: ConsoleClient) -> None:
    names = ({"name": name, "entityType": "service", "observations": []} for name in ("Cart", "Ledger"))
    await client.call("create_entities", entities=list(names), project="shop")
    relation = {"from": "Cart", "relationType": "uses", "to": "Ledger"}
    await client.call("create_relations", relations=[relation], project="shop")
    newest = (await client.call("list_changes", project="shop", limit=1))["changes"][0]
    [edit] = (await client.call("read_change", change=newest["change"]))["edits"]
    assert edit["after"] == {"source": "Cart", "verb": "uses", "target": "Ledger"}


async def test_a_change_is_undone_once_and_only_if_nothing_came_after(client: ConsoleClient) -> None:
    memory = await client.remember("first")
    await client.call("update_memory", memory_id=memory, content="second", project="shop")
    edit, store = [each["change"] for each in (await client.call("list_changes", record=memory))["changes"]]
    assert await client.refused("undo_change", change=store) == "refused"
    await client.call("undo_change", change=edit)
    assert (await client.call("read_memory", memory_id=memory))["memory"]["content"] == "first"
    listed = {each["change"]: each for each in (await client.call("list_changes", project="shop"))["changes"]}
    assert listed[edit]["undone"] is True
    assert await client.refused("undo_change", change=edit) == "refused"


@pytest.mark.parametrize("change", ["", "shop", "shop:", "shop:x", "shop:-1", "shop:1" + "0" * 30])
async def test_what_names_no_change_is_refused(client: ConsoleClient, change: str) -> None:
    assert await client.refused("read_change", change=change) == "invalid_input"


async def test_a_change_that_does_not_exist_is_not_found(client: ConsoleClient) -> None:
    assert await client.refused("read_change", change="shop:999") == "not_found"
    assert await client.refused("read_change", change="nowhere:1") == "not_found"
    assert await client.refused("list_changes", cursor="soon") == "invalid_input"


async def test_an_account_reads_no_changes_of_others(client: ConsoleClient) -> None:
    await client.remember("a secret of the shop")
    await client.call("create_project", name="blog")
    token = await client.create_account("mira", blog="read")
    seen = (await client.call("list_changes", token=token))["changes"]
    assert {each["project"] for each in seen} <= {"blog", "@user"}
    assert "secret" not in str(seen)
    assert await client.refused("read_change", token=token, change="shop:2") == "not_found"
    # Nor does it learn of a project that was created, let alone undo that.
    assert await client.refused("read_change", token=token, change="shop:p1") == "not_found"
    assert await client.refused("undo_change", token=token, change="shop:p1") == "not_found"


async def test_a_change_of_a_whole_project_is_shown_and_undone(client: ConsoleClient) -> None:
    await client.call("archive_project", name="shop")
    [newest, *_] = (await client.call("list_changes"))["changes"]
    assert newest["tool"] == "archive_project"
    assert (await client.call("read_change", change=newest["change"]))["edits"] == []
    await client.call("undo_change", change=newest["change"])
    assert [each["status"] for each in (await client.call("list_projects_to_show"))["projects"]] == ["active"]
