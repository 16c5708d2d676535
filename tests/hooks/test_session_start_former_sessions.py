from pathlib import Path
from typing import Any

import pytest

from everkept.core.records import Record
from everkept.hooks.session_start import handle_session_start
from hook_session import SESSION, Desk, here
from records import DAY_ONE, memory


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
    answer = handle_session_start(desk.event("SessionStart", source=source), desk.around(project="other"))
    return "" if answer is None else answer.context


def test_conversations_of_a_folder_that_is_off_are_not_told_to_another_project(desk: Desk) -> None:
    assert "Sharding of the ledger" in told(desk, "startup")
    here(desk.library.set_off("shop", off=True))
    text = told(desk, "clear")
    assert "Likes tests." in text
    assert "Sharding of the ledger" not in text


def test_nor_is_what_the_session_decided_there_itself(desk: Desk) -> None:
    assert "eight shards" in told(desk, "compact")
    here(desk.library.set_off("shop", off=True))
    text = told(desk, "compact")
    assert "Likes tests." in text
    assert "eight shards" not in text


def talk(desk: Desk, name: str, said: list[tuple[str, str]], **facets: Any) -> None:
    """A conversation of the folder, with turns of these types."""
    told = {"turns": len(said), "ended": DAY_ONE, **facets}
    where: dict[str, Any] = {"session": f"s of {name}", "scope": str(desk.folder)}
    turns = [
        Record(
            f"{name} {place}",
            "turn",
            DAY_ONE,
            DAY_ONE,
            type=kind,
            text=text,
            position=place,
            author="assistant" if place % 2 else "user",
            **where,
        )
        for place, (kind, text) in enumerate(said)
    ]
    record = Record(name, "conversation", DAY_ONE, DAY_ONE, name=name, facets=told, **where)
    desk.stored_of_past(record, *turns)


def line_of(text: str) -> str:
    return text.partition("### Recent Sessions\n")[2].splitlines()[0]


def test_a_session_is_told_by_what_was_asked_and_decided_and_not_by_counts(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    talk(
        desk,
        "hi",
        [
            ("said", "hi"),
            ("said", "Hello! What shall we do?"),
            ("said", "Let the shop keep its carts when somebody logs out."),
            ("decision", "There are two ways. We decided to keep carts in Redis. It has them already."),
            ("said", "Fine, now write the migration for it"),
            ("said", "Done."),
            ("said", "thanks"),
        ],
        named=0,
    )
    desk.stored(
        Record(
            "s of hi",
            "session",
            DAY_ONE,
            DAY_ONE,
            text="7 memories (6 episodic, 1 semantic). Key topics: failed, edited, carts",
        )
    )
    assert line_of(told_here(desk)) == (
        "- Let the shop keep its carts when somebody logs out. "
        "Decided: We decided to keep carts in Redis. "
        "Last prompt: Fine, now write the migration for it. (session; 7 turns; 3 days ago)"
    )


def test_topics_stand_in_for_decisions_without_those_of_what_hooks_store(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    talk(desk, "Repair the cart", [("said", "Repair the cart")])
    text = "2 memories. Key topics: failed, carts"
    desk.stored(Record("s of Repair the cart", "session", DAY_ONE, DAY_ONE, text=text))
    assert line_of(told_here(desk)).startswith("- Repair the cart. Topics: carts. (")


def test_a_title_that_somebody_gave_stays_and_a_talk_of_nothing_is_left_out(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    talk(desk, "Carts", [("said", "ok")])
    talk(desk, "hello", [("said", "hello"), ("said", "Hello!")], named=0)
    text = told_here(desk)
    assert "Carts" in text
    assert "hello" not in text


def told_here(desk: Desk) -> str:
    answer = handle_session_start(desk.event("SessionStart", source="startup"), desk.around())
    return "" if answer is None else answer.context
