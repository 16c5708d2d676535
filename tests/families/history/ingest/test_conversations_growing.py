from collections.abc import Sequence
from pathlib import Path

import pytest

from everkept.core.ports import PurgeResult, RecordStore
from everkept.core.records import Batch, Change, RecordFilter, Ref
from everkept.core.transcripts import Snippet
from everkept.engines.memory.store import MemoryStore
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.families.history.ingest.removal import forget_conversations
from everkept.families.history.model import build_conversation_id
from memory_transcripts import SOURCE, Written, code_of, contents, conversation, importer, texts, turn
from processes import said_by
from records import DAY_ONE

MARKER = "<!-- everkept: do not index -->"
SAID = "so far\n```py\ndef kept():\n    pass"
MORE = f"{SAID}\n    hush()\n```"
EDIT = Snippet("def known(): pass", file="a.py")
WHISPER = Snippet("def hushed(): pass", file="hush.py")


def original() -> Written:
    return Written("a", [turn("1"), turn("2!", SAID, snippets=(EDIT,))])


def resumed(session: str = "t", text: str = MORE, portion: int = 1) -> Written:
    """With copies, the last of which goes on."""
    copies = [turn("1", session=session)]
    grown = turn("2!", text, session=session, snippets=(EDIT, WHISPER), files=("hush.py",))
    return Written(session, [*copies, grown], portion=portion)


async def untouched() -> dict[str, object]:
    """What the original alone makes."""
    store = MemoryStore()
    await importer(store).import_transcripts([original()])
    found = await contents(store)
    return {name: each for name, each in found.items() if not name.startswith("file_")}


async def kept(store: RecordStore) -> dict[str, object]:
    """But for how far was read, and that a conversation was left out."""
    left_out = build_conversation_id(SOURCE, "t")
    found = await contents(store)
    return {name: each for name, each in found.items() if not name.startswith("file_") and name != left_out}


@pytest.mark.parametrize("portion", [1, 9])
@pytest.mark.parametrize("is_later", [False, True])
async def test_what_a_marked_conversation_added_to_a_turn_of_another_goes(
    store: RecordStore, portion: int, is_later: bool
) -> None:
    first, second = original(), resumed(portion=portion)
    if is_later:
        await importer(store).import_transcripts([first, second])
        assert await texts(store) == ["1", MORE]
    second.add(turn("3", MARKER, session="t"))
    await importer(store).import_transcripts([first, second])
    assert await kept(store) == await untouched()
    assert "hush" not in str(await store.scan(RecordFilter(deleted=None)))


async def test_what_a_forgotten_conversation_added_to_a_turn_of_another_goes(store: RecordStore) -> None:
    second = resumed()
    second.add(turn("3", session="t"))
    await importer(store).import_transcripts([original(), second])
    assert await texts(store) == ["1", MORE]
    await forget_conversations(store, lambda: DAY_ONE, conversations=[build_conversation_id(SOURCE, "t")])
    assert await kept(store) == await untouched()
    assert "hush" not in str(await store.scan(RecordFilter(deleted=None)))


@pytest.mark.parametrize("is_later", [False, True])
async def test_no_copy_brings_back_what_was_added(store: RecordStore, is_later: bool) -> None:
    first, second, third = original(), resumed(), resumed("u", f"{MORE}\nhush again")
    third.add(turn("4", session="u"))
    if is_later:
        await importer(store).import_transcripts([first, second, third])
        assert (await texts(store))[1] == f"{MORE}\nhush again"
    second.add(turn("3", MARKER, session="t"))
    await importer(store).import_transcripts([first, second, third])
    assert await texts(store) == ["1", SAID]
    assert await texts(store, "u") == ["4"]
    assert "hush" not in str([each.text for each in await store.scan(RecordFilter(deleted=None))])


