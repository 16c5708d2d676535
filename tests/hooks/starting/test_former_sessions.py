from pathlib import Path

import pytest

from hooking import SESSION, Desk, here
from making import DAY_ONE, memory
from recollect.core.records import Record
from recollect.hooks.starting.handling import session_start


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A folder with a past, in which a session works that another project was named for."""
    desk = Desk(tmp_path)
    here(desk.library.create("other", ""))
    folder = str(desk.folder)
    talk = Record(
        "conv",
        "conversation",
        DAY_ONE,
        DAY_ONE,
        name="Sharding of the ledger",
        session="before",
        scope=folder,
        facets={"turns": 2, "ended": DAY_ONE},
    )
    decided = Record(
        "turn",
        "turn",
        DAY_ONE,
        DAY_ONE,
        type="decision",
        text="We decided for eight shards.",
        session=SESSION,
        scope=folder,
        author="user",
    )
    desk.stored_of_past(talk, decided)
    desk.stored_of_user(memory("Likes tests.", scope="user", importance=0.9))
    return desk


def told(desk: Desk, source: str) -> str:
    answer = session_start(desk.event("SessionStart", source=source), desk.around(project="other"))
    return "" if answer is None else answer.context


def test_conversations_of_a_folder_that_is_off_are_not_told_to_another_project(desk: Desk) -> None:
    assert "Sharding of the ledger" in told(desk, "startup")
    here(desk.library.switch("shop", off=True))
    text = told(desk, "clear")
    assert "Likes tests." in text
    assert "Sharding of the ledger" not in text


def test_nor_is_what_the_session_decided_there_itself(desk: Desk) -> None:
    assert "eight shards" in told(desk, "compact")
    here(desk.library.switch("shop", off=True))
    text = told(desk, "compact")
    assert "Likes tests." in text
    assert "eight shards" not in text
