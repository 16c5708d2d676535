"""What can be read of past conversations by who may not see those of some folders."""

from typing import Any

import pytest

from conversations import SHOP, Historian, Moment, Written, assistant, embed, tell, user
from everkept.core import store as questions
from everkept.core.answers import Hops, Selection, StorePage
from everkept.core.ports import Library, RecordStore
from everkept.core.records import RecordFilter, Weights
from everkept.engines.memory.store import MemoryStore
from everkept.errors import NotFound, ProjectOff
from everkept.families.history.model import CODE, CONVERSATION, SYMBOL, TURN, HistoryOptions
from everkept.families.history.off_folders import FilteredStore, hide_folders, open_visible_history, read_folders
from everkept.language.words import WordPhrase
from hash_embedder import HashingEmbedder
from records import batch, link

BLOG = "/home/ann/blog"
# What nobody needs who only asks: questions that only the owner of a store asks, and those whose
# answers would tell what is hidden.
WITHHELD = {
    questions.CountSources(("a",), RecordFilter(), 1),
    questions.FindFaults(),
    questions.GetAccesses(("a",)),
    questions.GetLinks(("a",)),
    questions.GetRevision(),
    questions.GetVectors("model", ("a",)),
    questions.ListMostAccessed(1),
    questions.MeasureSize(),
    questions.ReadChanges(),
    questions.ReadHistory(()),
    questions.ReadSubgraph(Selection("entity", "observation")),
    questions.ScanLinks(None),
}
WRITES = [
    questions.Purge(()),
    questions.Redact((), lambda _, values: values),
    questions.PutVectors("model", ()),
    questions.NoteAccesses({}, 0),
    questions.Replicate(StorePage()),
]


@pytest.fixture
async def full() -> RecordStore:
    store = MemoryStore()
    for session, folder in (("s1", SHOP), ("s2", BLOG)):
        code = (Written(f"def zebra():\n    {session}()", "python", "zebra.py", ("zebra",)),)
        said = assistant("The zebra is fixed.", code=code)
        await tell(store, session, user("The zebra fails"), said, project=folder)
    return store


@pytest.fixture
async def seen(full: RecordStore) -> RecordStore:
    return hide_folders(full, await read_folders(full), frozenset({SHOP}))


async def ids_of(store: RecordStore, kind: str, folder: str) -> list[str]:
    found = await store.scan(RecordFilter(kinds=(kind,), scopes=(folder,)))
    return [record.id for record in found]


def test_every_question_is_filtered_or_passed_or_withheld() -> None:
    withheld = {type(question) for question in WITHHELD}
    assert withheld | FilteredStore.answers.keys() == set(MemoryStore.answers)
    assert not withheld & FilteredStore.answers.keys()
    assert {type(write) for write in WRITES} == set(MemoryStore.upkeeps)


@pytest.mark.parametrize("question", sorted(WITHHELD, key=repr), ids=repr)
async def test_what_was_not_thought_about_is_refused(seen: RecordStore, question: questions.StoreQuestion[Any]) -> None:
    with pytest.raises(KeyError):
        await seen.ask(question)


async def test_nothing_is_written(seen: RecordStore) -> None:
    for write in WRITES:
        with pytest.raises(KeyError):
            await seen.maintain(write)
    with pytest.raises(NotImplementedError):
        await seen.commit(batch())


async def test_where_nothing_is_hidden_the_store_is_the_store(full: RecordStore) -> None:
    assert hide_folders(full, {SHOP, BLOG}, frozenset()) is full


async def test_records_are_found_by_no_way(full: RecordStore, seen: RecordStore) -> None:
    every = RecordFilter(kinds=(CONVERSATION, TURN, CODE, SYMBOL))
    shop = RecordFilter(kinds=(TURN,), scopes=(SHOP,))
    assert {record.scope for record in await seen.scan(every)} == {BLOG}
    assert await seen.scan(shop) == []
    assert await seen.get(await ids_of(full, TURN, SHOP)) == []
    found = await seen.match(WordPhrase(("zebra",)), every, Weights(), 10)
    assert {record.scope for record in await full.get([each.id for each in found])} == {BLOG}
    assert await seen.match(WordPhrase(("zebra",)), shop, Weights(), 10) == []
    contained = await seen.match_text("fails", RecordFilter(kinds=(TURN,)), 10)
    assert [each.id for each in contained] == (await ids_of(full, TURN, BLOG))[:1]
    assert await seen.match_text("fails", shop, 10) == []


