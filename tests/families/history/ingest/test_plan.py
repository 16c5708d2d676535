import pytest

from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Change, RecordFilter
from everkept.core.transcripts import RewindEvent, TitleEvent, Turn
from everkept.engines.memory.store import MemoryStore
from everkept.families.history.ingest.conversations import PURGING_TAG
from everkept.families.history.model import CONVERSATION, TURN
from memory_transcripts import MINUTE, Written, contents, conversation, importer, texts, turn
from records import DAY_ONE

MARKER = "<!-- everkept: do not index -->"


def lines(count: int, **more: object) -> list[Turn]:
    return [turn(f"{n}", **more) for n in range(1, count + 1)]


async def test_turns_before_a_time_are_left_out(store: RecordStore) -> None:
    written = Written("a", [*lines(5)])
    imported = await importer(store).import_transcripts([written], since=DAY_ONE + 4 * MINUTE)
    assert await texts(store) == ["4", "5"]
    assert imported.total.turns_left_out == 3


async def test_an_earlier_time_reads_all_again_and_keeps_the_order(store: RecordStore) -> None:
    written = Written("a", [*lines(6)])
    taking = importer(store)
    await taking.import_transcripts([written], since=DAY_ONE + 5 * MINUTE)
    await taking.import_transcripts([written], since=DAY_ONE + 3 * MINUTE)
    assert await texts(store) == ["3", "4", "5", "6"]
    await taking.import_transcripts([written])
    clean = MemoryStore()
    await importer(clean).import_transcripts([written])
    assert await contents(store) == await contents(clean)
    await taking.import_transcripts([written], since=DAY_ONE + 5 * MINUTE)
    assert written.opened == 4


async def test_a_time_that_leaves_nothing_out_is_not_remembered(store: RecordStore) -> None:
    written = Written("a", [*lines(2)])
    await importer(store).import_transcripts([written], since=DAY_ONE)
    imported = await importer(store).import_transcripts([written])
    assert imported.total.unchanged == 1


async def test_a_conversation_of_an_excluded_folder_is_left_out(store: RecordStore) -> None:
    first, rest = turn("1", project="/secret/x"), [turn("2!"), turn("3", project="/other")]
    written = Written("a", [TitleEvent("s", "hush"), first, *rest], portion=1)
    imported = await importer(store, excluded=("/secret",)).import_transcripts([written])
    assert await texts(store) == []
    assert (imported.total.left_out, imported.total.turns_left_out) == (1, 3)
    assert "hush" not in str(await store.scan(RecordFilter()))
    assert (await conversation(store)).facets["left_out"] == "excluded"


async def test_a_turn_in_an_excluded_folder_is_left_out_alone(store: RecordStore) -> None:
    written = Written("a", [turn("1", project="/p"), turn("2", project="/secret"), turn("3", project="/p")])
    await importer(store).import_transcripts([written], excluded=["/secret"])
    assert await texts(store) == ["1", "3"]


async def test_what_is_excluded_no_longer_comes_in(store: RecordStore) -> None:
    written = Written(
        "a",
        [
            turn("1", project="/p"),
            turn("2", project="/secret"),
            turn("3", project="/p"),
            turn("4", session="t", project="/secret"),
            turn("5", session="t"),
        ],
    )
    await importer(store).import_transcripts([written], excluded=["/secret", "/never"])
    unchanged = await importer(store).import_transcripts([written], excluded=["/secret"])
    assert unchanged.total.unchanged == 1
    await importer(store).import_transcripts([written])
    clean = MemoryStore()
    await importer(clean).import_transcripts([written])
    assert await contents(store) == await contents(clean)


@pytest.mark.parametrize("portion", [1, 2, 10])
async def test_a_marked_conversation_is_left_out_from_its_beginning(store: RecordStore, portion: int) -> None:
    marked = Written("a", [turn("1"), turn("2!"), turn("3", f"so: {MARKER}"), turn("4!")])
    marked.portion = portion
    other = Written("b", [turn("9", session="t")])
    imported = await importer(store).import_transcripts([marked, other])
    talk = await conversation(store)
    assert talk.facets == {"source": "test", "left_out": "marker"}
    assert (talk.name, talk.scope, talk.tags) == (None, "", ())
    assert await texts(store, "t") == ["9"]
    tombstones = await store.scan(RecordFilter(kinds=(TURN,), deleted=True))
    assert {(each.text, each.scope, each.author) for each in tombstones} == {("", "", None)}
    assert imported.total.conversations_left_out == 1