async def test_what_another_added_before_stays(store: RecordStore) -> None:
    first, second, third = original(), resumed(), resumed("u", f"{MORE}\nunwise")
    await importer(store).import_transcripts([first, second, third])
    third.add(turn("4", MARKER, session="u"))
    await importer(store).import_transcripts([first, second, third])
    assert await texts(store) == ["1", MORE]
    assert len(await code_of(store, "2!")) == 3
    second.add(turn("3", MARKER, session="t"))
    await importer(store).import_transcripts([first, second, third])
    assert await kept_but_for("u", store) == await untouched()


async def kept_but_for(session: str, store: RecordStore) -> dict[str, object]:
    found = await kept(store)
    found.pop(build_conversation_id(SOURCE, session))
    return found


async def test_what_the_turn_s_own_conversation_says_too_stays(store: RecordStore) -> None:
    first, second = original(), resumed(text=f"{MORE}\nunwise")
    await importer(store).import_transcripts([first, second])
    first.lines[-1] = turn("2!", MORE, snippets=(EDIT,))
    first.modified += 1
    await importer(store).import_transcripts([first, second])
    assert await texts(store) == ["1", f"{MORE}\nunwise"]
    second.add(turn("3", MARKER, session="t"))
    await importer(store).import_transcripts([first, second])
    assert await texts(store) == ["1", MORE]
    first.lines[-1] = turn("2!", f"{MORE}\nand on", snippets=(EDIT,))
    first.modified += 1
    await importer(store).import_transcripts([first, second])
    assert await texts(store) == ["1", f"{MORE}\nand on"]


async def test_a_conversation_is_not_called_what_another_added(store: RecordStore) -> None:
    first = Written("a", [turn("1", "how to")])
    second = Written("b", [turn("1", "how to hush", session="t"), turn("2", session="t")])
    await importer(store).import_transcripts([first, second])
    first.add(turn("0", "earlier", author="assistant"))
    await importer(store).import_transcripts([first, second])
    assert (await conversation(store)).name == "how to"
    assert await texts(store) == ["earlier", "how to hush"]


class Dying(MemoryStore):
    """Fails before the act of a number; a purge and a commit are one each."""

    left = 0

    async def purge(self, refs: Sequence[Ref]) -> PurgeResult:
        self._die()
        return await super().purge(refs)

    async def commit(self, batch: Batch) -> Change:
        self._die()
        return await super().commit(batch)

    def _die(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise ConnectionError


async def test_wherever_it_is_interrupted_the_next_import_takes_it_back() -> None:
    deaths = 0
    for at in range(1, 20):
        store = Dying()
        first, second = original(), resumed()
        await importer(store).import_transcripts([first, second])
        second.add(turn("3", MARKER, session="t"))
        store.left = at
        try:
            await importer(store).import_transcripts([first, second])
        except ConnectionError:
            deaths += 1
        store.left = 0
        await importer(store).import_transcripts([first, second])
        assert (await conversation(store, "t")).tags == ()
        assert await kept(store) == await untouched()
        assert "hush" not in str(await store.scan(RecordFilter(deleted=None)))
        assert "grown" not in str(await store.scan(RecordFilter(deleted=None)))
    assert 3 < deaths < 19


async def test_no_byte_of_what_was_added_stays_on_the_disk(tmp_path: Path) -> None:
    library = SqliteLibrary(tmp_path)
    store = await library.open_history_store()
    edit = Snippet("def wombatical(): pass", file="zebroid.py", replaced="quaggish = 1")
    grown = turn("2!", f"{SAID}\na platypodal secret", session="t", snippets=(EDIT, edit))
    second = Written("b", [turn("1", session="t"), grown])
    await importer(store).import_transcripts([original(), second])
    words = ["wombatical", "zebroid", "quaggish", "platypodal"]
    assert said_by("files_with", tmp_path, *words)
    second.add(turn("3", MARKER, session="t"))
    await importer(store).import_transcripts([original(), second])
    assert said_by("files_with", tmp_path, *words) == []
    assert await kept(store) == await untouched()
    assert await store.find_faults() == []
    await library.close()