async def test_nothing_is_found_by_its_meaning(full: RecordStore, seen: RecordStore) -> None:
    embedder = HashingEmbedder()
    assert {r.scope for r in await seen.find_unembedded(embedder.name, (TURN,), 10)} == {BLOG}
    await embed(full, embedder)
    [vector] = await embedder.embed(["The zebra fails"])
    also = [*await ids_of(full, CODE, SHOP), *await ids_of(full, CODE, BLOG)]
    found = await seen.find_near(embedder.name, vector, RecordFilter(kinds=(TURN,)), 1, also)
    assert {record.scope for record in await full.get([each.id for each in found])} == {BLOG}
    assert {each.id for each in found} >= set(await ids_of(full, CODE, BLOG))
    shop = RecordFilter(kinds=(TURN,), scopes=(SHOP,))
    assert await seen.find_near(embedder.name, vector, shop, 10) == []


async def test_no_link_leads_to_it(full: RecordStore, seen: RecordStore) -> None:
    hidden, shown = await ids_of(full, CODE, SHOP), await ids_of(full, CODE, BLOG)
    assert len(await full.find_links([*hidden, *shown])) == 2
    assert [link.source for link in await seen.find_links([*hidden, *shown])] == shown
    assert await seen.find_links(hidden) == []


async def test_no_walk_goes_through_it(full: RecordStore, seen: RecordStore) -> None:
    hidden, shown = await ids_of(full, CODE, SHOP), await ids_of(full, CODE, BLOG)
    symbols = [record.id for record in await full.scan(RecordFilter(kinds=(SYMBOL,), scopes=(BLOG,)))]
    between = batch(link(shown[0], "is like", hidden[0]), link(hidden[0], "calls", symbols[0]))
    await full.commit(between)
    assert len(await full.walk(shown, Hops(2))) == 2
    assert await seen.walk(shown, Hops(2)) == [await seen.find_links(shown)]
    assert await seen.walk(hidden, Hops(2)) == []


async def test_folders_and_how_much_is_in_them_are_those_that_are_shown(seen: RecordStore) -> None:
    assert await read_folders(seen) == {BLOG}
    assert {tally.scope for tally in await seen.tally((TURN, CODE))} == {BLOG}
    assert await seen.count_records(RecordFilter(kinds=(TURN,))) == 2
    assert await seen.count_records(RecordFilter(kinds=(TURN,), scopes=(SHOP,))) == 0


async def test_numbers_over_all_records_are_as_they_are(full: RecordStore, seen: RecordStore) -> None:
    assert await seen.count_records(RecordFilter()) == await full.count_records(RecordFilter())
    assert await seen.count_live() == await full.count_live()
    assert await seen.measure_words(["zebra"]) == await full.measure_words(["zebra"])
    assert await seen.get_stamp() == await full.get_stamp()


ASKED: list[tuple[str, dict[str, Any]]] = [
    ("recall_previous_discussions", {"query": "zebra"}),
    ("recall_previous_discussions", {"query": "zebra", "project_filter": SHOP}),
    ("recall_previous_discussions", {"query": "zebra", "type": "code"}),
    ("find_similar_problems", {"problem_description": "zebra raises a KeyError"}),
    ("search_code_history", {"query": "zebra"}),
    ("search_code_history", {"query": "zebra", "language": "python"}),
    ("unified_memory_search", {"query": "zebra"}),
    ("unified_memory_search", {"query": "what calls zebra()"}),
]


@pytest.fixture
async def library(library: Library) -> Library:
    store = await library.open_history_store()
    code = (Written("def zebra():\n    stripes()", "python", "src/zebra.py", ("zebra",)),)
    await tell(
        store,
        "s1",
        user("The zebra raises a KeyError", facets={"problem": True}),
        assistant("The zebra is fixed in the stripes.", facets={"fix": True}, code=code),
        project=f"{SHOP}/api",
    )
    await tell(store, "s2", user("The zebra crossing of the blog is painted"), project=BLOG)
    await embed(store)
    await library.link_workspace(SHOP, await library.create("shop", ""))
    return library


@pytest.mark.parametrize(("tool", "arguments"), ASKED)
async def test_what_is_off_is_left_out_and_comes_back(library: Library, tool: str, arguments: dict[str, Any]) -> None:
    historian = Historian(library, Moment())
    before = str(await historian(tool, **arguments))
    assert "stripes" in before
    await library.set_off("shop", off=True)
    meanwhile = str(await historian(tool, **arguments))
    assert "stripes" not in meanwhile
    assert "crossing" in meanwhile or "crossing" not in before
    await library.set_off("shop", off=False)
    assert "stripes" in str(await historian(tool, **arguments))


