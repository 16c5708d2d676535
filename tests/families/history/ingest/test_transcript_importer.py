import asyncio
from collections import Counter

import pytest

from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Change, RecordFilter
from everkept.core.transcripts import RewindEvent, Snippet, TitleEvent
from everkept.engines.memory.store import MemoryStore
from everkept.errors import Unavailable
from everkept.families.history.ingest.checkpoints import GATE_ID
from everkept.families.history.model import DECISION, SAID, SUMMARY, TRANSCRIPT, TURN, build_symbol_id
from memory_transcripts import MINUTE, Written, code_of, contents, conversation, importer, texts, turn, turns
from records import DAY_ONE


async def test_a_transcript_becomes_a_conversation_with_its_turns(store: RecordStore) -> None:
    written = Written("a", [turn("1", "how do I sort?", project="/p"), turn("2!", "use sorted")])
    imported = await importer(store).import_transcripts([written])
    assert (imported.total.conversations, imported.total.turns) == (1, 2)
    talk = await conversation(store)
    assert (talk.name, talk.session, talk.scope) == ("how do I sort?", "s", "/p")
    assert talk.occurred_at == DAY_ONE + MINUTE
    assert talk.facets["ended"] == DAY_ONE + 2 * MINUTE
    first, second = await turns(store)
    assert (first.text, first.author, first.position) == ("how do I sort?", "user", 0)
    assert (second.text, second.author, second.position) == ("use sorted", "assistant", 1)
    assert (second.type, second.scope, second.session) == (SAID, "/p", "s")
    assert second.facets == {"source": "test", "sequence": 1}


async def test_a_turn_keeps_what_was_done_in_it(store: RecordStore) -> None:
    said = turn(
        "1!",
        "it fails",
        branch="main",
        model="m",
        files=("a.py", "a.py", "b.py"),
        tools=("Edit",),
        failures=("no such file",),
        part_of="boss",
    )
    await importer(store).import_transcripts([Written("a", [said])])
    [found] = await turns(store)
    assert found.text == "it fails\n[error] no such file"
    assert found.facets == {
        "source": "test",
        "branch": "main",
        "model": "m",
        "files": ["a.py", "b.py"],
        "tools": ["Edit"],
        "problem": True,
        "part_of": "boss",
        "sequence": 0,
    }
    assert (await conversation(store)).facets["part_of"] == "boss"


async def test_decisions_and_summaries_are_marked(store: RecordStore) -> None:
    lines = [turn("1", "we decided to stop"), turn("2", "we decided it all", is_summary=True)]
    imported = await importer(store).import_transcripts([Written("a", [*lines, turn("3", "that is fixed")])])
    found = await turns(store)
    assert [each.type for each in found] == [DECISION, SUMMARY, SAID]
    assert found[2].facets["fix"] is True
    assert imported.total.decisions == 1


async def test_blocks_and_edits_become_code(store: RecordStore) -> None:
    text = "see\n```py\ndef f(): pass\n```\nand\n```console\n$ ls\n```"
    edit = Snippet("def g():\n    f()", file="x.py", replaced="old")
    await importer(store).import_transcripts([Written("a", [turn("1!", text, snippets=(edit,), project="/p")])])
    block, printed, edited = await code_of(store, "1!")
    assert (block.type, block.text, block.name) == ("python", "def f(): pass", None)
    assert block.facets == {"source": "test", "change": "block", "turn_position": 0}
    assert printed.type == "text"
    assert (edited.type, edited.name, edited.scope) == ("python", "x.py", "/p")
    assert (edited.facets["change"], edited.facets["replaced"]) == ("edit", "old")
    assert (edited.session, edited.author) == ("s", "assistant")


async def test_code_is_linked_to_what_it_speaks_of(store: RecordStore) -> None:
    text = "```py\ndef greet():\n    pass\n\ndef run():\n    greet()\n```"
    await importer(store).import_transcripts([Written("a", [turn("1!", text, project="/p")])])
    [code] = await code_of(store, "1!")
    links = await store.find_links([code.id], direction="out")
    symbols = {each.id: each.name for each in await store.get([link.target for link in links])}
    spoken = {(link.verb, symbols[link.target]) for link in links}
    assert {("defines", "greet"), ("defines", "run"), ("calls", "greet")} <= spoken


@pytest.mark.parametrize("portion", [1, 2])
async def test_what_a_symbol_is_may_be_told_later(store: RecordStore, portion: int) -> None:
    calls = turn("1!", "```py\ngreet()\n```", project="/p")
    defines = turn("2!", "```py\ndef greet():\n    pass\n```", project="/p")
    await importer(store).import_transcripts([Written("a", [calls, defines], portion=portion)])
    [found] = await store.get([build_symbol_id("/p", "greet")])
    assert found.type == "function"


