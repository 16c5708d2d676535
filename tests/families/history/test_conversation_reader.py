from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conversations import Written, assistant, tell, user
from everkept.core.answers import encode_cursor
from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Delete, RecordFilter, Ref
from everkept.engines.memory.store import MemoryStore
from everkept.errors import AmbiguousName, InvalidInput, NotFound
from everkept.families.history.conversation_reader import (
    MAX_SINGLE_TURN_CHARACTERS,
    MAX_TURN_CHARACTERS,
    build_page,
    read_turns,
    resolve_target,
)
from everkept.families.history.model import CODE, build_block_id, build_conversation_id
from everkept.families.history.search_answers import ConversationPage
from records import DAY_ONE


async def page(store: RecordStore, name: str, limit: int = 20, cursor: str | None = None) -> ConversationPage:
    place = await resolve_target(store, name)
    return build_page(place, await read_turns(store, place, limit, cursor))


def texts(read_page: ConversationPage) -> list[str]:
    return [turn.text for turn in read_page.turns]


async def told(store: RecordStore, count: int, **more: Any) -> list[str]:
    return await tell(store, "s1", *(f"turn {number}" for number in range(count)), **more)


async def test_a_conversation_is_read_from_its_beginning(store: RecordStore) -> None:
    await told(store, 3, title="Three turns", branch="main", continues="s0", part_of="boss")
    answer = await page(store, build_conversation_id("claude-code", "s1"))
    assert texts(answer) == ["turn 0", "turn 1", "turn 2"]
    assert (answer.title, answer.branch, answer.source) == ("Three turns", "main", "claude-code")
    assert (answer.continues, answer.part_of) == ("s0", "boss")
    assert answer.started == "2023-11-14T22:13:20.000Z"
    assert answer.ended == "2023-11-14T22:15:20.000Z"
    assert answer.total_turns == 3
    assert (answer.previous_cursor, answer.next_cursor) == (None, None)


async def test_a_turn_opens_its_conversation_around_it(store: RecordStore) -> None:
    ids = await told(store, 20)
    answer = await page(store, ids[10], limit=5)
    assert texts(answer) == [f"turn {number}" for number in range(8, 13)]
    assert [turn.id for turn in answer.turns if turn.is_asked] == [ids[10]]


@pytest.mark.parametrize(("place", "first", "last"), [(0, 0, 4), (1, 0, 4), (18, 15, 19), (19, 15, 19)])
async def test_at_an_end_of_the_conversation_the_page_is_as_full(
    store: RecordStore, place: int, first: int, last: int
) -> None:
    ids = await told(store, 20)
    answer = await page(store, ids[place], limit=5)
    assert texts(answer) == [f"turn {number}" for number in range(first, last + 1)]


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(2, 12), st.data())
async def test_pages_lead_through_the_whole_conversation_both_ways(count: int, limit: int, data: st.DataObject) -> None:
    store = MemoryStore()
    ids = await told(store, count)
    gone = data.draw(st.sets(st.sampled_from(ids), max_size=count - 1))
    if gone:
        steps = tuple(Delete(Ref("record", name)) for name in sorted(gone))
        await store.commit(Batch(steps, DAY_ONE, "test", derived=True))
    left = [name for name in ids if name not in gone]
    start = data.draw(st.sampled_from(left))
    middle = await page(store, start, limit)
    seen = [turn.id for turn in middle.turns]
    cursor = middle.next_cursor
    while cursor:
        following = await page(store, start, limit, cursor)
        seen += [turn.id for turn in following.turns]
        cursor = following.next_cursor
    cursor = middle.previous_cursor
    while cursor:
        earlier = await page(store, start, limit, cursor)
        seen = [turn.id for turn in earlier.turns] + seen
        cursor = earlier.previous_cursor
    assert seen == left
    assert middle.total_turns == len(left)


async def test_a_long_turn_is_clipped_among_others_and_whole_alone(store: RecordStore) -> None:
    long = "x" * (MAX_SINGLE_TURN_CHARACTERS + 10)
    ids = await tell(store, "s1", "short", long, "after")
    answer = await page(store, ids[1])
    assert [turn.clipped for turn in answer.turns] == [None, len(long) - MAX_TURN_CHARACTERS, None]
    assert answer.note is not None
    alone = await page(store, ids[1], limit=1)
    assert (len(alone.turns[0].text), alone.turns[0].clipped) == (MAX_SINGLE_TURN_CHARACTERS, 10)
    rest = await page(store, ids[1], limit=1, cursor=alone.next_cursor)
    assert alone.turns[0].text + rest.turns[0].text == long
    assert rest.turns[0].clipped is None
    following = await page(store, ids[1], limit=1, cursor=rest.next_cursor)
    assert texts(following) == ["after"]


