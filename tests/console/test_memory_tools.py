import pytest

from console_calls import ConsoleClient
from everkept.core.ports import Library

AUTOMATIC = {"tool": "hook PostToolUse"}


async def texts(client: ConsoleClient, **wanted: object) -> list[str]:
    return [each["content"] for each in (await client.call("list_memories", **wanted))["memories"]]


async def test_a_list_counts_each_trait_among_the_matches_of_the_others(client: ConsoleClient) -> None:
    await client.remember("one", tags=["db", "rule"], author="ada")
    await client.remember("two", tags=["db"], type="procedural", author="jon")
    await client.remember("mine", project="shop", scope="user")
    found = await client.call("list_memories", project="shop")
    assert found["total"] == 3
    facets = {trait: dict(counts) for trait, counts in found["facets"].items()}
    assert facets["type"] == {"semantic": 2, "procedural": 1}
    assert facets["tag"] == {"db": 2, "rule": 1}
    assert facets["project"] == {"shop": 2, "@user": 1}
    narrow = await client.call("list_memories", project="shop", type=["procedural"])
    assert narrow["total"] == 1
    facets = {trait: dict(counts) for trait, counts in narrow["facets"].items()}
    # Another value of the chosen trait can still be chosen; the other traits count what is left.
    assert facets["type"] == {"semantic": 2, "procedural": 1}
    assert facets["author"] == {"jon": 1}


async def test_forgotten_memories_are_counted_and_listed_only_on_request(client: ConsoleClient) -> None:
    await client.remember("kept", type="procedural")
    gone = await client.remember("gone")
    await client.call("change_memories", memory_ids=[gone], forgotten=True)
    found = await client.call("list_memories")
    assert [each["content"] for each in found["memories"]] == ["kept"]
    assert ["forgotten", 1] in found["facets"]["flag"]
    assert await texts(client, flag=["forgotten"]) == ["gone"]
    narrow = await client.call("list_memories", type=["procedural"])
    assert narrow["facets"]["flag"] == []


async def test_pages_of_a_list_follow_each_other(client: ConsoleClient) -> None:
    for number in range(5):
        await client.remember(f"memory {number}", importance=number / 10)
    newest = await texts(client)
    assert newest == [f"memory {number}" for number in (4, 3, 2, 1, 0)]
    assert await texts(client, start=1, limit=2) == newest[1:3]
    assert await texts(client, sort="oldest", limit=1) == ["memory 0"]
    assert await texts(client, sort="importance", limit=2) == ["memory 4", "memory 3"]
    assert await texts(client, start=5) == []
    assert await texts(client, text="MORY 3") == ["memory 3"]


async def test_a_long_text_is_clipped_in_the_list_only(client: ConsoleClient) -> None:
    memory = await client.remember("word " * 400)
    [row] = (await client.call("list_memories"))["memories"]
    whole = (await client.call("read_memory", memory_id=memory))["memory"]["content"]
    assert len(row["content"]) + row["clipped"] == len(whole)
    assert whole.startswith(row["content"])


async def test_many_memories_are_one_change_and_one_undo(client: ConsoleClient) -> None:
    ids = [await client.remember(f"memory {number}", tags=["old"]) for number in range(3)]
    done = await client.call(
        "change_memories", memory_ids=ids, pinned=True, importance=0.9, tags={"add": ["new"], "remove": ["old"]}
    )
    assert (done["changed"], len(done["changes"])) == (3, 1)
    rows = (await client.call("list_memories"))["memories"]
    assert {(row["pinned"], row["importance"], *row["tags"]) for row in rows} == {(True, 0.9, "new")}
    await client.call("undo_change", change=done["changes"][0])
    rows = (await client.call("list_memories"))["memories"]
    assert {(row.get("pinned"), *row["tags"]) for row in rows} == {(None, "old")}


async def test_memories_of_two_projects_are_one_change_in_each(client: ConsoleClient) -> None:
    await client.call("create_project", name="blog")
    ids = [await client.remember("one"), await client.remember("two", project="blog")]
    done = await client.call("change_memories", memory_ids=ids, forgotten=True, reason="outdated")
    assert [each.partition(":")[0] for each in done["changes"]] == ["blog", "shop"]
    assert await texts(client) == []
    assert sorted(await texts(client, flag=["forgotten"])) == ["one", "two"]
    await client.call("change_memories", memory_ids=ids, forgotten=False)
    assert sorted(await texts(client)) == ["one", "two"]