async def test_secrets_are_masked_everywhere(store: RecordStore) -> None:
    key = "AKIAIOSFODNN7EXAMPL2"
    lines = [
        turn("1", f"use {key}\n```\nid = {key}\n```", failures=(f"bad {key}",)),
        turn("2!", "ok", snippets=(Snippet(f"k = '{key}'", replaced=f"j = '{key}'"),)),
        TitleEvent("s", f"about {key}"),
    ]
    imported = await importer(store).import_transcripts([Written("a", lines)])
    assert all(key not in str(record) for record in await store.scan(RecordFilter()))
    assert imported.total.masked
    kept = await importer(plain := MemoryStore(), mask_secrets=False).import_transcripts([Written("a", lines)])
    assert not kept.total.masked
    assert key in (await texts(plain))[0]


async def test_nothing_that_a_database_refuses_is_stored(store: RecordStore) -> None:
    said = turn("1", "a\x00b\ud800c\x1b[31mred\x1b[0m\r\nend", session="s\ud800", author="x\x07")
    await importer(store).import_transcripts([Written("a", [said])])
    [found] = await store.scan(RecordFilter(kinds=(TURN,)))
    assert found.text == "ab\ufffdcred\nend"
    assert found.author == "x"


async def test_of_a_gigantic_text_the_beginning_is_kept(store: RecordStore) -> None:
    said = turn("1", "word " * 100_000, snippets=(Snippet("x = 1\n" * 50_000),))
    imported = await importer(store).import_transcripts([Written("a", [said])])
    assert [len(text) for text in await texts(store)] == [200_000]
    assert [len(code.text) for code in await code_of(store, "1")] == [100_000]
    assert imported.total.skipped == Counter({"rest of a very long text": 2})


async def test_a_second_import_changes_nothing_and_opens_nothing(store: RecordStore) -> None:
    written = Written("a", [turn("1"), turn("2!")])
    await importer(store).import_transcripts([written])
    before, revision = await contents(store), await store.get_revision()
    imported = await importer(store).import_transcripts([written])
    assert (imported.total.unchanged, imported.total.read, written.opened) == (1, 0, 1)
    assert await contents(store) == before
    assert await store.get_revision() == revision


async def test_what_is_added_is_taken_in(store: RecordStore) -> None:
    written = Written("a", [turn("1"), turn("2!")])
    await importer(store).import_transcripts([written])
    written.add(turn("3"), turn("4!"))
    imported = await importer(store).import_transcripts([written])
    assert (imported.total.turns, imported.total.turns_changed) == (2, 0)
    assert await texts(store) == ["1", "2!", "3", "4!"]
    assert [each.position for each in await turns(store)] == [0, 1, 2, 3]


async def test_an_open_turn_grows_with_its_code_and_links(store: RecordStore) -> None:
    written = Written("a", [turn("1"), turn("2!", "```py\ndef f():\n    g()")])
    await importer(store).import_transcripts([written])
    written.lines[-1] = turn("2!", "```py\ndef f():\n    h()\n    i()\n```")
    written.add(turn("2!", "more\n```py\ndef j(): pass\n```"))
    imported = await importer(store).import_transcripts([written])
    assert (imported.total.turns, imported.total.turns_changed) == (0, 1)
    clean = MemoryStore()
    await importer(clean).import_transcripts([written])
    assert await contents(store) == await contents(clean)
    assert len(await code_of(store, "2!")) == 2


async def test_a_turn_that_only_did_more_gets_the_code_of_it(store: RecordStore) -> None:
    written = Written("a", [turn("1!", "doing", snippets=(Snippet("x = 1", file="a.py"),))])
    await importer(store).import_transcripts([written])
    written.lines[0] = turn("1!", "doing", snippets=(Snippet("x = 1", file="a.py"), Snippet("y = 2", file="a.py")))
    written.modified += 1
    await importer(store).import_transcripts([written])
    assert [each.text for each in await code_of(store, "1!")] == ["x = 1", "y = 2"]


async def test_code_that_is_gone_from_a_turn_goes(store: RecordStore) -> None:
    written = Written("a", [turn("1!", "```py\nf()\n```\n```py\ng()\n```")])
    await importer(store).import_transcripts([written])
    written.lines[0] = turn("1!", "rewritten\n```py\ng()\n```")
    written.modified += 1
    await importer(store).import_transcripts([written])
    assert [each.text for each in await code_of(store, "1!")] == ["g()"]
    clean = MemoryStore()
    await importer(clean).import_transcripts([written])
    assert await contents(store) == await contents(clean)


