from collections.abc import Sequence
from pathlib import Path

import pytest

from everkept.core.ports import PurgeResult, RecordStore
from everkept.core.records import Batch, Change, RecordFilter, Ref
from everkept.core.transcripts import Snippet
from everkept.engines.memory.store import MemoryStore
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import InvalidInput
from everkept.families.history.ingest import removal
from everkept.families.history.ingest.conversations import PURGING_TAG, get_exclusion
from everkept.families.history.ingest.removal import forget_conversations
from everkept.families.history.model import SYMBOL, TURN, build_conversation_id
from everkept.values import replace
from memory_transcripts import SOURCE, Written, contents, conversation, importer, texts, turn
from processes import acting, said_by
from records import DAY_ONE

CODE = "```py\ndef {0}():\n    shared()\n```"


def clock() -> int:
    return DAY_ONE


def talks() -> list[Written]:
    return [
        Written("a", [turn("1", CODE.format("mine"), project="/p/x"), turn("2!", project="/p/x")]),
        Written("b", [turn("3", CODE.format("yours"), session="t", project="/q")]),
    ]


async def test_a_project_is_forgotten_with_all_below_it(store: RecordStore) -> None:
    written = talks()
    await importer(store).import_transcripts(written)
    told: list[tuple[int, int]] = []
    done = await forget_conversations(store, clock, projects=["/p"], report=lambda *progress: told.append(progress))
    assert (done.conversations, done.turns, done.code) == (1, 2, 1)
    assert told[-1] == (2, 2)
    talk = await conversation(store)
    assert talk.facets == {"source": "test", "left_out": "forgotten"}
    assert (talk.name, talk.scope, talk.tags) == (None, "", ())
    assert "/p" not in str(await store.scan(RecordFilter(deleted=None)))
    assert await texts(store, "t") == [CODE.format("yours")]


async def test_what_is_forgotten_does_not_come_back(store: RecordStore) -> None:
    written = talks()
    await importer(store).import_transcripts(written)
    await forget_conversations(store, clock, projects=["/p"])
    written[0].add(turn("4", project="/p/x"))
    await importer(store).import_transcripts(written)
    assert await texts(store) == []


async def test_a_conversation_is_forgotten_by_its_id(store: RecordStore) -> None:
    await importer(store).import_transcripts(talks())
    done = await forget_conversations(store, clock, conversations=[build_conversation_id(SOURCE, "t")])
    assert (done.conversations, done.turns) == (1, 1)
    assert (await conversation(store, "t")).facets["left_out"] == "forgotten"
    assert len(await texts(store)) == 2


async def test_symbols_go_once_nothing_speaks_of_them(store: RecordStore) -> None:
    written = [
        Written("a", [turn("1", CODE.format("first"), project="/p")]),
        Written("b", [turn("2", CODE.format("second"), session="t", project="/p")]),
    ]
    await importer(store).import_transcripts(written)
    await forget_conversations(store, clock, conversations=[build_conversation_id(SOURCE, "s")])
    names = {each.name for each in await store.scan(RecordFilter(kinds=(SYMBOL,)))}
    assert "first" not in names
    assert {"second", "shared"} <= names
    await forget_conversations(store, clock, projects=["/p"])
    assert await store.scan(RecordFilter(kinds=(SYMBOL,), deleted=None)) == []


async def test_turns_of_a_project_go_from_other_conversations_too(store: RecordStore) -> None:
    lines = [turn("1", project="/w"), turn("2", project="/w/p"), turn("3", project="/w")]
    written = Written("a", lines)
    await importer(store).import_transcripts([written])
    done = await forget_conversations(store, clock, projects=["/w/p"])
    assert (done.conversations, done.turns) == (0, 1)
    assert await texts(store) == ["1", "3"]
    written.lines[0] = turn("1", "1, rewritten", project="/w")
    written.modified += 1
    await importer(store).import_transcripts([written])
    assert await texts(store) == ["1, rewritten", "3"]


