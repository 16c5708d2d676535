import pytest

from console_calls import ConsoleClient
from conversations import tell

SHOP, BLOG = "/home/ada/shop", "/home/ada/blog"


@pytest.fixture
async def talks(client: ConsoleClient) -> ConsoleClient:
    store = await client.app.library.open_history_store()
    for name, folder in (("one", SHOP), ("two", SHOP), ("three", BLOG)):
        await tell(store, name, f"first of {name}", "second", project=folder)
    return client


async def test_conversations_are_listed_by_page_and_folder(talks: ConsoleClient) -> None:
    found = await talks.call("list_conversations", limit=2)
    assert (len(found["conversations"]), found["total"]) == (2, 3)
    rest = await talks.call("list_conversations", start=2)
    ids = {each["id"] for each in (*found["conversations"], *rest["conversations"])}
    assert len(ids) == 3
    assert dict(found["folders"]) == {SHOP: 2, BLOG: 1}
    of_blog = await talks.call("list_conversations", folder=BLOG)
    assert [each["folder"] for each in of_blog["conversations"]] == [BLOG]


async def test_a_conversation_is_deleted_with_its_turns(talks: ConsoleClient) -> None:
    [of_blog] = (await talks.call("list_conversations", folder=BLOG))["conversations"]
    done = await talks.call("delete_conversations", conversations=[of_blog["id"]])
    assert done == {"conversations": 1, "turns": 2}
    assert (await talks.call("list_conversations"))["total"] == 2


async def test_a_folder_is_excluded_and_included(talks: ConsoleClient) -> None:
    assert (await talks.call("exclude_folder", folder=SHOP))["changed"]
    assert (await talks.call("list_conversations"))["excluded"] == [SHOP]
    await talks.call("exclude_folder", folder=SHOP, excluded=False)
    assert (await talks.call("list_conversations"))["excluded"] == []


async def test_conversations_are_only_the_owners(talks: ConsoleClient) -> None:
    token = await talks.create_account("mira", shop="write")
    assert await talks.refused("list_conversations", token=token) == "refused"
    assert await talks.refused("delete_conversations", token=token, conversations=["x"]) == "refused"
    assert await talks.refused("exclude_folder", token=token, folder=SHOP) == "refused"
