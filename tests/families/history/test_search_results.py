from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conversations import Said, Written, assistant, tell, user
from everkept.core.ports import RecordStore
from everkept.core.records import RecordFilter
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.families.history.model import TURN
from everkept.families.history.search_answers import MemoryResult, flatten_code
from everkept.families.history.search_results import (
    HIGHLIGHT_MARK,
    MAX_CODE_CHARACTERS,
    MAX_CONTENT_CHARACTERS,
    MAX_NEIGHBOR_CHARACTERS,
    MAX_PHRASE_CHARACTERS,
    MAX_PHRASES,
    build_results,
    find_highlights,
    read_nearby_turns,
)
from everkept.retrieval.profile import SearchHit
from sqlite_watch import watched


async def test_what_stands_around_a_page_of_hits_is_read_in_two_short_questions(tmp_path: Path) -> None:
    with watched() as watch:
        library = SqliteLibrary(tmp_path)
        store = await library.open_history_store()
        for number in range(10):
            await tell(store, f"s{number}", *(f"Turn {turn} of {number}" for turn in range(8)))
        hits = await store.scan(RecordFilter(kinds=(TURN,)), limit=80)
        watch.begin()
        around = await read_nearby_turns(store, hits[5::8])
        assert len(watch.questions) == 2
        assert watch.elsewhere == []
        await library.close()
    assert len(around.conversations) == 10
    assert {len(turns) for turns in around.turns.values()} == {7}


async def shown(store: RecordStore, ids: list[str], query: str) -> list[MemoryResult]:
    records = await store.get(ids)
    around = await read_nearby_turns(store, records)
    return build_results([SearchHit(record, 0.12345) for record in records], query, around)


@pytest.mark.parametrize("words", ["needle", "needles"])
async def test_a_long_turn_is_shown_around_what_was_asked(store: RecordStore, words: str) -> None:
    text = "hay " * 2_000 + "the needle lies here " + "hay " * 2_000
    [turn] = await tell(store, "s1", text)
    [result] = await shown(store, [turn], words)
    assert "the needle lies here" in result.content
    assert len(result.content) <= MAX_CONTENT_CHARACTERS
    assert "the **needle** lies here" in result.highlights[0]


async def test_code_may_be_longer_and_begins_at_the_line_that_answers(store: RecordStore) -> None:
    code = "x = 1\n" * 400 + "def needle():\n" + "y = 2\n" * 400
    await tell(store, "s1", user("?"), assistant("!", code=(Written(code),)))
    record = next(r for r in await store.scan(RecordFilter()) if r.kind == "code")
    [result] = await shown(store, [record.id], "needle")
    assert result.content.startswith("… def needle():")
    assert MAX_CONTENT_CHARACTERS < len(result.content) <= MAX_CODE_CHARACTERS


async def test_the_turns_beside_are_clipped(store: RecordStore) -> None:
    ids = await tell(store, "s1", "before " * 100, "here", "after")
    [result] = await shown(store, [ids[1]], "here")
    assert len(result.context.before or "") == MAX_NEIGHBOR_CHARACTERS
    assert result.context.after == "after"
    assert result.relevance_score == 0.123


async def test_participants_are_those_of_the_whole_conversation(store: RecordStore) -> None:
    talk = [Said("Ada", "one"), Said("Bo", "two"), *(Said("Ada", f"more {n}") for n in range(9))]
    ids = await tell(store, "s1", *talk)
    [result] = await shown(store, [ids[9]], "here")
    assert result.context.participants == ["Ada", "Bo"]


async def test_turns_of_another_program_do_not_stand_beside(store: RecordStore) -> None:
    [turn] = await tell(store, "s1", "alone")
    await tell(store, "s1", "zero", "one", source="codex")
    [result] = await shown(store, [turn], "alone")
    assert (result.context.before, result.context.after) == (None, None)


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("We fixed the login form.", "login forms", ["We fixed the **login** **form**."]),
        ("Call `refreshToken()` first.", "refresh token", ["Call `**refreshToken**()` first."]),
        ("Nothing of it.", "login", []),
        ("The end", "the", []),
        ("One login. Two logins. A form.", "login form", ["**login**", "A **form**."]),
        ("(login)", "login", ["(**login**)"]),
        ("文字化けの原因を調べて", "文字化け", ["**文字化け**の原因を調べて"]),
        ("ファイルで日本語が壊れます", "日本語が壊れる", ["ファイルで**日本語が壊れ**ます"]),
        ("key: [masked: anthropic key]", "anthropic key", ["**key**:"]),
        ("Wie war das mit dem Login", "das Login", ["Wie war das mit dem **Login**"]),
        ("apply(login, user.form)", "login apply", ["**apply**(**login**, user.form)"]),
        ("Kept in S3 for 3 days", "3", ["Kept in S3 for **3** days"]),
        ("def login():\n    check_form()", "login", ["def **login**():"]),
    ],
)
def test_phrases_that_answer_are_shown_with_their_words_marked(text: str, query: str, expected: list[str]) -> None:
    found = find_highlights(text, query)
    assert len(found) == len(expected)
    assert all(part in phrase for part, phrase in zip(expected, found, strict=True))


def test_a_long_line_is_shown_around_the_words() -> None:
    [phrase] = find_highlights("word " * 60 + "the login form " + "word " * 60, "login form")
    assert phrase.startswith("… word")
    assert "the **login** **form** word" in phrase
    assert phrase.endswith("…")
    assert len(phrase.replace(HIGHLIGHT_MARK, "")) <= MAX_PHRASE_CHARACTERS + 5


def test_of_many_phrases_those_with_most_words_are_kept_in_the_order_of_the_text() -> None:
    text = "A token. The refresh token expired. An expired page. A header. Cookies here."
    found = find_highlights(text, "refresh token expired header cookies page")
    assert found == ["The **refresh** **token** **expired**.", "An **expired** **page**.", "A **header**."]


@settings(deadline=None)
@given(st.text(max_size=300), st.text(max_size=40))
def test_highlights_stand_in_the_text(text: str, query: str) -> None:
    found = find_highlights(text, query)
    assert len(found) <= MAX_PHRASES
    written = "".join(text.split())
    for phrase in found:
        plain = phrase.removeprefix("… ").removesuffix("…")
        assert "".join(plain.split()).replace(HIGHLIGHT_MARK, "") in written.replace(HIGHLIGHT_MARK, "")


def test_a_block_of_code_on_one_line_is_its_first_line() -> None:
    assert flatten_code("So: ```go\n\tx := 1\n\ty := 2\n``` done") == "So: `x := 1` …  done"
    assert flatten_code("cut ~~~\nx\ny") == "cut `x` … "
    assert flatten_code("no code, `x` alone") == "no code, `x` alone"