async def test_an_unknown_conversation_is_refused_and_nothing_goes(store: RecordStore) -> None:
    await importer(store).import_transcripts(talks())
    before = await contents(store)
    with pytest.raises(InvalidInput):
        await forget_conversations(store, clock, conversations=[build_conversation_id(SOURCE, "s"), "conv_none"])
    assert await contents(store) == before


async def test_a_project_that_nobody_worked_in_forgets_nothing(store: RecordStore) -> None:
    await importer(store).import_transcripts(talks())
    before = await contents(store)
    done = await forget_conversations(store, clock, projects=["/none"])
    assert (done.conversations, done.turns) == (0, 0)
    assert await contents(store) == before


async def test_a_long_conversation_goes_step_by_step(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "PURGE_TURNS", 3)
    await importer(store).import_transcripts([Written("a", [turn(str(n), project="/p") for n in range(10)])])
    told: list[tuple[int, int]] = []
    await forget_conversations(store, clock, projects=["/p"], report=lambda *progress: told.append(progress))
    assert told == [(3, 10), (6, 10), (9, 10), (10, 10)]
    assert await store.count_records(RecordFilter(kinds=(TURN,), types=("said",), deleted=None)) == 0


async def test_many_conversations_are_purged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Dying()
    sessions = [f"s{n}" for n in range(20)]
    lines = [turn(f"{n}", session=name, project="/p") for n, name in enumerate(sessions)]
    await importer(store).import_transcripts([Written("a", [*lines])])
    await forget_conversations(store, clock, projects=["/p"])
    assert store.purges == 1


async def test_nothing_tells_of_what_was_forgotten(store: RecordStore) -> None:
    lines = [turn("1", session="old", project="/hush"), turn("2", session="new", project="/other")]
    fork = [turn("1", session="fork", project="/other"), turn("3", session="fork")]
    await importer(store).import_transcripts([Written("old.jsonl", [*lines]), Written("b", [*fork])])
    assert (await conversation(store, "fork")).facets["continues"] == "old"
    await forget_conversations(store, clock, projects=["/hush"])
    kept = str(list(await store.scan(RecordFilter(deleted=None))))
    assert "hush" not in kept
    assert "'old" not in kept
    assert await texts(store, "new") == ["2"]
    assert await texts(store, "fork") == ["3"]


async def test_a_transcript_of_which_something_was_forgotten_is_read_on(store: RecordStore) -> None:
    lines = [turn("1", session="old", project="/hush"), turn("2", session="new", project="/other")]
    written = Written("a", [*lines])
    await importer(store).import_transcripts([written])
    await forget_conversations(store, clock, conversations=[build_conversation_id(SOURCE, "old")])
    unchanged = await importer(store).import_transcripts([written])
    assert unchanged.total.unchanged == 1
    written.add(turn("3", session="old"), turn("4", session="new"))
    await importer(store).import_transcripts([written])
    assert await texts(store, "old") == []
    assert await texts(store, "new") == ["2", "4"]


async def test_one_wrong_conversation_keeps_a_project_too(store: RecordStore) -> None:
    await importer(store).import_transcripts(talks())
    before = await contents(store)
    with pytest.raises(InvalidInput):
        await forget_conversations(store, clock, projects=["/p"], conversations=["conv_none"])
    assert await contents(store) == before


