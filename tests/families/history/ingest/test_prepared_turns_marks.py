from collections import Counter

import pytest

from everkept.core.ports import RecordStore
from everkept.core.records import RecordFilter
from everkept.core.transcripts import ExclusionEvent, RewindEvent, Snippet, TitleEvent, Turn
from everkept.engines.memory.store import MemoryStore
from everkept.families.history.model import CONVERSATION, TRANSCRIPT, build_conversation_id
from memory_transcripts import SOURCE, Written, code_of, conversation, importer, texts, turn, turns

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def telling() -> list[Turn | TitleEvent]:
    """Conversations that have a secret in everything that has a name."""
    return [
        turn(
            "1!",
            f"see {TOKEN}",
            session=f"s-{TOKEN}",
            author=f"bot {TOKEN}",
            project=f"/x/token={TOKEN}",
            branch=f"feature/{TOKEN}",
            model=f"m-{TOKEN}",
            files=(f"/x/{TOKEN}.txt", f"https://me:hunter2x99@example.org/{TOKEN}"),
            tools=(f"fetch {TOKEN}",),
            failures=("E" * 380 + f" {TOKEN} more",),
            snippets=(Snippet(f"k = '{TOKEN}'", file=f"/x/{TOKEN}.py", replaced=TOKEN),),
            part_of=f"boss {TOKEN}",
        ),
        TitleEvent(f"s-{TOKEN}", "t" * 180 + f" {TOKEN}"),
        turn("2!", "more", session=f"s-{TOKEN}"),
        turn("3!", session="other", project=f"/y/{TOKEN}"),
        TitleEvent("unheard", f"later {TOKEN}"),
    ]


@pytest.mark.parametrize("portion", [1, 9])
async def test_no_secret_comes_in_under_any_name(store: RecordStore, portion: int) -> None:
    written = Written(f"/logs/{TOKEN}.jsonl", [*telling()], portion=portion)
    imported = await importer(store).import_transcripts([written])
    kept = str(await store.scan(RecordFilter(deleted=None)))
    assert "ghp_" not in kept
    assert "hunter2x99" not in kept
    assert imported.total.masked["github token"] > 5
    [code] = await code_of(store, "1!")
    assert (code.type, code.name) == ("python", "/x/[masked: github token].py")
    written.add(turn("4", session=f"s-{TOKEN}"))
    await importer(store).import_transcripts([written])
    assert len(await turns(store, f"s-{TOKEN}")) == 3
    assert "ghp_" not in str(await store.scan(RecordFilter(deleted=None)))


async def test_secrets_stay_where_that_is_wished() -> None:
    store = MemoryStore()
    await importer(store, mask_secrets=False).import_transcripts([Written("a", [*telling()])])
    [found] = await store.scan(RecordFilter(kinds=(CONVERSATION,), sessions=(f"s-{TOKEN}",)))
    assert found.scope == f"/x/token={TOKEN}"


@pytest.mark.parametrize(
    "said",
    [
        turn("2", project="/p", files=("/secret/a.py",)),
        turn("2", project="/p", files=("b.py", "../secret/a.py")),
        turn("2", project="/p", snippets=(Snippet("x = 1", file="/secret/deep/a.py"),)),
        turn("2", project="/p", files=("file:///secret/a.py",)),
        turn("2", project="/", snippets=(Snippet("x = 1", file="secret/a.py"),)),
    ],
)
async def test_a_turn_that_touched_an_excluded_folder_is_left_out(said: Turn) -> None:
    store = MemoryStore()
    written = Written("a", [turn("1", project="/p"), said, turn("3!", project="/p")])
    await importer(store).import_transcripts([written], excluded=["/secret"])
    assert await texts(store) == ["1", "3!"]
    assert "secret/" not in str(await store.scan(RecordFilter(kinds=("turn", "code"), deleted=None)))
    await importer(store).import_transcripts([written])
    assert await texts(store) == ["1", "2", "3!"]


