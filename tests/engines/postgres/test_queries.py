"""Questions whose answers PostgreSQL would give otherwise, if one let it."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import postgres_server
from everkept.core.records import RecordFilter
from everkept.engines.memory.store import MemoryStore
from everkept.engines.postgres.queries import MAX_PARTS
from everkept.engines.postgres.store import PostgresStore
from everkept.values import replace
from examples import examples
from postgres_libraries import library_over
from records import batch, entity, link, memory

CASED = "aAßẞöÖéÉǆǅǄкКıIi日%_\\^]-[ .*1"


@pytest.mark.parametrize(
    ("text", "part", "is_found"),
    [
        ("Größe", "GRÖ", True),
        ("GRÖẞE", "größe", True),
        ("ǅ", "ǆ", True),
        ("ΟΔΟΣ ΣΟΦΟΣ", "οδος σο", True),
        ("Σίσυφος", "σίσυφοσ", False),
        ("日本語", "本", True),
        ("100% [sure]", "% [S", True),
        ("a.b", "a?b", False),
        ("a_b\\c", "_B\\C", True),
        ("é", "e", False),
        ("^é$", "^É$", True),
        ("ab", "", True),
    ],
)
async def test_a_part_is_found_whatever_its_case_in_every_script(
    store: PostgresStore, text: str, part: str, is_found: bool
) -> None:
    await store.commit(batch(memory(text, id="m", type=None), entity("e"), link("m", text, "e")))
    found = [match.id for match in await store.match_text(part, RecordFilter(kinds=("memory",)), 9)]
    assert found == (["m"] if is_found else [])
    links = await store.scan_links(deleted=None, containing=part)
    assert [x.target for x in links] == (["e"] if is_found else [])


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow])
@given(
    texts=st.lists(st.text(CASED, max_size=6), min_size=1, max_size=5, unique=True),
    parts=st.lists(st.text(CASED, min_size=1, max_size=3), min_size=1, max_size=6),
)
def test_parts_of_texts_are_found_as_the_reference_engine_finds_them(texts: list[str], parts: list[str]) -> None:
    async def compare() -> None:
        library, reference = library_over(postgres_server.shared().database()), MemoryStore()
        store = await library.open_user_store()
        records = [memory(text, id=f"m{number}") for number, text in enumerate(texts)]
        for each in (store, reference):
            await each.commit(batch(*records))
        for part in parts:
            expected = await reference.match_text(part, RecordFilter(), 9)
            assert await store.match_text(part, RecordFilter(), 9) == expected, part
        await library.close()

    asyncio.run(compare())


async def test_names_come_in_the_order_of_their_characters(store: PostgresStore) -> None:
    names = ["a", "B", "ä", "Z", "z", "_", "-", " ", "é", "1", "10", "2", "日", "🎉", "a b", "ab"]
    await store.commit(batch(*(entity(name, name_key=name) for name in names)))
    found = [record.id for record in await store.scan(RecordFilter(), order="name")]
    assert found == sorted(names)
    for size in (1, 3):
        seen: list[str] = []
        while page := await store.scan(
            RecordFilter(), order="name", after=(seen[-1], "") if seen else None, limit=size
        ):
            seen += [record.id for record in page]
        assert seen == sorted(names)


@pytest.mark.parametrize("order", ["age", "newest"])
async def test_a_question_in_parts_has_the_answer_of_the_whole(store: PostgresStore, order: Any) -> None:
    kinds, scopes = [f"k{n}" for n in range(6)], [f"s{n}" for n in range(4)]
    assert len(kinds) * len(scopes) > MAX_PARTS
    await store.commit(
        batch(*(replace(memory(f"m{n}"), kind=kinds[n % 6], scope=scopes[n * 7 % 4]) for n in range(60)))
    )
    for some_kinds in (kinds[:1], kinds[:3], kinds):
        for some_scopes in ((), scopes[:1], scopes[:3], scopes):
            where = RecordFilter(kinds=tuple(some_kinds), scopes=tuple(some_scopes))
            whole = await store.scan(where, order=order)
            for limit in (1, 5, 100):
                part = await store.scan(where, order=order, limit=limit)
                assert part == whole[:limit]