class Dying(MemoryStore):
    """Fails at the act of a number, before or after it; a purge and a commit are one each."""

    left = 0
    is_done = False
    purges = 0

    async def purge(self, refs: Sequence[Ref]) -> PurgeResult:
        self.purges += 1
        self._die(before=True)
        purged = await super().purge(refs)
        self._die(before=False)
        return purged

    async def commit(self, batch: Batch) -> Change:
        self._die(before=True)
        change = await super().commit(batch)
        self._die(before=False)
        return change

    def _die(self, *, before: bool) -> None:
        self.left -= before
        if self.left == 0 and before != self.is_done:
            raise ConnectionError


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("is_project", [False, True])
async def test_wherever_it_is_interrupted_no_copy_brings_it_back(
    monkeypatch: pytest.MonkeyPatch, is_done: bool, is_project: bool
) -> None:
    monkeypatch.setattr(removal, "PURGE_TURNS", 3)
    meant = {"projects": ["/p"]} if is_project else {"conversations": [build_conversation_id(SOURCE, "s")]}
    deaths = 0
    for at in range(1, 40):
        store = Dying()
        lines = [turn(str(n), f"hush {n}", project="/p") for n in range(5)]
        agent = turn("8!", "hush", session="agent", part_of="s", project="/p")
        await importer(store).import_transcripts([Written("a", [*lines]), Written("b", [agent])])
        store.left, store.is_done = at, is_done
        try:
            await forget_conversations(store, clock, **meant)
        except ConnectionError:
            deaths += 1
        store.left = 0
        copies = [replace(line, session="copy", project="/q") for line in lines]
        await importer(store).import_transcripts([Written("c", [*copies, turn("9", session="copy")])])
        assert await texts(store, "copy") in (["9"], [])
        if deaths < at or get_exclusion(await conversation(store)):  # else it had not begun
            assert "hush" not in str(await store.scan(RecordFilter(deleted=None)))
            assert await store.scan(RecordFilter(tags=(PURGING_TAG,))) == []
    assert 5 < deaths < 39


@pytest.mark.parametrize("is_done", [False, True])
async def test_turns_in_other_conversations_go_with_the_next_import_too(is_done: bool) -> None:
    deaths = 0
    for at in range(1, 12):
        store = Dying()
        lines = [turn("1", project="/w"), turn("2", "hush", project="/w/p"), turn("3!")]
        await importer(store).import_transcripts([Written("a", [*lines, turn("4", project="/w")])])
        store.left, store.is_done = at, is_done
        try:
            await forget_conversations(store, clock, projects=["/w/p"])
        except ConnectionError:
            deaths += 1
        store.left = 0
        await importer(store).import_transcripts([], excluded=["/w/p"])
        begun = is_done or at > 1
        assert ("hush" not in str(await store.scan(RecordFilter(deleted=None)))) == begun
    assert 3 < deaths < 11


async def test_a_forgetting_that_is_killed_lets_nothing_back(tmp_path: Path) -> None:
    lines = [turn(str(n), f"hush {n}", project="/p") for n in range(12)]
    copies = [replace(line, session="copy", project="/q") for line in lines]
    copied = Written("c", [*copies, turn("99", session="copy")])
    for number in range(2, 8):
        folder = tmp_path / str(number)
        library = SqliteLibrary(folder)
        await importer(await library.open_history_store()).import_transcripts([Written("a", [*lines])])
        await library.close()
        with acting("history_actors:forget_project", folder, "/p") as actor:
            for _ in range(number):
                actor.hear()
            actor.kill()
        library = SqliteLibrary(folder)
        store = await library.open_history_store()
        await importer(store).import_transcripts([copied])
        assert await texts(store, "copy") == ["99"]
        assert "hush" not in str(await store.scan(RecordFilter(deleted=None)))
        assert await store.find_faults() == []
        await library.close()


async def test_no_byte_of_it_stays_on_the_disk(tmp_path: Path) -> None:
    library = SqliteLibrary(tmp_path)
    store = await library.open_history_store()
    edit = Snippet("def wombatical(): pass", file="/p/zebroid.py", replaced="quaggish = 1")
    lines = [turn("1", "a platypodal secret", project="/p/okapian", snippets=(edit,))]
    await importer(store).import_transcripts([Written("okapian/file", lines), talks()[1]])
    words = ["wombatical", "zebroid", "quaggish", "platypodal", "okapian"]
    assert said_by("files_with", tmp_path, *words)
    done = await forget_conversations(store, clock, projects=["/p"])
    assert done.complete
    assert said_by("files_with", tmp_path, *words) == []
    await library.close()