async def test_a_marker_that_comes_late_removes_what_is_in(store: RecordStore) -> None:
    written = Written("a", [turn("1", "unwise words\n```py\nf()\n```"), turn("2!")])
    await importer(store).import_transcripts([written])
    written.add(turn("3", MARKER), turn("4", "unheard"))
    await importer(store).import_transcripts([written])
    assert set(await store.count_live()) == {CONVERSATION, "transcript", "gate", "link"}
    written.add(turn("5", "never"), TitleEvent("s", "title"), RewindEvent("s", "3"))
    await importer(store).import_transcripts([written])
    talk = await conversation(store)
    assert (talk.name, await texts(store)) == (None, [])


@pytest.mark.parametrize("portion", [1, 9])
async def test_a_copy_of_what_was_left_out_does_not_come_in(store: RecordStore, portion: int) -> None:
    marked = Written("a", [turn("1", "unwise"), turn("2!"), turn("3", MARKER)], portion=portion)
    copies = [turn("1", "unwise", session="t"), turn("2!", session="t")]
    resumed = Written("b", [*copies, turn("4", session="t")], portion=portion)
    await importer(store).import_transcripts([marked, resumed])
    assert await texts(store, "t") == ["4"]


@pytest.mark.parametrize("portion", [1, 9])
async def test_what_followed_a_copy_of_what_was_left_out_can_be_taken_back(store: RecordStore, portion: int) -> None:
    marked = Written("a", [turn("1"), turn("2", MARKER)])
    copy, rewound = turn("1", session="t"), RewindEvent("t", "1")
    resumed = Written("b", [copy, turn("3", session="t"), rewound, turn("4", session="t")])
    resumed.portion = portion
    await importer(store).import_transcripts([marked, resumed])
    assert await texts(store, "t") == ["4"]


async def test_agents_of_a_marked_conversation_are_left_out_with_it(store: RecordStore) -> None:
    agent = Written("a", [turn("1!", session="agent", part_of="s")])
    deeper = Written("b", [turn("2!", session="deeper", part_of="agent")])
    late = Written("d", [turn("5!", session="late", part_of="s")])
    await importer(store).import_transcripts([agent, deeper])
    await importer(store).import_transcripts([agent, deeper, Written("c", [turn("3", MARKER)]), late])
    for session in ("agent", "deeper", "late", "s"):
        assert (await conversation(store, session)).facets["left_out"] == "marker"
        assert await texts(store, session) == []


class Crashing(MemoryStore):
    """Loses its connection when something is purged."""

    is_up = False

    async def purge(self, refs):  # type: ignore[no-untyped-def]
        if not self.is_up:
            raise ConnectionError
        return await super().purge(refs)


async def test_a_purge_that_was_interrupted_is_finished_by_the_next_import() -> None:
    store = Crashing()
    written = Written("a", [turn("1", "unwise"), turn("2!")])
    await importer(store).import_transcripts([written])
    written.add(turn("3", MARKER))
    with pytest.raises(ConnectionError):
        await importer(store).import_transcripts([written])
    talk = await conversation(store)
    assert (talk.facets["left_out"], talk.tags) == ("marker", (PURGING_TAG,))
    store.is_up = True
    await importer(store).import_transcripts([])
    assert await texts(store) == []
    assert (await conversation(store)).tags == ()


class Meddling(MemoryStore):
    """Has another import commit just before the commit of a number."""

    def __init__(self, other: Written, at: int) -> None:
        super().__init__()
        self._other = other
        self._left = at

    async def commit(self, batch: Batch) -> Change:
        self._left -= 1
        if self._left == 0:
            await importer(self).import_transcripts([self._other])
        return await super().commit(batch)


@pytest.mark.parametrize("at", range(1, 6))
async def test_an_import_that_was_overtaken_goes_on_from_there(at: int) -> None:
    written = Written("a", [*lines(9)])
    clean = MemoryStore()
    await importer(clean).import_transcripts([written])
    store = Meddling(written, at)
    await importer(store).import_transcripts([written])
    assert await contents(store) == await contents(clean)


@pytest.mark.parametrize("at", range(1, 4))
async def test_a_marker_set_meanwhile_keeps_turns_out(at: int) -> None:
    store = Meddling(Written("b", [turn("99", MARKER)]), at)
    await importer(store).import_transcripts([Written("a", [*lines(5)])])
    assert await texts(store) == []
    assert (await conversation(store)).facets["left_out"] == "marker"


async def test_an_agent_whose_sender_is_marked_meanwhile_stays_out() -> None:
    store = Meddling(Written("mark", [turn("99", MARKER)]), at=2)
    await importer(store).import_transcripts([Written("sender", [turn("1")])])
    await importer(store).import_transcripts([Written("a", [turn("2!", session="agent", part_of="s")])])
    assert await texts(store, "agent") == []
    assert (await conversation(store, "agent")).facets["left_out"] == "marker"