async def test_a_wrong_id_changes_none_of_them(client: ConsoleClient) -> None:
    ids = [await client.remember("one"), "memory:01M00000000000000000000000"]
    assert await client.refused("change_memories", memory_ids=ids, forgotten=True) == "not_found"
    assert await client.refused("change_memories", memory_ids=ids[:1]) == "invalid_input"
    assert await texts(client) == ["one"]


async def test_what_is_as_wanted_already_is_no_change(client: ConsoleClient) -> None:
    memory = await client.remember("one", importance=0.5)
    done = await client.call("change_memories", memory_ids=[memory], importance=0.5)
    assert done == {"changed": 0, "changes": []}


async def test_a_kept_automatic_memory_is_no_longer_automatic(client: ConsoleClient) -> None:
    memory = await client.remember("noticed", source=AUTOMATIC)
    [row] = (await client.call("list_memories", flag=["automatic"]))["memories"]
    assert row["fades_at"] > row["created_at"]
    await client.call("change_memories", memory_ids=[memory], pinned=True)
    assert (await client.call("list_memories", flag=["automatic"]))["total"] == 0
    assert (await client.call("read_memory", memory_id=memory))["memory"]["fades_at"] is None


async def test_every_version_of_a_memory_is_told(client: ConsoleClient) -> None:
    memory = await client.remember(
        "port 8080", tags=["net"], related_entities=[{"name": "Shop API", "type": "service"}]
    )
    await client.call("update_memory", memory_id=memory, content="port 8443", project="shop")
    await client.call("change_memories", memory_ids=[memory], forgotten=True)
    found = await client.call("read_memory", memory_id=memory)
    versions = [(each["operation"], each["tool"], each["values"]["text"]) for each in found["versions"]]
    assert versions == [
        ("delete", "change_memories", "port 8443"),
        ("update", "update_memory", "port 8443"),
        ("insert", "store_memory", "port 8080"),
    ]
    assert found["memory"]["forgotten"] is True
    assert [each["name"] for each in found["memory"]["related_entities"]] == ["Shop API"]


async def test_an_account_sees_neither_other_projects_nor_the_owners_own(client: ConsoleClient) -> None:
    secret = await client.remember("of the shop")
    await client.remember("of the owner", scope="user")
    await client.remember("of a session", scope="session", session_id="s")
    await client.call("create_project", name="blog")
    await client.remember("of the blog", project="blog")
    token = await client.create_account("mira", blog="read")
    seen = (await client.call("list_memories", token=token))["memories"]
    assert [each["content"] for each in seen] == ["of the blog"]
    assert await client.refused("read_memory", token=token, memory_id=secret) == "not_found"
    assert await client.refused("list_memories", token=token, project="shop") == "not_found"
    assert await client.refused("change_memories", token=token, memory_ids=[secret], forgotten=True) == "not_found"
    assert [each["name"] for each in (await client.call("list_projects_to_show", token=token))["projects"]] == ["blog"]


async def test_an_account_that_may_only_read_changes_nothing(client: ConsoleClient) -> None:
    memory = await client.remember("of the shop")
    token = await client.create_account("mira", shop="read")
    assert await client.refused("change_memories", token=token, memory_ids=[memory], forgotten=True) == "read_only"
    assert await client.refused("undo_change", token=token, change="shop:1") == "read_only"
    assert await texts(client) == ["of the shop"]


@pytest.mark.parametrize("sort", ["relevance", ""])
async def test_an_order_that_does_not_exist_is_refused(client: ConsoleClient, sort: str) -> None:
    assert await client.refused("list_memories", sort=sort) == "invalid_input"


async def test_a_search_of_a_person_is_not_a_recall(client: ConsoleClient, library: Library) -> None:
    memory = await client.remember("Orders are in PostgreSQL.")
    found = await client.call("recall_memories", query="PostgreSQL orders", project="shop", explain=True)
    assert [each["id"] for each in found["memories"]] == [memory]
    await client.call("unified_memory_search", query="PostgreSQL orders", options={"all_projects": True})
    await client.app.close()  # stores the counts
    _, store = await library.open("shop")
    assert await store.get_accesses([memory]) == {}
