from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from making import DAY_ONE, batch, entity, memory, note, record_ref
from recollect.app.auditing import find_secrets, mask_secrets
from recollect.core.ports import Library, RecordStore
from recollect.core.projects import USER
from recollect.core.records import Delete, Record, Update, Where
from recollect.core.text import digest, normalised
from recollect.engines.memory.library import MemoryLibrary
from recollect.errors import NotFound

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
    return note("House", text, name_key=digest(text), **more)


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
    user = await library.user()
    await user.commit(batch(entity(f"House {TOKEN}", id="five")))
    assert await places(library) == [
        ("shop", "one", "text"),
        ("shop", "three", "text"),
        ("shop", "four", "tags"),
        ("shop", "four", "facets"),
        ("shop", "two", "old value of text"),
        (USER, "five", "name"),
    ]
    assert await places(library, USER) == [(USER, "five", "name")]
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
    assert BODY not in repr([await store.scan(Where(deleted=None)), await store.changes()])
    house, four = await store.get(["House", "four"])
    assert house.name == "House [masked: github token]"
    assert house.name_key == normalised(house.name)
    assert four.facets == {"metadata": {"password": "[masked: password]", "n": 1}}


async def test_the_key_of_a_text_follows_it_so_that_it_is_not_stored_twice(
    library: MemoryLibrary, store: RecordStore
) -> None:
    text = f"opens with {TOKEN}"
    await store.commit(batch(entity("House"), observation(text, id="one")))
    folded = memory(text, id="two", name_key=digest(normalised(text)))
    await store.commit(batch(folded))
    await mask_secrets(library, (await find_secrets(library)).findings)
    one, two = await store.get(["one", "two"])
    assert one.name_key == digest("opens with [masked: github token]")
    assert two.name_key == digest(normalised("opens with [masked: github token]"))


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
