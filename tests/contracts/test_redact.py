from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from everkept.core.ports import Library, RecordStore, RecordVector
from everkept.core.records import Delete, Record, RecordFilter, Ref, Update, Weights
from everkept.core.text import compute_digest
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import Conflict
from everkept.language.words import parse_query
from records import batch, entity, link, link_ref, memory, note, record_ref

SECRET = "xyzzysecret"
MODEL = "a model"


def refs(*ids: str) -> list[Ref]:
    return [record_ref(record_id) for record_id in ids]


def clean(_: Ref, values: Mapping[str, Any]) -> dict[str, Any]:
    """Takes the secret out of name, text, tags, facets and verb."""
    return {
        key: (
            value.replace(SECRET, "***")
            if isinstance(value, str)
            else tuple(tag.replace(SECRET, "***") for tag in value)
            if key == "tags"
            else {k: str(v).replace(SECRET, "***") for k, v in value.items()}
            if key == "facets"
            else value
        )
        for key, value in values.items()
    }


async def found(store: RecordStore, word: str) -> list[str]:
    words = parse_query(word).build_all_query()
    assert words is not None
    return [match.id for match in await store.match(words, RecordFilter(), Weights(), 100)]


async def filled(store: RecordStore) -> None:
    """A record that has the secret everywhere, one that had it, and one that never did."""
    await store.commit(
        batch(
            memory(f"is {SECRET}", id="is", tags=(SECRET,), facets={"why": SECRET}, session="s"),
            memory(f"was {SECRET}", id="was"),
            memory("never", id="never"),
            memory(f"gone {SECRET}", id="gone"),
        )
    )
    await store.commit(batch(Update("is", {"text": f"still {SECRET}"}, 1)))
    await store.commit(batch(Update("was", {"text": "was it"}, 1)))
    await store.commit(batch(Delete(record_ref("gone"))))


LINKS = [link_ref(name) for name in ("live", "dead", "plain", "nobody")]


async def linked(store: RecordStore) -> None:
    """A link that has the secret, a deleted one that has it, and one that never did."""
    await store.commit(
        batch(
            entity("a"),
            entity("b"),
            link("a", f"opens {SECRET}", "b", id="live", facets={"why": SECRET}),
            link("a", f"shuts {SECRET}", "b", id="dead"),
            link("a", "knows", "b", id="plain"),
        )
    )
    await store.commit(batch(Delete(link_ref("dead"))))


async def everything(store: RecordStore) -> str:
    records = await store.scan(RecordFilter(deleted=None))
    links = await store.scan_links(deleted=None)
    return repr([records, links, await store.read_changes()])


@pytest.mark.smoke
async def test_what_a_record_holds_and_held_is_rewritten(store: RecordStore) -> None:
    await filled(store)
    redacted = await store.redact(refs("is", "was", "never", "gone", "nobody", "is"), clean)
    assert (redacted.records, redacted.links, redacted.complete) == (3, 0, True)
    assert SECRET not in await everything(store)
    (record,) = await store.get(["is"])
    assert (record.text, record.tags, record.facets) == ("still ***", ("***",), {"why": "***"})
    history = await store.read_history([record_ref("is"), record_ref("was")])
    assert [edit.before for _, edit in history if edit.before] == [{"text": "is ***"}, {"text": "was ***"}]
    assert await store.find_faults() == []


async def test_a_redaction_is_found_by_its_new_words_alone(store: RecordStore) -> None:
    await filled(store)
    assert await found(store, SECRET) == ["is"]
    await store.redact(refs("is"), lambda ref, values: clean(ref, values) | {"tags": ("new",)})
    assert await found(store, SECRET) == []
    assert await found(store, "still") == ["is"]
    tagged = await store.scan(RecordFilter(tags=("new",)))
    assert [record.id for record in tagged] == ["is"]
    assert await store.scan(RecordFilter(tags=(SECRET,))) == []


async def test_words_around_a_redacted_text_do_not_keep_it(store: RecordStore) -> None:
    await store.commit(
        batch(
            memory(f"the key {SECRET}", id="one", session="s", position=1),
            memory("the next turn", id="two", session="s", position=2),
            entity(f"House {SECRET}", id="house"),
            note("house", "has a door"),
        )
    )
    assert set(await found(store, SECRET)) == {"one", "two", "house", "has a door"}
    await store.redact(refs("one", "house"), clean)
    assert await found(store, SECRET) == []


