import asyncio

import pytest

from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Change, RecordFilter
from everkept.core.transcripts import RewindEvent
from everkept.engines.memory.store import MemoryStore
from everkept.families.history.ingest import transcript_importer
from everkept.families.history.ingest.removal import forget_conversations
from everkept.families.history.model import TURN, build_conversation_id
from memory_transcripts import SOURCE, Written, code_of, contents, conversation, importer, texts, turn, turns
from records import DAY_ONE

CODE = "```py\ndef gone():\n    pass\n```"


async def clean(*written: Written) -> dict[str, object]:
    store = MemoryStore()
    await importer(store).import_transcripts(written)
    return await contents(store)


async def test_a_line_put_in_front_doubles_nothing(store: RecordStore) -> None:
    lines = [turn(str(n)) for n in range(1, 6)]
    written = Written("a", [*lines])
    await importer(store).import_transcripts([written])
    written.rewrite(turn("0", "in front"), *lines)
    imported = await importer(store).import_transcripts([written])
    assert (imported.total.turns, imported.total.turns_changed) == (1, 0)
    assert await texts(store) == ["in front", "1", "2", "3", "4", "5"]
    assert await contents(store) == await clean(written)


async def test_what_does_not_come_again_goes_with_its_code(store: RecordStore) -> None:
    written = Written("a", [turn("1"), turn("2", CODE), turn("3!"), turn("4")])
    await importer(store).import_transcripts([written])
    written.rewrite(turn("1"), turn("5", "instead"), turn("6!"))
    imported = await importer(store).import_transcripts([written])
    assert imported.total.turns_removed == 3
    assert await texts(store) == ["1", "instead", "6!"]
    assert await code_of(store, "2") == []
    assert all(each.text == "" for each in await store.scan(RecordFilter(kinds=(TURN,), deleted=True)))
    assert await contents(store) == await clean(written)


async def test_what_another_transcript_has_too_stays(store: RecordStore) -> None:
    original = Written("a", [turn("1"), turn("2!"), turn("3")])
    fork = Written("b", [turn("1", session="t"), turn("2!", session="t"), turn("4", session="t")])
    await importer(store).import_transcripts([original, fork])
    original.rewrite(turn("1"), turn("5"), turn("6!"))
    await importer(store).import_transcripts([original, fork])
    assert await texts(store) == ["1", "2!", "5", "6!"]
    fork.rewrite(turn("1", session="t"), turn("4", session="t"), turn("7", session="t"))
    await importer(store).import_transcripts([original, fork])
    assert await texts(store, "t") == ["4", "7"]
    original.rewrite(turn("8"), turn("9!"))
    await importer(store).import_transcripts([original, fork])
    assert await texts(store) == ["1", "8", "9!"]


async def test_a_conversation_that_is_gone_loses_its_name(store: RecordStore) -> None:
    other = turn("9", session="t")
    written = Written("a", [turn("1", "secret plans", project="/p"), turn("2!"), other])
    await importer(store).import_transcripts([written])
    written.rewrite(turn("8", session="t"), other)
    await importer(store).import_transcripts([written])
    talk = await conversation(store)
    assert (talk.name, talk.scope, talk.facets["turns"]) == (None, "", 0)
    assert await texts(store, "t") == ["8", "9"]


async def test_a_file_without_a_turn_takes_nothing_back(store: RecordStore) -> None:
    written = Written("a", [turn("1"), turn("2!")])
    await importer(store).import_transcripts([written])
    written.rewrite()
    await importer(store).import_transcripts([written])
    assert await texts(store) == ["1", "2!"]


async def test_a_reading_that_breaks_off_takes_nothing_back(store: RecordStore) -> None:
    written = Written("a", [turn(str(n)) for n in range(6)], portion=1)
    await importer(store).import_transcripts([written])
    written.rewrite(turn("7"), turn("8"))
    written.broken = OSError("gone")
    await importer(store).import_transcripts([written])
    assert len(await texts(store)) == 8
    written.broken = None
    written.modified += 1
    await importer(store).import_transcripts([written])
    assert await texts(store) == ["7", "8"]


