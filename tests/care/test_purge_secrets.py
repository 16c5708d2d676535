from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from data_folders import holders
from everkept.care import purge
from everkept.care.purge import find_secrets, mask_secrets
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import USER_PROJECT
from everkept.core.records import Delete, Record, RecordFilter, RecordLink, Update
from everkept.core.text import compute_digest, compute_name_key
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import NotFound, ProjectOff
from everkept.families.memories.memory_identity import compute_text_key
from everkept.values import replace
from records import DAY_ONE, batch, entity, link, link_ref, memory, note, record_ref

BODY = "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3c"
TOKEN = "gh" + "p_" + BODY
OTHER_TOKEN = "gh" + "p_" + BODY[::-1]


@pytest.fixture
async def library() -> MemoryLibrary:
    ticks = count(DAY_ONE)
    return MemoryLibrary(lambda: next(ticks))


@pytest.fixture
async def store(library: MemoryLibrary) -> RecordStore:
    await library.create("shop", "")
    _, store = await library.open("shop")
    return store


def observation(text: str, **more: Any) -> Record:
    return note("House", text, name_key=compute_digest(text), **more)


async def places(library: Library, project: str | None = None) -> list[tuple[str, str, str]]:
    audit = await find_secrets(library, project)
    return [(f.project, f.id, f.place) for f in audit.findings]


async def test_secrets_are_found_in_records_live_or_deleted_and_in_the_log(
    library: MemoryLibrary, store: RecordStore
) -> None:
    await store.commit(
        batch(
            entity("House", text="plain"),
            observation(f"opens with {TOKEN}", id="one"),
            memory(f"password={TOKEN}", id="two"),
            memory(f"uses {TOKEN}", id="three"),
            memory("plain", id="four", tags=(TOKEN,), facets={"metadata": {"password": "hunter2"}}),
        )
    )
    await store.commit(batch(Update("two", {"text": "nothing"}, 1), Delete(record_ref("three"))))
    user = await library.open_user_store()
    await user.commit(batch(entity(f"House {TOKEN}", id="five")))
    assert await places(library) == [
        ("shop", "one", "text"),
        ("shop", "three", "text"),
        ("shop", "four", "tags"),
        ("shop", "four", "facets"),
        ("shop", "two", "old value of text"),
        (USER_PROJECT, "five", "name"),
    ]
    assert await places(library, USER_PROJECT) == [(USER_PROJECT, "five", "name")]
    with pytest.raises(NotFound):
        await places(library, "nowhere")


async def test_a_finding_tells_the_kind_and_the_words_around_but_not_the_secret(
    library: MemoryLibrary, store: RecordStore
) -> None:
    text = "long ago " * 50 + f"the deploy uses {TOKEN} since then " + "and so on " * 50
    await store.commit(batch(memory(text, id="one")))
    (finding,) = (await find_secrets(library)).findings
    assert (finding.kind, finding.secrets) == ("memory", ["github token"])
    assert "deploy uses [masked: github token] since" in finding.excerpt
    assert len(finding.excerpt) < 100
    assert BODY not in repr(finding)


async def test_masking_leaves_no_secret_and_a_second_look_finds_none(
    library: MemoryLibrary, store: RecordStore
) -> None:
    await store.commit(
        batch(
            entity(f"House {TOKEN}", id="House", name_key=f"house {TOKEN}".lower()),
            observation(f"opens with {TOKEN}", id="one"),
            memory("four", id="four", facets={"metadata": {"password": "hunter2", "n": 1}}),
            memory("safe", id="safe"),
        )
    )
    await store.commit(batch(Update("one", {"text": "nothing"}, 1)))
    masked = await mask_secrets(library, (await find_secrets(library)).findings)
    assert (masked.records, masked.complete) == (3, True)
    assert (await find_secrets(library)).findings == []
    assert BODY not in repr([await store.scan(RecordFilter(deleted=None)), await store.read_changes()])
    house, four = await store.get(["House", "four"])
    assert house.name == "House [masked: github token]"
    assert house.name_key == compute_name_key(house.name)
    assert four.facets == {"metadata": {"password": "[masked: password]", "n": 1}}


async def test_the_key_of_a_text_follows_it_so_that_it_is_not_stored_twice(
    library: MemoryLibrary, store: RecordStore
) -> None:
    text = f"opens with {TOKEN}"
    await store.commit(batch(entity("House"), observation(text, id="one")))
    await store.commit(batch(memory(text + "\r\n", id="two", name_key=compute_text_key(text))))
    await mask_secrets(library, (await find_secrets(library)).findings)
    one, two = await store.get(["one", "two"])
    assert one.name_key == compute_digest("opens with [masked: github token]")
    assert two.name_key == compute_text_key("opens with [masked: github token]")