async def test_a_shorter_state_of_a_turn_takes_nothing_away(store: RecordStore) -> None:
    written = Written("a", [turn("1", "all of it")])
    await importer(store).import_transcripts([written])
    written.lines[0] = turn("1", "all of")
    written.modified += 1
    await importer(store).import_transcripts([written])
    assert await texts(store) == ["all of it"]


async def test_a_resumed_session_is_not_doubled(store: RecordStore) -> None:
    first = Written("a", [turn("1"), turn("2!")])
    copy = [turn("1", session="t"), turn("2!", session="t")]
    second = Written("b", [*copy, turn("3", session="t")], portion=1)
    imported = await importer(store).import_transcripts([first, second])
    assert imported.total.turns == 3
    assert await texts(store, "s") == ["1", "2!"]
    assert await texts(store, "t") == ["3"]
    assert (await conversation(store, "t")).facets["continues"] == "s"
    assert "continues" not in (await conversation(store, "s")).facets


async def test_a_rewound_turn_goes_with_all_after_it(store: RecordStore) -> None:
    lines = [turn("1"), turn("2!"), turn("3", "```py\nf()\n```"), turn("4!"), RewindEvent("s", "3")]
    written = Written("a", lines)
    imported = await importer(store).import_transcripts([written])
    assert await texts(store) == ["1", "2!"]
    assert imported.total.turns_removed == 2
    written.add(turn("5"))
    await importer(store).import_transcripts([written])
    assert [(each.text, each.position) for each in await turns(store)][-1] == ("5", 2)
    assert (await conversation(store)).facets["ended"] == DAY_ONE + 5 * MINUTE
    gone = await store.scan(RecordFilter(deleted=True))
    assert all(each.text == "" for each in gone)


@pytest.mark.parametrize("portion", [1, 2, 3, 10])
async def test_a_rewound_turn_may_be_said_again(store: RecordStore, portion: int) -> None:
    lines = [turn("1"), turn("2", "old\n```py\nf()\n```"), turn("3!"), RewindEvent("s", "2")]
    again = Written("a", [*lines, turn("2", "new\n```py\ng()\n```")], portion=portion)
    await importer(store).import_transcripts([again])
    assert await texts(store) == ["1", "new\n```py\ng()\n```"]
    before = await contents(store)
    again.lines[0] = turn("1", "1 in other words")
    again.modified += 1
    await importer(store).import_transcripts([again])
    assert (await texts(store))[1:] == ["new\n```py\ng()\n```"]
    assert len(await contents(store)) == len(before)


async def test_a_rewound_beginning_takes_its_name_with_it(store: RecordStore) -> None:
    lines = [turn("1", "wrong"), turn("2!"), RewindEvent("s", "1"), turn("3", "right")]
    await importer(store).import_transcripts([Written("a", lines, portion=2)])
    talk = await conversation(store)
    assert (talk.name, talk.occurred_at) == ("right", DAY_ONE + 3 * MINUTE)


@pytest.mark.parametrize("portion", [1, 3])
async def test_a_title_is_the_conversations_name(store: RecordStore, portion: int) -> None:
    lines = [TitleEvent("s", "  Sorting\nlists "), turn("1", "how?"), turn("2!")]
    await importer(store).import_transcripts([Written("a", lines, portion=portion)])
    assert (await conversation(store)).name == "Sorting lists"
    await importer(store).import_transcripts([Written("a", [*lines, TitleEvent("s", "x" * 300)])])
    assert (await conversation(store)).name == "x" * 199 + "…"


@pytest.mark.parametrize("portion", [1, 9])
async def test_a_turn_without_a_time_or_folder_has_that_of_the_one_before(store: RecordStore, portion: int) -> None:
    lines = [
        turn("1", at=None),
        turn("2!", at=DAY_ONE + 7, project="/p"),
        turn("3", at=None),
        turn("4", at=None, session="t"),
        turn("5", at=None),
    ]
    await importer(store).import_transcripts([Written("a", lines, portion=portion, modified=DAY_ONE)])
    found = await turns(store)
    assert [each.occurred_at for each in found] == [DAY_ONE, DAY_ONE + 7, DAY_ONE + 7, DAY_ONE + 7]
    assert [each.scope for each in found] == ["", "/p", "/p", "/p"]
    assert (await turns(store, "t"))[0].scope == ""