async def test_files_of_windows_are_excluded_as_well() -> None:
    store = MemoryStore()
    lines = [
        turn("1", project="C:\\work\\app", files=("..\\Secret\\a.py",)),
        turn("2", project="C:\\work\\app", files=("C:\\WORK\\secret\\a.py",)),
        turn("3", project="C:\\work\\app", files=("src\\a.py",)),
    ]
    await importer(store).import_transcripts([Written("a", [*lines])], excluded=["c:\\work\\secret"])
    assert await texts(store) == ["3"]


async def test_of_two_readers_one_tells_a_conversation(store: RecordStore) -> None:
    state = Written("state", [turn("1", reader="state"), turn("2!", reader="state")])
    file = Written("file", [turn("71", "1", reader="file"), turn("72!", "2!", reader="file")])
    imported = await importer(store).import_transcripts([file, state])
    assert await texts(store) == ["1", "2!"]
    assert imported.total.skipped == Counter({"turn of a conversation imported from another copy": 2})
    file.add(turn("73", "3", reader="file"))
    state.add(turn("3", reader="state"))
    await importer(store).import_transcripts([state, file])
    assert await texts(store) == ["1", "2!", "3"]
    assert (await conversation(store)).facets["reader"] == "file"


async def test_another_reader_may_tell_what_the_first_one_has_taken_back(store: RecordStore) -> None:
    file = Written("file", [turn("1", reader="file"), RewindEvent("s", "1")])
    state = Written("state", [turn("2", reader="state")])
    await importer(store).import_transcripts([file, state])
    assert await texts(store) == ["2"]


@pytest.mark.parametrize("portion", [1, 9])
async def test_a_marker_outside_of_what_is_said_counts(store: RecordStore, portion: int) -> None:
    written = Written("a", [turn("1", "unwise"), turn("2!")], portion=portion)
    await importer(store).import_transcripts([written])
    written.add(turn("3"), ExclusionEvent("s"), ExclusionEvent("unheard"), turn("4!"))
    await importer(store).import_transcripts([written])
    written.add(turn("5", session="unheard"))
    await importer(store).import_transcripts([written])
    for session in ("s", "unheard"):
        assert (await conversation(store, session)).facets["left_out"] == "marker"
        assert await texts(store, session) == []
    assert "unwise" not in str(await store.scan(RecordFilter(deleted=None)))


@pytest.mark.parametrize("is_first", [False, True])
async def test_a_copy_that_is_cut_takes_no_words_away(store: RecordStore, is_first: bool) -> None:
    original = Written("a", [turn("1"), turn("2!", "a long answer\n```py\nf()\n```")])
    fork = Written("b", [turn("1", session="t"), turn("2!", "a long", session="t")])
    fork.add(turn("3", session="t"))
    await importer(store).import_transcripts([fork, original] if is_first else [original, fork])
    kept = await texts(store, "t") + await texts(store, "s")
    assert sorted(kept) == ["1", "3", "a long answer\n```py\nf()\n```"]
    assert [each.text for each in await code_of(store, "2!")] == ["f()"]


async def test_a_copy_that_differs_or_is_left_out_changes_nothing(store: RecordStore) -> None:
    marked = Written("m", [turn("1", "short", session="m"), ExclusionEvent("m")])
    longer = Written("l", [turn("1", "short, and more", session="l"), turn("2", session="l")])
    other = Written("o", [turn("2", "other words that are longer", session="o")])
    await importer(store).import_transcripts([marked, longer, other])
    assert await texts(store, "m") == await texts(store, "o") == []
    assert await texts(store, "l") == ["2"]


async def test_a_mark_with_a_secret_is_not_kept(store: RecordStore) -> None:
    written = Written("a", [turn("1", project=f"/x/{TOKEN}"), turn("2!")])
    await importer(store).import_transcripts([written])
    [checkpoint] = await store.scan(RecordFilter(kinds=(TRANSCRIPT,)))
    assert "mark" not in checkpoint.facets
    written.add(turn("3"))
    imported = await importer(store).import_transcripts([written])
    assert (imported.total.turns, imported.total.turns_changed) == (1, 0)
    assert (await store.get([build_conversation_id(SOURCE, "s")]))[0].facets["turns"] == 3