async def test_a_redacted_record_is_a_newer_version_and_waits_for_its_vector(store: RecordStore) -> None:
    await filled(store)
    before = {record.id: record for record in await store.scan(RecordFilter())}
    items = [RecordVector(record.id, record.version, np.eye(4, dtype=np.float32)[0]) for record in before.values()]
    await store.put_vectors(MODEL, items)
    await store.redact(refs(*before), clean)
    after = {record.id: record for record in await store.scan(RecordFilter())}
    assert after["is"].version == before["is"].version + 1
    assert after["is"].updated_at == before["is"].updated_at
    assert after["never"] == before["never"]
    assert [record.id for record in await store.find_unembedded(MODEL, ["memory"], 10)] == ["is"]
    assert set(await store.get_vectors(MODEL, list(before))) == {"was", "never"}
    assert await store.put_vectors(MODEL, [item for item in items if item.id == "is"]) == 0
    with pytest.raises(Conflict):
        await store.commit(batch(Update("is", {"text": "x"}, before["is"].version)))


async def test_links_are_rewritten_too(store: RecordStore) -> None:
    await linked(store)
    seen = await store.get_revision()
    redacted = await store.redact(LINKS, clean)
    assert (redacted.records, redacted.links, redacted.complete) == (0, 2, True)
    live, dead, plain = await store.get_links(["live", "dead", "plain"], include_deleted=True)
    assert (live.verb, live.facets) == ("opens ***", {"why": "***"})
    assert (dead.verb, dead.deleted_at is None) == ("shuts ***", False)
    assert (plain.verb, plain.facets) == ("knows", {})
    (change,) = await store.read_changes(after=seen)
    assert (change.tool, change.edits) == ("redact", ())
    assert (await store.redact(LINKS, clean)).links == 0
    assert await store.find_faults() == []


async def test_links_that_would_become_one_are_refused(store: RecordStore) -> None:
    await linked(store)
    await store.commit(batch(link("a", "opens ***", "b", id="other"), memory(SECRET, id="one")))
    before = await everything(store)
    with pytest.raises(Conflict):
        await store.redact([record_ref("one"), link_ref("live")], clean)
    assert await everything(store) == before


@pytest.mark.parametrize("values", [{"session": "t"}, {"position": 9}])
async def test_a_record_that_is_moved_is_not_heard_where_it_stood(store: RecordStore, values: dict[str, Any]) -> None:
    await store.commit(
        batch(
            memory("the bluefin turn", id="one", session="s", position=1),
            memory("the next turn", id="two", session="s", position=2),
        )
    )
    assert set(await found(store, "bluefin")) == {"one", "two"}
    await store.redact(refs("one"), lambda _, old: {**old, **values})
    assert await found(store, "bluefin") == ["one"]


async def test_others_learn_that_something_was_redacted(store: RecordStore) -> None:
    await filled(store)
    seen = await store.get_revision()
    await store.redact(refs("never", "nobody"), clean)
    assert await store.get_revision() == seen
    await store.redact(refs("is"), clean)
    (change,) = await store.read_changes(after=seen)
    assert (change.tool, change.edits) == ("redact", ())


async def test_a_redaction_that_would_make_two_of_one_changes_nothing(store: RecordStore) -> None:
    def keyed(text: str) -> Record:
        return memory(text, name_key=compute_digest(text))

    def rekeyed(ref: Ref, values: Mapping[str, Any]) -> dict[str, Any]:
        new = clean(ref, values)
        return new | {"name_key": compute_digest(new["text"])} if "text" in new else new

    await store.commit(batch(keyed(f"a {SECRET}"), keyed("a ***"), keyed(f"b {SECRET}")))
    before = await everything(store)
    with pytest.raises(Conflict):
        await store.redact(refs(f"b {SECRET}", f"a {SECRET}"), rekeyed)
    assert await everything(store) == before
    assert (await store.redact(refs(f"b {SECRET}"), rekeyed)).records == 1
    (record,) = await store.get([f"b {SECRET}"])
    assert record.name_key == compute_digest("b ***")


@pytest.fixture
async def on_disk(tmp_path: Path, clock: Callable[[], int]) -> AsyncIterator[Library]:
    library = SqliteLibrary(tmp_path / "data", clock=clock)
    yield library
    await library.close()


async def test_no_byte_of_what_was_redacted_stays_on_the_disk(on_disk: Library, tmp_path: Path) -> None:
    await on_disk.create("project", "")
    _, store = await on_disk.open("project")
    await filled(store)
    await linked(store)
    await store.commit(batch(*(memory(f"filler {n} " * 50, id=f"f{n}") for n in range(50))))
    await store.redact([*refs("is", "was", "gone"), *LINKS], clean)
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert files
    assert [path.name for path in files if SECRET.encode() in path.read_bytes().lower()] == []
