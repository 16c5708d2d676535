from pathlib import Path

import pytest

from making import DAY_ONE
from processes import said_by
from recollect.core.ports import RecordStore
from recollect.core.records import Where
from recollect.core.transcripts import Snippet
from recollect.engines.memory.store import MemoryStore
from recollect.engines.sqlite.library import SqliteLibrary
from recollect.errors import InvalidInput
from recollect.families.history.importing import forgetting
from recollect.families.history.importing.forgetting import forget
from recollect.families.history.model import SYMBOL, TURN, conversation_id
from transcribing import SOURCE, Written, contents, conversation, importer, texts, turn

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
    await importer(store).take_in(written)
    told: list[tuple[int, int]] = []
    done = await forget(
        store, clock, projects=["/p"], report=lambda *progress: told.append(progress)
    )
    assert (done.conversations, done.turns, done.code) == (1, 2, 1)
    assert told[-1] == (2, 2)
    talk = await conversation(store)
    assert talk.facets == {"source": "test", "left_out": "forgotten"}
    assert (talk.name, talk.scope, talk.tags) == (None, "", ())
    assert "/p" not in str(await store.scan(Where(deleted=None)))
    assert await texts(store, "t") == [CODE.format("yours")]


async def test_what_is_forgotten_does_not_come_back(store: RecordStore) -> None:
    written = talks()
    await importer(store).take_in(written)
    await forget(store, clock, projects=["/p"])
    written[0].add(turn("4", project="/p/x"))
    await importer(store).take_in(written)
    assert await texts(store) == []


async def test_a_conversation_is_forgotten_by_its_id(store: RecordStore) -> None:
    await importer(store).take_in(talks())
    done = await forget(store, clock, conversations=[conversation_id(SOURCE, "t")])
    assert (done.conversations, done.turns) == (1, 1)
    assert (await conversation(store, "t")).facets["left_out"] == "forgotten"
    assert len(await texts(store)) == 2


async def test_symbols_go_once_nothing_speaks_of_them(store: RecordStore) -> None:
    written = [
        Written("a", [turn("1", CODE.format("first"), project="/p")]),
        Written("b", [turn("2", CODE.format("second"), session="t", project="/p")]),
    ]
    await importer(store).take_in(written)
    await forget(store, clock, conversations=[conversation_id(SOURCE, "s")])
    names = {each.name for each in await store.scan(Where(kinds=(SYMBOL,)))}
    assert "first" not in names
    assert {"second", "shared"} <= names
    await forget(store, clock, projects=["/p"])
    assert await store.scan(Where(kinds=(SYMBOL,), deleted=None)) == []


async def test_turns_of_a_project_go_from_other_conversations_too(store: RecordStore) -> None:
    lines = [turn("1", project="/w"), turn("2", project="/w/p"), turn("3", project="/w")]
    written = Written("a", lines)
    await importer(store).take_in([written])
    done = await forget(store, clock, projects=["/w/p"])
    assert (done.conversations, done.turns) == (0, 1)
    assert await texts(store) == ["1", "3"]
    written.lines[0] = turn("1", "1, rewritten", project="/w")
    written.modified += 1
    await importer(store).take_in([written])
    assert await texts(store) == ["1, rewritten", "3"]


async def test_an_unknown_conversation_is_refused_and_nothing_goes(store: RecordStore) -> None:
    await importer(store).take_in(talks())
    before = await contents(store)
    with pytest.raises(InvalidInput):
        await forget(store, clock, conversations=[conversation_id(SOURCE, "s"), "conv_none"])
    assert await contents(store) == before


async def test_a_project_that_nobody_worked_in_forgets_nothing(store: RecordStore) -> None:
    await importer(store).take_in(talks())
    before = await contents(store)
    done = await forget(store, clock, projects=["/none"])
    assert (done.conversations, done.turns) == (0, 0)
    assert await contents(store) == before


async def test_a_long_conversation_goes_step_by_step(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "STEP", 3)
    await importer(store).take_in([Written("a", [turn(str(n), project="/p") for n in range(10)])])
    told: list[tuple[int, int]] = []
    await forget(store, clock, projects=["/p"], report=lambda *progress: told.append(progress))
    assert told == [(3, 10), (6, 10), (9, 10), (10, 10)]
    assert await store.how_many(Where(kinds=(TURN,), types=("said",), deleted=None)) == 0


class Dying(MemoryStore):
    """Fails at the purge of a number."""

    left = 0

    async def purge(self, refs):  # type: ignore[no-untyped-def]
        self.left -= 1
        if self.left == 0:
            raise ConnectionError
        return await super().purge(refs)


@pytest.mark.parametrize("at", [1, 2, 3])
async def test_what_was_interrupted_is_finished_by_the_next_import(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(forgetting, "STEP", 2)
    store = Dying()
    written = Written("a", [turn(str(n), project="/p") for n in range(6)])
    await importer(store).take_in([written])
    store.left = at
    with pytest.raises(ConnectionError):
        await forget(store, clock, projects=["/p"])
    await importer(store).take_in([written])
    assert await store.how_many(Where(kinds=(TURN,), types=("said",), deleted=None)) == 0
    assert (await conversation(store)).tags == ()


async def test_no_byte_of_it_stays_on_the_disk(tmp_path: Path) -> None:
    library = SqliteLibrary(tmp_path)
    store = await library.history()
    edit = Snippet("def wombatical(): pass", file="/p/zebroid.py", replaced="quaggish = 1")
    lines = [turn("1", "a platypodal secret", project="/p/okapian", snippets=(edit,))]
    await importer(store).take_in([Written("okapian/file", lines), talks()[1]])
    words = ["wombatical", "zebroid", "quaggish", "platypodal", "okapian"]
    assert said_by("files_with", tmp_path, *words)
    done = await forget(store, clock, projects=["/p"])
    assert done.complete
    assert said_by("files_with", tmp_path, *words) == []
    await library.close()
