import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.short_ids import SHOWN_CHARACTERS, find_by_prefix, require_one_id, shorten_ids
from everkept.engines.memory.store import MemoryStore
from everkept.errors import AmbiguousId
from records import batch, entity

names = st.lists(st.text("AB", min_size=SHOWN_CHARACTERS, max_size=12), max_size=20)


@given(names)
def test_short_ids_distinguish_ids_of_one_length(ids: list[str]) -> None:
    ids = [each.ljust(14, "C") for each in ids]
    short = shorten_ids(ids)
    assert len({*short.values()}) == len({*ids})
    assert all(each.startswith(shown) and len(shown) >= SHOWN_CHARACTERS for each, shown in short.items())


def test_a_short_id_has_eight_characters_after_its_head() -> None:
    assert shorten_ids(["memory:01M7RBEDYYQFG0", "turn_0112345678"], "memory:") == {
        "memory:01M7RBEDYYQFG0": "01M7RBED",
        "turn_0112345678": "turn_01123456",
    }


async def test_too_few_characters_find_nothing() -> None:
    store = MemoryStore()
    await store.commit(batch(entity("Adalbert")))
    assert await find_by_prefix([store], "Ada", ("",), ("entity",)) == []
    found = await find_by_prefix([store], "Adal", ("", "e_"), ("entity",))
    assert [record.id for _, record in found] == ["Adalbert"]


async def test_an_ambiguous_prefix_lists_its_matches() -> None:
    store = MemoryStore()
    await store.commit(batch(entity("Adalbert"), entity("Adaline")))
    found = [record for _, record in await find_by_prefix([store], "Adal", ("",), ("entity",))]
    with pytest.raises(AmbiguousId, match=r"Adalbert .* Adaline") as error:
        require_one_id("entity", "Adal", found)
    assert [each["id"] for each in error.value.facts["candidates"]] == ["Adalbert", "Adaline"]