async def test_a_conversation_that_is_off_cannot_be_read(library: Library) -> None:
    historian = Historian(library, Moment())
    assert (await historian("read_conversation", id="s1"))["turns"]
    await library.set_off("shop", off=True)
    for name in ("s1", "claude-code:s1", "s1-chunk-1"):
        with pytest.raises(ProjectOff, match='off for project "shop"'):
            await historian("read_conversation", id=name)
    with pytest.raises(NotFound):
        await historian("read_conversation", id="s3")
    assert (await historian("read_conversation", id="s2"))["turns"]


async def test_nothing_is_left_out_where_nothing_is_off(library: Library) -> None:
    past = await open_visible_history(library, HistoryOptions())
    assert past.store is await library.open_history_store()
    await library.create("elsewhere", "")
    await library.set_off("elsewhere", off=True)
    assert (await open_visible_history(library, HistoryOptions())).store is past.store


async def test_all_ways_to_ask_leave_it_out(library: Library) -> None:
    await library.set_off("shop", off=True)
    past = await open_visible_history(library, HistoryOptions())
    assert past.hidden == {f"{SHOP}/api"}
    every = RecordFilter(kinds=(CONVERSATION, TURN, CODE, SYMBOL))
    store = past.store
    assert {record.scope for record in await store.scan(every)} == {BLOG}
    assert await store.count_records(every) == 2
    assert {tally.scope for tally in await store.tally((TURN,))} == {BLOG}
    assert len(await store.match_text("zebra", RecordFilter(kinds=(TURN,)), 10)) == 1
    hidden = RecordFilter(kinds=(TURN,), scopes=(f"{SHOP}/api",))
    assert await store.scan(hidden) == []
    assert await store.count_records(hidden) == 0
    full = await library.open_history_store()
    ids = [record.id for record in await full.scan(hidden)]
    assert len(ids) == 2
    assert await store.get(ids) == []


async def test_a_folder_that_the_project_knows_by_another_name_is_off_too(library: Library) -> None:
    await library.set_off("shop", off=True)
    past = await open_visible_history(library, HistoryOptions(workspace={BLOG: SHOP}.get))
    assert past.hidden == {BLOG, f"{SHOP}/api"}
    assert await past.store.scan(RecordFilter(kinds=(TURN,))) == []


async def test_each_folder_is_looked_at_once_for_all_calls(library: Library) -> None:
    looked_at: list[str] = []

    def workspace(folder: str) -> str | None:
        looked_at.append(folder)
        return SHOP if folder == BLOG else None

    await library.set_off("shop", off=True)
    options = HistoryOptions(workspace=workspace)
    for _ in range(3):
        assert (await open_visible_history(library, options)).hidden == {BLOG, f"{SHOP}/api"}
    assert sorted(looked_at) == [BLOG, f"{SHOP}/api"]
    await library.set_off("shop", off=False)
    assert (await open_visible_history(library, options)).hidden == frozenset()


async def test_what_is_said_in_a_new_folder_is_hidden_as_well(library: Library) -> None:
    await library.set_off("shop", off=True)
    assert (await open_visible_history(library, HistoryOptions())).hidden == {f"{SHOP}/api"}
    await tell(await library.open_history_store(), "s3", "A zebra on the web", project=f"{SHOP}/web")
    assert (await open_visible_history(library, HistoryOptions())).hidden == {f"{SHOP}/api", f"{SHOP}/web"}


async def test_a_stamp_tells_that_a_project_was_switched(library: Library) -> None:
    before = await (await open_visible_history(library, HistoryOptions())).read_stamp()
    await library.set_off("shop", off=True)
    assert await (await open_visible_history(library, HistoryOptions())).read_stamp() != before


async def test_nobody_is_told_to_import_what_is_only_off(library: Library) -> None:
    await library.link_workspace(BLOG, await library.create("blog", ""))
    for name in ("shop", "blog"):
        await library.set_off(name, off=True)
    historian = Historian(library, Moment())
    for tool in ("recall_previous_discussions", "unified_memory_search"):
        answer = await historian(tool, query="zebra")
        assert answer["results"] == []
        assert "import" not in str(answer.get("warnings"))