async def test_a_turn_tells_its_files_tools_model_and_code(store: RecordStore) -> None:
    code = (Written("x = 1", "python", "a.py"), Written("y", None))
    facets = {"files": ["a.py"], "tools": ["Edit"], "model": "sonnet"}
    [_, turn, _] = await tell(store, "s1", user("go"), assistant("done: y", code=code, facets=facets), user("thanks"))
    answer = await page(store, turn)
    shown = answer.turns[1]
    assert (shown.files, shown.tools, answer.models) == (["a.py"], ["Edit"], ["sonnet"])
    assert [(piece.language, piece.file, piece.text) for piece in shown.code or ()] == [
        ("python", "a.py", "x = 1"),  # a tool wrote it: the text does not show it
        (None, None, None),
    ]
    asked = await page(store, build_block_id(turn, 0))
    assert [piece.text for piece in asked.turns[1].code or ()] == ["x = 1", None]
    shown = await page(store, build_block_id(turn, 1))
    assert [piece.text for piece in shown.turns[1].code or ()] == ["x = 1", "y"]
    assert shown.turns[1].type == "conversation"
    assert asked.turns[1].is_asked


async def test_a_session_is_known_by_the_id_that_its_program_gave_it(store: RecordStore) -> None:
    await told(store, 2)
    assert (await page(store, " s1 ")).total_turns == 2


async def test_a_session_of_two_programs_is_told_apart(store: RecordStore) -> None:
    await told(store, 2)
    await told(store, 3, source="codex")
    with pytest.raises(AmbiguousName) as refused:
        await page(store, "s1")
    forms = [candidate["use"] for candidate in refused.value.facts["candidates"]]
    assert sorted([(await page(store, form)).total_turns for form in forms]) == [2, 3]


@pytest.mark.parametrize("name", ["nobody", "turn_0", "codex:s1", ":"])
async def test_an_unknown_id_is_not_found_and_the_error_says_where_ids_are(store: RecordStore, name: str) -> None:
    await told(store, 2)
    with pytest.raises(NotFound) as missing:
        await page(store, name)
    assert "recall_previous_discussions" in (missing.value.hint or "")


async def test_of_a_peers_result_the_error_says_whose_it_is_and_where_it_can_be_read(store: RecordStore) -> None:
    with pytest.raises(NotFound) as missing:
        await page(store, "anna:turn_0")
    assert 'the peer "anna"' in (missing.value.hint or "")
    assert "id is turn_0" in (missing.value.hint or "")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("marker", "a marker that excludes it"),
        ("forgotten", "was forgotten"),
        ("excluded", "excluded folder.*everkept history include"),
    ],
)
async def test_a_conversation_that_is_left_out_says_why(store: RecordStore, reason: str, words: str) -> None:
    await tell(store, "s1", left_out=reason)
    for name in ("s1", "s1-chunk-0"):
        with pytest.raises(NotFound, match=words):
            await page(store, name)


@pytest.mark.parametrize(
    ("chunk", "turn"), [("s1-chunk-0", 0), ("s1-chunk-4", 4), ("claude-code:s1-chunk-2", 3), ("s1-chunk-99", 5)]
)
async def test_a_chunk_of_a_session_opens_its_turn_or_the_nearest(store: RecordStore, chunk: str, turn: int) -> None:
    ids = await told(store, 6)
    await store.commit(Batch((Delete(Ref("record", ids[2])),), DAY_ONE, "import", derived=True))
    place = await resolve_target(store, chunk)
    assert place.is_chunk
    assert place.turn is not None
    assert place.turn.id == ids[turn]


async def test_a_session_may_be_named_as_a_chunk_is(store: RecordStore) -> None:
    await tell(store, "s1-chunk-2", "one", "two")
    place = await resolve_target(store, "s1-chunk-2")
    assert place.turn is None
    with pytest.raises(NotFound):
        await resolve_target(store, "s2-chunk-2")


async def test_a_cursor_of_another_conversation_is_refused(store: RecordStore) -> None:
    await told(store, 9)
    await tell(store, "s2", "one", "two")
    cursor = (await page(store, "s1", limit=2)).next_cursor
    for wrong in (cursor, encode_cursor("text", "turn", 4), encode_cursor("from", "x", 1)):
        with pytest.raises(InvalidInput, match="next_cursor"):
            await page(store, "s2", cursor=wrong)


async def test_symbols_cannot_be_read(store: RecordStore) -> None:
    await tell(store, "s1", assistant("code", code=(Written("x", defines=("login",)),)))
    [symbol] = [r for r in await store.scan(RecordFilter()) if r.kind == "symbol"]
    with pytest.raises(NotFound):
        await page(store, symbol.id)
    assert [r.kind for r in await store.scan(RecordFilter())].count(CODE) == 1
