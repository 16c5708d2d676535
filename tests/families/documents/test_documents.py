"""Documents of programs: values under a namespace and a key."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.core.records import DOCUMENT, RecordFilter
from everkept.core.sessions import Session, ToolCall
from everkept.errors import InvalidInput
from everkept.families.documents.document import DocumentWrite, StoredDocument
from everkept.families.documents.documents import DocumentQuery, Documents
from everkept.settings import read_settings

CALL = ToolCall(Session(client="test"), "test")
EVERYTHING = RecordFilter(kinds=(DOCUMENT,), deleted=None)
MINUTE = 60_000_000
ADA, BOB = ("users", "ada"), ("users", "bob")


class Clock:
    now = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def app(tmp_path: Path, clock: Clock) -> AsyncIterator[App]:
    app = App(read_settings({"data_dir": tmp_path, "project": "shop", "embedding_model": "none"}, {}), clock=clock)
    yield app
    await app.close()


@pytest.fixture
def documents(app: App) -> Documents:
    return app.documents


async def put(documents: Documents, namespace: tuple[str, ...], key: str, **value: Any) -> None:
    await documents.write(CALL, [DocumentWrite(namespace, key, value)])


async def get(documents: Documents, namespace: tuple[str, ...], key: str) -> StoredDocument | None:
    return (await documents.get(CALL, [(namespace, key)]))[0]


async def find(documents: Documents, *namespace: str, **wanted: Any) -> list[str]:
    return [each.key for each in await documents.search(CALL, DocumentQuery(namespace, **wanted))]


async def test_a_value_comes_back_as_it_was_stored(documents: Documents) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 20
    value: dict[str, Any] = {"text": secret, "list": [1, 2.5, None, True, {"ü": "\n"}], "empty": {}}
    await put(documents, ("a/b", "%", "Ünï.code"), "k/1", **value)
    found = await get(documents, ("a/b", "%", "Ünï.code"), "k/1")
    assert found is not None
    assert found.value == value
    assert (found.namespace, found.key) == (("a/b", "%", "Ünï.code"), "k/1")
    assert await get(documents, ("a", "b", "%", "Ünï.code"), "k/1") is None


async def test_a_query_does_not_find_a_secret(documents: Documents) -> None:
    secret = "AKIA" + "IOSFODNN7EXAMPLF"
    await put(documents, ADA, "keys", text=f"the key is {secret}")
    assert await find(documents, query="key") == ["keys"]
    assert await find(documents, query=secret) == []


async def test_writing_again_replaces_the_value_and_keeps_when_it_was_created(
    documents: Documents, clock: Clock
) -> None:
    await put(documents, ADA, "food", text="pizza")
    created = clock.now
    clock.now += MINUTE
    await put(documents, ADA, "food", text="sushi")
    found = await get(documents, ADA, "food")
    assert found is not None
    assert (found.value, found.created_at, found.updated_at) == ({"text": "sushi"}, created, clock.now)
    assert await find(documents, query="pizza") == []


async def test_a_deleted_document_is_gone_and_can_be_created_again(documents: Documents, clock: Clock) -> None:
    await put(documents, ADA, "food", text="pizza")
    assert await documents.write(CALL, [DocumentWrite(ADA, "food", None)]) == 1
    assert await documents.write(CALL, [DocumentWrite(ADA, "food", None)]) == 0
    assert await get(documents, ADA, "food") is None
    assert await documents.list_namespaces(CALL) == []
    clock.now += MINUTE
    created = clock.now
    await put(documents, ADA, "food", text="sushi")
    clock.now += MINUTE
    await put(documents, ADA, "food", text="soup")
    found = await get(documents, ADA, "food")
    assert found is not None
    assert (found.value, found.created_at) == ({"text": "soup"}, created)


async def test_a_write_of_many_is_one_change_that_undo_reverses(app: App, documents: Documents) -> None:
    await put(documents, ADA, "food", text="pizza")
    writes = [
        DocumentWrite(ADA, "food", {"text": "sushi"}),
        DocumentWrite(ADA, "food", None),
        DocumentWrite(BOB, "food", {"text": "soup"}),
    ]
    assert await documents.write(CALL, writes) == 2
    assert await get(documents, ADA, "food") is None
    await app.change_log.undo(None, "shop", "test")
    assert await get(documents, ADA, "food") is not None
    assert await get(documents, BOB, "food") is None


async def test_a_search_stays_in_its_namespace_and_those_below(documents: Documents) -> None:
    for number, namespace in enumerate([ADA, BOB, ("users",), ("users2",), (*ADA, "deep")]):
        await put(documents, namespace, f"d{number}", text="tea")
    assert await find(documents, "users") == ["d4", "d2", "d1", "d0"]
    assert await find(documents, "users", "ada") == ["d4", "d0"]
    assert sorted(await find(documents, "users", "ada", query="tea")) == ["d0", "d4"]
    assert await find(documents, limit=2, offset=1) == ["d3", "d2"]
    assert await find(documents, limit=0) == await find(documents, limit=0, offset=1, query="tea") == []
    for wrong in ({"limit": -1}, {"offset": -1}):
        with pytest.raises(InvalidInput):
            await find(documents, **wrong)
    assert await documents.list_namespaces(CALL) == [("users",), ADA, (*ADA, "deep"), BOB, ("users2",)]


async def test_a_query_searches_the_given_text_alone(documents: Documents) -> None:
    writes = [
        DocumentWrite(ADA, "all", {"title": "Breakfast", "body": "porridge"}),
        DocumentWrite(ADA, "title", {"title": "Breakfast", "body": "porridge"}, text="Breakfast"),
        DocumentWrite(ADA, "none", {"title": "Breakfast", "body": "porridge"}, text=""),
    ]
    await documents.write(CALL, writes)
    assert await find(documents, query="porridge") == ["all"]
    assert "none" not in await find(documents, query="none")
    assert sorted(await find(documents, query="breakfast")) == ["all", "title"]
    assert len(await find(documents)) == 3


@pytest.mark.parametrize(
    ("wanted", "keys"),
    [
        ({"status": "open"}, "ab"),
        ({"status": {"$ne": "open"}}, "c"),
        ({"size": {"$gt": 1, "$lte": 3}}, "b"),
        ({"size": {"$gte": "x"}}, ""),
        ({"owner": {"name": "Ada"}}, "a"),
        ({"tags": ["x", {"$eq": "y"}]}, "b"),
        ({"owner": None}, "bc"),
    ],
    ids=json.dumps,
)
async def test_a_filter_selects_by_value(documents: Documents, wanted: dict[str, Any], keys: str) -> None:
    await put(documents, ADA, "a", status="open", size=1, owner={"name": "Ada", "age": 36})
    await put(documents, ADA, "b", status="open", size=3, tags=["x", "y"])
    await put(documents, BOB, "c", status="done", size="large", tags=["x"])
    assert "".join(sorted(await find(documents, filter=wanted))) == keys
    assert "".join(sorted(await find(documents, filter=wanted, query="open done large"))) == keys


async def test_a_filter_is_met_before_the_limit(documents: Documents) -> None:
    writes = [DocumentWrite(ADA, f"d{number}", {"text": "tea", "number": number}) for number in range(300)]
    await documents.write(CALL, writes)
    assert await find(documents, filter={"number": 3}, limit=1) == ["d3"]
    assert await find(documents, filter={"number": 3}, query="tea", limit=1) == ["d3"]


async def test_a_lifetime_begins_again_with_each_read_and_write(documents: Documents, clock: Clock) -> None:
    await documents.write(CALL, [DocumentWrite(ADA, "d", {"text": "tea"}, ttl=10)])
    for read in (
        lambda: documents.get(CALL, [(ADA, "d")]),
        lambda: documents.search(CALL, DocumentQuery(query="tea")),
        lambda: documents.write(CALL, [DocumentWrite(ADA, "d", {"text": "tea"}, ttl=10)]),
    ):
        clock.now += 9 * MINUTE
        await read()
    clock.now += 9 * MINUTE
    assert (await documents.get(CALL, [(ADA, "d")], is_access=False)) != [None]
    assert await find(documents, is_access=False) == ["d"]
    assert await documents.expire(CALL) == 0
    clock.now += MINUTE
    assert await get(documents, ADA, "d") is None
    assert await find(documents) == await find(documents, query="tea") == []


async def test_an_expired_document_is_erased_and_undo_passes_over_it(
    app: App, documents: Documents, clock: Clock, tmp_path: Path
) -> None:
    await documents.write(CALL, [DocumentWrite(ADA, "d", {"text": "quinquereme"}, ttl=10)])
    await put(documents, BOB, "food", text="soup")
    clock.now += 11 * MINUTE
    assert await documents.expire(CALL) == 1
    _, store = await app.library.open("shop")
    assert "quinquereme" not in repr(await store.get([each.id for each in await store.scan(EVERYTHING)]))
    await app.change_log.undo(None, "shop", "test")
    assert await get(documents, BOB, "food") is None
    await put(documents, ADA, "d", text="again")
    assert await find(documents, "users", "ada", query="again") == ["d"]


@pytest.mark.parametrize(
    "write",
    [
        DocumentWrite((), "", {}),
        DocumentWrite("users", "k", {}),
        DocumentWrite(("a", ""), "k", {}),
        DocumentWrite(("a" * 501,), "k", {}),
        DocumentWrite(("a\x00",), "k", {}),
        DocumentWrite(("a",), "k\n", {}),
        DocumentWrite(("a",), "k", {"x": object()}),
        DocumentWrite(("a",), "k", {"x": float("nan")}),
        DocumentWrite(("a",), "k", {"x": "\ud800"}),
        DocumentWrite(("a",), "k", {"x": "y" * 1_000_001}),
        DocumentWrite(("a",), "k", [1]),  # type: ignore[arg-type]
        DocumentWrite(("a",), "k", {}, ttl=0),
    ],
    ids=lambda write: repr(write)[:60],
)
async def test_a_wrong_document_is_refused_and_nothing_is_stored(documents: Documents, write: DocumentWrite) -> None:
    with pytest.raises(InvalidInput):
        await documents.write(CALL, [DocumentWrite(ADA, "good", {"a": 1}), write])
    with pytest.raises(InvalidInput):
        await documents.search(CALL, DocumentQuery(filter={"a": {"$near": 1}}))
    assert await documents.list_namespaces(CALL) == []


def _nest(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "wanted",
    [{"a": {"b": {"$where": 1}}}, {"a": {"$gt": 5, "x": 1}}, {1: 2}, {"a": {1: 2}}, {"a": [{"$x": 1}]}, _nest(900)],
)
async def test_an_odd_filter_is_refused(documents: Documents, wanted: Any) -> None:
    await put(documents, ADA, "one", a={"b": 1})
    with pytest.raises(InvalidInput, match="filter"):
        await find(documents, filter=wanted)


async def test_a_value_that_cannot_be_compared_does_not_match(documents: Documents) -> None:
    await put(documents, ADA, "huge", age=10**400)
    await put(documents, ADA, "word", age="old")
    await put(documents, ADA, "deep", age=_nest(900))
    await put(documents, ADA, "six", age=6)
    assert await find(documents, filter={"age": {"$gt": 5}}) == ["six"]
    assert await find(documents, filter={"age": {"$gt": 10**400}}) == []


@pytest.mark.parametrize("ttl", [float("inf"), float("nan"), 0, -1, True, "5", 10**400])
async def test_an_odd_lifetime_is_refused(documents: Documents, ttl: Any) -> None:
    with pytest.raises(InvalidInput, match="ttl"):
        await documents.write(CALL, [DocumentWrite(ADA, "one", {"a": 1}, ttl=ttl)])