async def test_a_rewind_goes_by_the_order_in_which_turns_came(store: RecordStore) -> None:
    late, early = turn("5", "late"), turn("1", "early")
    written = Written("a", [late, early, turn("6!")], portion=1)
    await importer(store).import_transcripts([written])
    assert await texts(store) == ["early", "late", "6!"]
    written.add(RewindEvent("s", "1"), turn("7"))
    await importer(store).import_transcripts([written])
    assert await texts(store) == ["late", "7"]
    assert [each.position for each in await turns(store)] == [0, 1]
    assert (await conversation(store)).name == "late"
    assert await contents(store) == await clean(written)


async def test_a_rewind_after_more_was_let_in_spares_it(store: RecordStore) -> None:
    lines = [turn(str(n)) for n in range(1, 6)]
    written = Written("a", [*lines])
    await importer(store).import_transcripts([written], since=lines[3].at)
    await importer(store).import_transcripts([written])
    written.add(RewindEvent("s", "4"), turn("6"))
    await importer(store).import_transcripts([written])
    assert await texts(store) == ["1", "2", "3", "6"]


async def test_what_vanishes_after_a_forgetting_goes_too(store: RecordStore) -> None:
    lines = [turn(str(n), session="kept") for n in range(1, 5)]
    written = Written("a", [turn("9", session="old"), *lines])
    await importer(store).import_transcripts([written])
    await forget_conversations(store, lambda: DAY_ONE, conversations=[build_conversation_id(SOURCE, "old")])
    written.rewrite(turn("9", session="old"), *lines[2:], turn("5", session="kept"))
    await importer(store).import_transcripts([written])
    assert await texts(store, "kept") == ["3", "4", "5"]


class Breaking(MemoryStore):
    """Breaks at the commit of a number, before or after it."""

    left = -1
    is_kept = False

    async def commit(self, batch: Batch) -> Change:
        self.left -= 1
        if self.left == 0 and not self.is_kept:
            raise ConnectionError
        change = await super().commit(batch)
        if self.left == 0:
            raise ConnectionError
        return change


@pytest.mark.parametrize("is_kept", [False, True])
async def test_wherever_it_is_interrupted_the_next_import_takes_the_rest_back(
    monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    monkeypatch.setattr(transcript_importer, "SORT_PAGE_RECORDS", 2)
    interrupted = 0
    for at in range(1, 14):
        store = Breaking()
        written = Written("a", [turn(str(n)) for n in range(1, 8)])
        await importer(store).import_transcripts([written])
        written.rewrite(turn("1"), turn("8", CODE), turn("7"), turn("9!"))
        store.left, store.is_kept = at, is_kept
        try:
            await importer(store).import_transcripts([written])
        except ConnectionError:
            interrupted += 1
        store.left = -1
        await importer(store).import_transcripts([written])
        assert await contents(store) == await clean(written)
    assert 3 < interrupted < 13


async def test_two_imports_of_what_was_rewritten_agree(store: RecordStore) -> None:
    written = Written("a", [turn(str(n)) for n in range(1, 9)], portion=1)
    await importer(store).import_transcripts([written])
    written.rewrite(turn("3"), turn("2"), turn("9"), turn("10"))
    await asyncio.gather(*(importer(store).import_transcripts([written]) for _ in range(3)))
    assert await contents(store) == await clean(written)


async def test_what_comes_again_after_a_rewinding_stays(store: RecordStore) -> None:
    copy, rewound, said = turn("1", session="t"), RewindEvent("t", "1"), turn("2", session="t")
    original, fork = Written("a", [turn("1")]), Written("b", [copy, rewound, said])
    await importer(store).import_transcripts([original, fork])
    fork.rewrite(copy, turn("3", session="t"), rewound, said)
    await importer(store).import_transcripts([original, fork])
    assert await texts(store, "t") == ["2"]
