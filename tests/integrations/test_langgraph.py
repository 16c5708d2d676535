"""The LangGraph store, compared with the one that LangGraph keeps in memory."""

# pyright: basic, reportMissingImports=false

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from everkept import Memory
from everkept.integrations.langgraph import EverkeptStore
from stand_in_models import QUOTE

ADA, BOB = ("users", "ada"), ("users", "bob")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory.open(project="agents", data_dir=tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def ours(memory: Memory) -> EverkeptStore:
    return EverkeptStore(memory)


@pytest.fixture(params=["everkept", "in memory"])
def store(request: pytest.FixtureRequest) -> BaseStore:
    return request.getfixturevalue("ours") if request.param == "everkept" else InMemoryStore()


def find(store: BaseStore, prefix: tuple[str, ...], **wanted: Any) -> list[str]:
    return sorted(each.key for each in store.search(prefix, **wanted))


def test_an_item_comes_back_as_it_was_put(store: BaseStore) -> None:
    value = {"text": "pizza", "deep": {"list": [1, 2.5, None, True, "ü\n"]}}
    store.put(ADA, "food", value)
    item = store.get(ADA, "food")
    assert type(item) is Item
    assert (item.value, item.key, item.namespace) == (value, "food", ADA)
    assert item.created_at.utcoffset() is not None
    assert store.get(BOB, "food") is store.get(ADA, "foo") is None


def test_a_search_filters_and_pages(store: BaseStore) -> None:
    for number in range(12):
        store.put(ADA, f"{number:02}", {"even": number % 2 == 0, "number": number, "deep": {"a": number, "b": 1}})
    store.put((*ADA, "below"), "x", {"number": 99})
    assert len(store.search(("users",))) == 10
    assert len(store.search((), limit=5, offset=11)) == 2
    assert find(store, ADA, filter={"even": True}) == ["00", "02", "04", "06", "08", "10"]
    assert find(store, ADA, filter={"number": {"$gte": 3, "$lt": 5}}) == ["03", "04"]
    assert find(store, ADA, filter={"deep": {"a": 7}}) == ["07"]
    assert find(store, ADA, filter={"even": {"$ne": True}, "number": {"$gt": 8}}) == ["09", "11", "x"]
    with pytest.raises(ValueError):
        store.search(ADA, filter={"number": {"$near": 1}})


def test_namespaces_are_listed_by_prefix_suffix_and_depth(store: BaseStore) -> None:
    for namespace in [("a", "b", "v1"), ("a", "c", "v1"), ("a", "c", "v2"), ("z",)]:
        store.put(namespace, "k", {})
    assert store.list_namespaces(prefix=("a",), suffix=("v1",)) == [("a", "b", "v1"), ("a", "c", "v1")]
    assert store.list_namespaces(prefix=("*", "c")) == [("a", "c", "v1"), ("a", "c", "v2")]
    assert store.list_namespaces(max_depth=1) == [("a",), ("z",)]
    assert store.list_namespaces(limit=1, offset=3) == [("z",)]
    assert store.list_namespaces(prefix=("a", "b", "v1", "too long")) == []


def test_reads_of_a_batch_see_the_state_before_its_writes(store: BaseStore) -> None:
    store.put(ADA, "food", {"text": "pizza"})
    condition = MatchCondition("prefix", ("users",))
    got, put, listed, _, _, found = store.batch(
        [
            GetOp(ADA, "food"),
            PutOp(ADA, "food", None),
            ListNamespacesOp((condition,)),
            PutOp(BOB, "food", {"text": "soup"}),
            PutOp(BOB, "food", {"text": "sushi"}),
            SearchOp(("users",)),
        ]
    )
    assert isinstance(got, Item)
    assert put is None
    assert listed == [ADA]
    assert isinstance(found, list)
    assert [each.value for each in found if isinstance(each, Item)] == [{"text": "pizza"}]
    assert store.get(ADA, "food") is None
    last = store.get(BOB, "food")
    assert last is not None
    assert last.value == {"text": "sushi"}


def test_a_namespace_that_langgraph_reserves_is_refused(store: BaseStore) -> None:
    for namespace in [(), ("a.b",), ("langgraph",), ("",)]:
        with pytest.raises(InvalidNamespaceError):
            store.put(namespace, "k", {})


async def test_coroutines_answer_like_methods(store: BaseStore) -> None:
    await asyncio.gather(*(store.aput(ADA, str(number), {"number": number}) for number in range(20)))
    assert len(await store.asearch(ADA, limit=50)) == 20
    item = await store.aget(ADA, "7")
    assert item is not None
    assert item.value == {"number": 7}
    await store.adelete(ADA, "7")
    assert await store.aget(ADA, "7") is None
    assert await store.alist_namespaces() == [ADA]


def test_a_query_finds_by_meaning(ours: EverkeptStore) -> None:
    ours.put(ADA, "drink", {"text": "She prefers tea in the morning"})
    ours.put(ADA, "work", {"text": "Deploys happen on Fridays"})
    best = ours.search(("users",), query="what does she like to drink?")[0]
    assert best.key == "drink"
    assert best.score is not None
    assert 0 < best.score <= 1


def test_a_query_searches_the_chosen_fields(tmp_path: Path) -> None:
    with Memory.open(project="agents", data_dir=tmp_path, embedding_model="none") as memory:
        store = EverkeptStore(memory)
        value = {"title": "Breakfast", "dishes": [{"name": "porridge"}, {"name": "toast"}]}
        store.put(ADA, "all", value)
        store.put(ADA, "none", value, index=False)
        store.put(BOB, "dishes", value, index=["dishes[*].name"])
        EverkeptStore(memory, fields=["title"]).put(BOB, "title", value)
        assert find(store, (), query="toast") == ["all", "dishes"]
        assert find(store, (), query="breakfast") == ["all", "title"]
        assert len(store.search(())) == 4


def test_overwriting_keeps_when_an_item_was_created(ours: EverkeptStore) -> None:
    ours.put(ADA, "food", {"text": "pizza"})
    first = ours.get(ADA, "food")
    ours.put(ADA, "food", {"text": "sushi"})
    second = ours.get(ADA, "food")
    assert first is not None
    assert second is not None
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at


def test_an_item_with_a_lifetime_expires(memory: Memory) -> None:
    store = EverkeptStore(memory, ttl={"default_ttl": 1e-9, "sweep_interval_minutes": 60})
    store.put(ADA, "short", {"text": "tea"})
    store.put(ADA, "long", {"text": "tea"}, ttl=None)
    assert store.get(ADA, "short") is None
    assert find(store, ADA) == find(store, ADA, query="tea") == ["long"]
    assert store.sweep_ttl() == 1


def test_a_wrong_value_is_a_value_error_and_nothing_is_stored(ours: EverkeptStore) -> None:
    with pytest.raises(ValueError, match="JSON"):
        ours.batch([PutOp(ADA, "good", {}), PutOp(ADA, "bad", {"x": object()})])
    assert ours.list_namespaces() == []


def test_items_outlive_the_process(ours: EverkeptStore, memory: Memory, tmp_path: Path) -> None:
    ours.put(ADA, "food", {"text": "pizza"})
    memory.close()
    with Memory.open(project="agents", data_dir=tmp_path / "data") as again:
        assert EverkeptStore(again).search(ADA, query="pizza")[0].key == "food"


async def test_a_graph_uses_the_store(ours: EverkeptStore) -> None:
    async def remember(state: MessagesState, *, store: BaseStore) -> MessagesState:
        text = str(state["messages"][-1].content)
        known = [each.value["text"] for each in await store.asearch(ADA, query=text)]
        await store.aput(ADA, text, {"text": text})
        return {"messages": [("assistant", "; ".join(known) or "nothing")]}  # type: ignore[typeddict-item]

    def turn(text: str) -> dict[str, Any]:
        return {"messages": [("user", text)]}

    graph = StateGraph(MessagesState).add_node(remember).add_edge(START, "remember").compile(store=ours)
    first = await graph.ainvoke(turn("I like pizza with olives"))
    second = await graph.ainvoke(turn("Which pizza do I like?"))
    assert first["messages"][-1].content == "nothing"
    assert "olives" in second["messages"][-1].content


def test_the_example_remembers_in_a_later_run(run_example: Any) -> None:
    fact, question = "The user lives in Lisbon", "Which city do I live in?"
    storing = [("remember", {"fact": fact}), "Noted."]
    printed, _ = run_example("langgraph_agent.py", "Remember that I live in Lisbon", replies=storing)
    assert printed == "Noted.\n"
    asking = [("recall", {"question": question}), QUOTE]
    printed, _ = run_example("langgraph_agent.py", question, replies=asking)
    assert fact in printed


def test_the_example_of_the_page_runs(run_page: Any) -> None:
    printed, _ = run_page("LangGraph", replies=[("recall", {"question": "breakfast drink"}), QUOTE])
    assert "She prefers tea in the morning" in printed
