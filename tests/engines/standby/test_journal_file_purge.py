from collections.abc import Sequence
from pathlib import Path

import pytest

from everkept.core.records import Delete, Record, Ref, Restore, Update
from everkept.engines.standby.journal import PROJECT_TOPIC, ForgottenWrites, Journal, JournalCounts
from everkept.engines.standby.journal_acts import HISTORY_STORE, USER_STORE, Commit, SetNote, format_store_name
from records import DAY_ONE, batch, entity, link, memory, note, record_ref

SECRET = "the word that nobody may read"


async def kept(journal: Journal, *commits: Commit) -> list[int]:
    """They are set aside."""
    numbers = [await journal.append(each, place) for place, each in enumerate(commits)]
    for number in numbers:
        await journal.reject(number, f"There is no place for {SECRET}.")
    return numbers


def bytes_of(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.glob("journal.db*"))


def made_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def told(folder: Path) -> bool:
    return SECRET.encode() in bytes_of(folder)


@pytest.mark.parametrize(
    "about",
    [
        batch(memory(SECRET, id="a")),
        batch(Update("a", {"text": SECRET}, 1)),
        batch(note("a", SECRET)),
        batch(link("a", SECRET, "b")),
        batch(link("b", SECRET, "a")),
        batch(memory(SECRET, id="a"), Delete(record_ref("a")), Restore(record_ref("a"))),
    ],
)
async def test_no_byte_of_what_is_removed_for_good_stays(journal: Journal, tmp_path: Path, about: object) -> None:
    await kept(journal, Commit(USER_STORE, about))  # type: ignore[arg-type]
    assert told(tmp_path)
    assert await journal.forget(USER_STORE, [record_ref("a")]) == ForgottenWrites(1, complete=True)
    assert (journal.count_writes(), told(tmp_path)) == (JournalCounts(0, 0), False)


async def test_nothing_is_left_of_what_was_brought_over_long_ago(journal: Journal, tmp_path: Path) -> None:
    await journal.remove(await journal.append(Commit(USER_STORE, batch(memory(SECRET, id="a")))))
    assert told(tmp_path)
    assert await journal.forget(USER_STORE, [record_ref("a")]) == ForgottenWrites(0, complete=True)
    assert not told(tmp_path)


async def test_what_else_an_entry_holds_is_kept(journal: Journal, tmp_path: Path) -> None:
    both = batch(memory(SECRET, id="a"), entity("Ada"), key="k", undoes=7)
    waiting = await journal.append(Commit(USER_STORE, both), 5)
    [aside] = await kept(journal, Commit(USER_STORE, both))
    assert (await journal.forget(USER_STORE, [record_ref("a")])).entries == 2
    assert not told(tmp_path)
    rest = Commit(USER_STORE, batch(entity("Ada"), key="k", undoes=7))
    [entry] = await journal.list_pending()
    assert (entry.seq, entry.act, entry.local_seq) == (waiting, rest, 5)
    [left] = await journal.list_rejected()
    assert (left.seq, left.act) == (aside, rest)
    assert journal.count_writes() == JournalCounts(1, 1)


async def test_others_are_left_alone(journal: Journal) -> None:
    await kept(
        journal,
        Commit(HISTORY_STORE, batch(memory("x", id="a"))),
        Commit(USER_STORE, batch(memory("x", id="b"), link("b", "of", "c", id="a"))),
    )
    await journal.append(SetNote("a", "a"))
    before = [await journal.list_rejected(), await journal.list_pending()]
    assert await journal.forget(USER_STORE, [record_ref("a")]) == ForgottenWrites(0, complete=True)
    assert [await journal.list_rejected(), await journal.list_pending()] == before


async def test_what_belongs_to_it_goes_with_it_however_deep(journal: Journal) -> None:
    child: Record = note("a", "child")
    await kept(
        journal,
        Commit(USER_STORE, batch(child, note("child", "grandchild"), entity("Ada"))),
        Commit(USER_STORE, batch(link("Ada", "of", "grandchild"))),
    )
    assert (await journal.forget(USER_STORE, [record_ref("a")])).entries == 2
    [left] = await journal.list_rejected()
    assert left.act == Commit(USER_STORE, batch(entity("Ada"), key=left.act.batch.key))  # type: ignore[union-attr]


@pytest.mark.parametrize(("refs", "left"), [([record_ref("a")], 1), ([Ref("link", "l")], 1)])
async def test_what_belongs_to_it_may_stay(journal: Journal, refs: Sequence[Ref], left: int) -> None:
    await kept(
        journal,
        Commit(USER_STORE, batch(memory(SECRET, id="a", updated_at=DAY_ONE))),
        Commit(USER_STORE, batch(link("a", "of", "b", id="l"))),
    )
    assert (await journal.forget(USER_STORE, refs, belongings=False)).entries == 1
    assert journal.count_writes().aside == left


async def test_a_project_that_was_made_on_both_sides_is_one(journal: Journal) -> None:
    await journal.note(PROJECT_TOPIC, "here", "there")
    await kept(journal, Commit(format_store_name("here"), batch(memory(SECRET, id="a"))))
    assert (await journal.forget(format_store_name("there"), [record_ref("a")])).entries == 1


async def test_where_nothing_ever_waited_nothing_is_made(journal: Journal, tmp_path: Path) -> None:
    assert await journal.forget(USER_STORE, [record_ref("a")]) == ForgottenWrites(0, complete=True)
    assert not made_in(tmp_path)
