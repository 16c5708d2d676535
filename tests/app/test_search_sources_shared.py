import json
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conversations import Written, assistant, tell
from everkept.app.app import App
from everkept.app.search_sources import SharedFindings
from everkept.core.peers import HISTORY_TYPES, MEMORY_TYPES, PeerQuestion
from everkept.core.sessions import act_as
from everkept.jobs.claims import MODEL_NOTE
from everkept.values import as_dict
from examples import examples
from peer_servers import ME, neighbour


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    made = await neighbour(tmp_path)
    yield made
    await made.close()


async def grant(app: App, *names: str) -> None:
    for name in names:
        await app.accounts.grant("me", await app.library.get_project(name), "read")


async def ask(app: App, query: str, *types: str, limit: int = 50) -> SharedFindings:
    with act_as(ME):
        return await app.shared_search.search(PeerQuestion(query, types, limit))


def told(shared: SharedFindings) -> str:
    return json.dumps([as_dict(each) for each in shared.results] + shared.warnings)


async def test_nothing_is_shared_before_something_is_granted(app: App) -> None:
    assert await ask(app, "checkout waits for Redis") == SharedFindings([], [])


async def test_what_is_granted_is_found_with_its_project_and_nothing_else(app: App, tmp_path: Path) -> None:
    await grant(app, "shop")
    shared = await ask(app, "checkout waits for Redis")
    assert {each.type for each in shared.results} >= {"conversation", "memory", "entity"}
    assert {each.project for each in shared.results} == {"shop"}
    scores = [each.score for each in shared.results]
    assert scores == sorted(scores, reverse=True)
    for hidden in ("diary", "of mine", "in a session", str(tmp_path)):
        assert hidden not in told(shared)


async def test_only_what_is_asked_for_is_given(app: App) -> None:
    await grant(app, "shop", "diary")
    for types in (HISTORY_TYPES, MEMORY_TYPES, ("memory",), ("conversation", "entity")):
        shared = await ask(app, "checkout waits for Redis", *types)
        assert shared.results
        assert {each.type for each in shared.results} <= set(types)
    assert len((await ask(app, "checkout waits for Redis", limit=3)).results) == 3


async def test_asking_leaves_no_trace(app: App) -> None:
    await grant(app, "shop")
    _, store = await app.library.open("shop")
    past = await app.library.open_history_store()

    async def look() -> tuple[int, int, dict[str, str]]:
        notes = await app.library.list_notes("")
        notes.pop(MODEL_NOTE, None)  # the background writes it when it first embeds what is stored
        return await store.get_revision(), await past.get_revision(), notes

    before = await look()
    shared = await ask(app, "checkout waits for Redis")
    ids = [each.id for each in shared.results]
    assert await store.get_accesses(ids) == {}
    assert await app.library.list_searches() == []
    assert await look() == before


async def test_a_project_that_is_off_archived_or_deleted_is_not_shared(app: App) -> None:
    await grant(app, "shop", "diary")
    await app.library.set_off("shop", off=True)
    assert {each.project for each in (await ask(app, "checkout")).results} == {"diary"}
    await app.library.set_off("shop", off=False)
    await app.library.archive("diary")
    assert {each.project for each in (await ask(app, "checkout")).results} == {"shop"}
    await app.library.delete("shop")
    assert (await ask(app, "checkout")).results == []


async def test_no_secret_and_no_place_on_the_disk_is_told(app: App, tmp_path: Path) -> None:
    await grant(app, "shop")
    secret = "ghp_" + "a1B2" * 9
    folder = str((tmp_path / "shop").resolve())
    code = Written("def pay():\n    return Redis()", "python", f"{folder}/src/pay.py")
    await tell(
        await app.library.open_history_store(),
        "s9",
        assistant(f"Payment fails with {secret}", code=(code,)),
        project=folder,
    )
    shared = await ask(app, "payment fails def pay Redis")
    assert secret not in told(shared)
    titles = [each.title for each in shared.results if each.type == "code"]
    assert titles == ["src/pay.py"]


@settings(max_examples=examples(15))
@given(
    st.sets(st.sampled_from(["shop", "diary"])),
    st.lists(st.sampled_from(["checkout", "diary", "mine", "Redis", "session", "slow"]), min_size=1),
)
async def test_whatever_is_asked_what_is_not_granted_stays_here(granted: set[str], words: list[str]) -> None:
    with TemporaryDirectory() as folder:
        app = await neighbour(Path(folder))
        try:
            await grant(app, *sorted(granted))
            shared = await ask(app, " ".join(words))
            assert {each.project for each in shared.results} <= granted
            for hidden in ({"shop", "diary"} - granted) | {"of mine", "in a session", folder}:
                assert hidden not in told(shared)
        finally:
            await app.close()