async def test_turns_that_come_late_stand_where_they_happened(store: RecordStore) -> None:
    first = Written("a", [turn("3", "third\n```py\nf()\n```"), turn("4!")])
    await importer(store).import_transcripts([first])
    await importer(store).import_transcripts([Written("b", [turn("1", "first"), turn("2!"), turn("5")])])
    assert [each.text[:5] for each in await turns(store)] == ["first", "2!", "third", "4!", "5"]
    assert [each.position for each in await turns(store)] == [0, 1, 2, 3, 4]
    [code] = await code_of(store, "3")
    assert code.facets["turn_position"] == 2
    talk = await conversation(store)
    assert (talk.name, talk.facets["turns"], talk.tags) == ("first", 5, ())


async def test_a_turn_whose_time_is_put_right_moves(store: RecordStore) -> None:
    written = Written("a", [turn("1"), turn("2!"), turn("3")])
    await importer(store).import_transcripts([written])
    written.lines[1] = turn("2!", at=DAY_ONE + 9 * MINUTE)
    written.modified += 1
    await importer(store).import_transcripts([written])
    assert await texts(store) == ["1", "3", "2!"]


async def test_one_broken_transcript_does_not_stop_the_others(store: RecordStore) -> None:
    gone = Written("gone", [turn("1")], broken=Unavailable("It is gone."))
    odd = Written("odd", [turn("2", session="o"), turn("3", session="o")], portion=1)
    odd.broken = KeyError("type")
    imported = await importer(store).import_transcripts([gone, odd, Written("fine", [turn("4", session="f")])])
    assert [(each.name, each.reason) for each in imported.failures] == [("gone", "It is gone."), ("odd", "'type'")]
    assert imported.total.failed == 2
    assert await texts(store, "f") == ["4"]
    assert await texts(store, "o") == ["2", "3"]
    odd.broken = None
    odd.add(turn("5", session="o"))
    await importer(store).import_transcripts([odd])
    assert await texts(store, "o") == ["2", "3", "5"]


async def test_a_transcript_that_vanishes_and_comes_back_stops_no_other(store: RecordStore) -> None:
    away, fine = Written("away", [turn("1")]), Written("fine", [turn("2", session="f")])
    taking = importer(store)
    for round in range(3):
        away.gone = Unavailable("It is gone.") if round == 1 else None
        away.add(turn(f"3{round}"))
        fine.add(turn(f"4{round}", session="f"))
        imported = await taking.import_transcripts([away, fine])
        reasons = [(each.name, each.reason) for each in imported.failures]
        assert reasons == ([("away", "It is gone.")] if round == 1 else [])
        assert len(await texts(store, "f")) == 2 + round
    assert await texts(store) == ["1", "30", "31", "32"]


async def test_what_was_skipped_and_how_far_it_came_is_told(store: RecordStore) -> None:
    told: list[tuple[int, int]] = []
    first = Written("a", [turn(str(n)) for n in range(5)], skipped={"broken line": 2})
    second = Written("b", [turn("9", session="t")], source="other")
    imported = await importer(store).import_transcripts(
        [first, second], report=lambda done, total: told.append((done, total))
    )
    assert imported.total.skipped == Counter({"broken line": 2})
    assert imported.get_counts("other").turns == 1
    assert told[-1] == (6, 6)
    assert told == sorted(told)


async def test_a_cancelled_import_goes_on_where_it_was() -> None:
    written = Written("a", [turn(str(n)) for n in range(10)], portion=1)
    clean = MemoryStore()
    await importer(clean).import_transcripts([written])
    for portions in range(1, 10):
        store = Cancelling(portions + 1)  # the first one makes the gate
        with pytest.raises(asyncio.CancelledError):
            await importer(store).import_transcripts([written])
        assert len(await turns(store)) == portions
        store.left = -1
        await importer(store).import_transcripts([written])
        assert await contents(store) == await contents(clean)


class Cancelling(MemoryStore):
    """Cancels whoever makes the commit of a number."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    async def commit(self, batch: Batch) -> Change:
        change = await super().commit(batch)
        self.left -= 1
        if self.left == 0:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        return change


async def test_an_empty_transcript_is_looked_at_once(store: RecordStore) -> None:
    written = Written("a")
    await importer(store).import_transcripts([written])
    imported = await importer(store).import_transcripts([written])
    assert (imported.total.unchanged, written.opened) == (1, 1)
    assert await store.count_live() == {TRANSCRIPT: 1, GATE_ID: 1, "link": 0}


async def test_all_of_an_import_is_derived(store: RecordStore) -> None:
    written = Written("a", [turn("1", "first words"), turn("2!", "old words")])
    await importer(store).import_transcripts([written])
    written.lines[1] = turn("2!", "new words")
    written.modified += 1
    await importer(store).import_transcripts([written])
    edits = [edit for change in await store.read_changes() for edit in change.edits]
    assert all(not edit.before for edit in edits)