async def test_two_texts_that_differ_in_their_secrets_alone_are_both_kept(
    library: MemoryLibrary, store: RecordStore
) -> None:
    await store.commit(
        batch(
            entity("House"),
            observation(f"opens with {TOKEN}", id="one"),
            observation(f"opens with {OTHER_TOKEN}", id="two"),
            observation("opens with [masked: github token]", id="there"),
            entity(f"Key {TOKEN}", id="three"),
            replace(entity(f"Key {OTHER_TOKEN}", id="four"), type="thing"),
        )
    )
    masked = await mask_secrets(library, (await find_secrets(library)).findings)
    assert masked.records == 4
    assert (await find_secrets(library)).findings == []
    records = await store.get(["one", "two", "there"])
    assert {record.text for record in records} == {"opens with [masked: github token]"}
    assert len({record.name_key for record in records}) == 3
    names = [record.name for record in await store.get(["three", "four"])]
    assert names == ["Key [masked: github token]", "Key [masked: github token] four"]


async def test_a_project_that_is_put_away_is_told_and_hides_no_other(
    library: MemoryLibrary, store: RecordStore
) -> None:
    await store.commit(batch(memory(f"uses {TOKEN}", id="one")))
    await library.create("away", "")
    await library.archive("away")
    audit = await find_secrets(library)
    assert audit.left_out == ["away"]
    assert len(audit.findings) == 1


async def test_relations_are_found_and_masked_and_none_is_lost(library: MemoryLibrary, store: RecordStore) -> None:
    await store.commit(
        batch(
            entity("a"),
            entity("b"),
            link("a", f"opens with {TOKEN}", "b", id="one"),
            link("a", f"opens with {OTHER_TOKEN}", "b", id="two"),
            link("a", "knows", "b", id="three", facets={"why": {"password": "hunter2"}}),
            link("b", f"was {TOKEN}", "a", id="four"),
        )
    )
    await store.commit(batch(Delete(link_ref("four"))))
    assert await places(library) == [
        ("shop", "one", "verb"),
        ("shop", "two", "verb"),
        ("shop", "three", "facets"),
        ("shop", "four", "verb"),
    ]
    masked = await mask_secrets(library, (await find_secrets(library)).findings)
    assert (masked.records, masked.links) == (0, 4)
    links = await store.get_links(["one", "two", "three", "four"], include_deleted=True)
    assert [link.verb for link in links] == [
        "opens with [masked: github token]",
        "opens with [masked: github token] two",
        "knows",
        "was [masked: github token]",
    ]
    assert links[2].facets == {"why": {"password": "[masked: password]"}}
    assert (await find_secrets(library)).findings == []


async def test_types_that_differ_in_their_secrets_alone_keep_two_entities(
    library: MemoryLibrary, store: RecordStore
) -> None:
    def of_type(entity_type: str, **more: Any) -> Record:
        variant = compute_name_key(entity_type)
        return replace(entity("Key", **more), type=entity_type, variant=variant)

    await store.commit(batch(of_type(TOKEN, id="one"), of_type(OTHER_TOKEN, id="two")))
    await mask_secrets(library, (await find_secrets(library)).findings)
    one, two = await store.get(["one", "two"])
    assert (one.name, one.type, one.variant) == ("Key", "[masked: github token]", "[masked: github token]")
    assert (two.name, two.name_key) == ("Key two", "key two")


async def test_a_secret_in_the_id_of_a_session_is_told_and_left(library: MemoryLibrary, store: RecordStore) -> None:
    place = f"session:{TOKEN}"
    await store.commit(
        batch(
            memory(f"uses {TOKEN}", id="one", session=TOKEN, variant=place),
            Record(TOKEN, "session", DAY_ONE, DAY_ONE, name_key=TOKEN),
        )
    )
    found = await find_secrets(library)
    assert [(f.id, f.place, f.in_id) for f in found.findings] == [
        ("one", "text", False),
        ("one", "session", True),
        (TOKEN, "id", True),
    ]
    assert (await mask_secrets(library, found.findings)).records == 1
    (one,) = await store.get(["one"])
    assert (one.text, one.session, one.variant) == ("uses [masked: github token]", TOKEN, place)
    again = await find_secrets(library)
    assert [f.place for f in again.findings] == ["session", "id"]
    assert (await mask_secrets(library, again.findings)).records == 0


async def test_a_long_log_is_read_in_pages(
    library: MemoryLibrary, store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "PAGE_CHANGES", 2)
    monkeypatch.setattr(purge, "PAGE_ITEMS", 3)
    ids = [f"m{n}" for n in range(10)]
    for few in (ids[:1], ids[1:6], ids[6:7], ids[7:]):
        await store.commit(batch(*(memory(f"uses {TOKEN}", id=i) for i in few)))
    assert [record_id for _, record_id, _ in await places(library)] == ids


@pytest.fixture
async def on_disk(tmp_path: Path) -> AsyncIterator[Library]:
    ticks = count(DAY_ONE)
    library = SqliteLibrary(tmp_path / "data", clock=lambda: next(ticks))
    yield library
    await library.close()


HELD = f"the {TOKEN} here"
CLEAN: dict[str, Any] = {
    "name": "House",
    "name_key": "house",
    "type": "thing",
    "text": "plain",
    "author": "ada",
    "tags": ("plain",),
    "facets": {"metadata": {"plain": ["text"]}},
    "variant": "=House",
}
FIELDS: dict[str, dict[str, Any]] = {
    "name": {"name": HELD, "name_key": compute_name_key(HELD), "variant": f"={HELD}"},
    "name and type": {
        "name": HELD,
        "type": HELD,
        "name_key": compute_name_key(HELD),
        "variant": f"{compute_name_key(HELD)}={HELD}",
    },
    "type": {"type": HELD, "variant": compute_name_key(HELD)},
    "text": {"text": HELD, "name_key": compute_digest(HELD)},
    "author": {"author": HELD},
    "tags": {"tags": (HELD, "other")},
    "a value of the facets": {"facets": {"metadata": {"a": [{"b": HELD}]}}},
    "a key of the facets": {"facets": {"metadata": {"a": {HELD: "x"}}}},
    "the variant alone": {"variant": f"unknown={HELD}"},
}


async def leaves_no_byte(library: Library, folder: Path) -> None:
    """Masks all, after which neither the files nor a second look have anything of it."""
    before = await find_secrets(library)
    assert holders(folder, BODY)
    await mask_secrets(library, before.findings)
    assert (await find_secrets(library)).findings == []
    assert holders(folder, BODY) == []


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("state", ["live", "deleted", "old"])
async def test_no_byte_of_a_secret_stays_whatever_field_has_it(
    on_disk: Library, tmp_path: Path, field: str, state: str
) -> None:
    await on_disk.create("shop", "")
    _, store = await on_disk.open("shop")
    await store.commit(batch(*(memory(f"filler {n} " * 40, id=f"f{n}") for n in range(30))))
    await store.commit(batch(replace(entity("House", id="one"), **CLEAN | FIELDS[field])))
    if state == "deleted":
        await store.commit(batch(Delete(record_ref("one"))))
    if state == "old":
        plain = {name: CLEAN[name] for name in FIELDS[field]}
        await store.commit(batch(Update("one", plain, 1)))
    await leaves_no_byte(on_disk, tmp_path / "data")
    assert await store.find_faults() == []


@pytest.mark.parametrize(
    "held",
    [link("a", HELD, "b"), link("a", "uses", "b", facets={"why": [HELD]}), link("a", "uses", "b", facets={HELD: 1})],
)
@pytest.mark.parametrize("is_deleted", [False, True])
async def test_no_byte_of_a_secret_in_a_relation_stays(
    on_disk: Library, tmp_path: Path, held: RecordLink, is_deleted: bool
) -> None:
    store = await on_disk.open_user_store()
    await store.commit(batch(entity("a"), entity("b"), replace(held, id="one")))
    if is_deleted:
        await store.commit(batch(Delete(link_ref("one"))))
    await leaves_no_byte(on_disk, tmp_path / "data")


async def test_a_project_that_is_off_is_left_out_and_refused_where_it_is_named(
    library: MemoryLibrary, store: RecordStore
) -> None:
    await store.commit(batch(memory(f"password={TOKEN}", id="one")))
    await library.set_off("shop", off=True)
    audit = await find_secrets(library)
    assert (audit.findings, audit.left_out) == ([], ["shop"])
    with pytest.raises(ProjectOff):
        await find_secrets(library, "shop")


async def test_of_what_is_an_accounts_alone_no_words_are_shown(library: MemoryLibrary) -> None:
    await library.create("@user (anna)", "")
    _, store = await library.open("@user (anna)")
    await store.commit(batch(memory(f"my diary: {TOKEN}", id="one")))
    await store.commit(batch(Update("one", {"text": f"the illness: {TOKEN}"}, 1)))
    audit = await find_secrets(library)
    assert len(audit.findings) == 2
    assert not any(word in repr(audit) for word in ("diary", "illness"))
    assert (await mask_secrets(library, audit.findings)).records == 1
    assert (await find_secrets(library)).findings == []
