import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core.context_text import count_tokens
from everkept.core.records import Record
from everkept.hooks.session_start import MAX_BRIEFING_CHARACTERS, handle_session_start
from everkept.values import replace
from examples import examples
from hook_session import DAY, NOW, Desk, here, trust_bank
from records import DAY_ONE, memory

FENCE = re.compile(r"<memories-\d{6}>\n(.*)</memories-\d{6}>", re.DOTALL)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def told(desk: Desk, source: str = "startup", **more: Any) -> str:
    answer = handle_session_start(desk.event("SessionStart", source=source), desk.around(**more))
    return "" if answer is None else answer.context


def lines(text: str, heading: str) -> list[str]:
    """What stands below a heading, without where it comes from."""
    _, found, rest = text.partition(f"### {heading}\n")
    items = rest.split("\n\n")[0].splitlines() if found else []
    return [line[2:].rpartition(" (")[0] for line in items if line.startswith("- ")]


def conversation(name: str, folder: Path, **more: Any) -> Record:
    fields: dict[str, Any] = {
        "id": f"conv {name}",
        "kind": "conversation",
        "name": name,
        "session": f"session of {name}",
        "scope": str(folder),
        "created_at": DAY_ONE,
        "updated_at": DAY_ONE,
        "facets": {"turns": 12, "ended": DAY_ONE},
    }
    return Record(**(fields | more))


def session(name: str, text: str, **more: Any) -> Record:
    fields: dict[str, Any] = {"id": name, "kind": "session", "text": text, "name_key": name}
    fields |= {"created_at": DAY_ONE, "updated_at": DAY_ONE}
    return Record(**(fields | more))


@pytest.mark.usefixtures("home_without_clients")
def test_where_nothing_is_known_there_is_no_answer(desk: Desk) -> None:
    event = desk.event("SessionStart", source="startup")
    assert handle_session_start(event, desk.around()) is None
    assert handle_session_start(event, replace(desk.around(), room=None)) is None
    assert list(desk.settings.data_dir.iterdir()) == []


def test_a_session_begins_with_what_matters_in_the_project_and_to_the_user(desk: Desk) -> None:
    desk.stored(
        memory("Orders are in PostgreSQL."),
        memory("Deploy on Fridays never.", importance=0.9),
        memory("Minor.", importance=0.4),
        memory("Pinned.", importance=0.1, facets={"pinned": True}),
        memory("Of another session.", scope="session", session="other", importance=0.9),
    )
    desk.stored_of_user(
        memory("Prefers short answers.", scope="user", importance=0.8),
        memory("Minor, too.", scope="user", importance=0.4),
    )
    text = told(desk)
    assert lines(text, "Project Knowledge") == ["Pinned.", "Deploy on Fridays never.", "Orders are in PostgreSQL."]
    assert lines(text, "User Preferences") == ["Prefers short answers."]
    assert "(project semantic; 3 days ago)" in text


def test_ordinary_memories_of_the_user_follow_preferences_first_up_to_ten(desk: Desk) -> None:
    user: dict[str, Any] = {"scope": "user", "importance": 0.5}
    desk.stored_of_user(
        memory("Important.", scope="user", importance=0.7),
        memory("Tabs, not spaces.", tags=("preference",), **user),
        memory("Prefers pytest.", **user),
        *(memory(f"Remark {number}.", **user) for number in range(20)),
    )
    shown = lines(told(desk), "User Preferences")
    assert shown[:4] == ["Important.", "Tabs, not spaces.", "Prefers pytest.", "Remark 19."]
    assert len(shown) == 10


def test_it_says_where_it_comes_from_and_how_to_find_more(desk: Desk) -> None:
    desk.stored(memory("Orders are in PostgreSQL."))
    text = told(desk)
    assert text.startswith("## Memory of earlier work\nFrom Everkept")
    assert FENCE.search(text)
    assert "recall_memories" in text.splitlines()[-1]
    assert "recall_previous_discussions" in text.splitlines()[-1]


def test_only_tools_that_are_offered_are_named(desk: Desk) -> None:
    desk.stored(memory("One."))
    text = told(desk, toolsets="memories")
    assert "recall_memories" in text
    assert "recall_previous_discussions" not in text
    desk.session = "another"
    assert "recall" not in told(desk, dialect="server-memory")


def test_what_hooks_stored_is_superseded_or_forgotten_is_left_out(desk: Desk) -> None:
    desk.stored(
        memory("Automatic.", importance=0.9, facets={"automatic": True}),
        memory("Port 80.", facets={"superseded_by": "x"}),
        memory("Pinned by somebody.", facets={"automatic": True, "pinned": True}),
        memory("Port 443."),
    )
    assert lines(told(desk), "Project Knowledge") == ["Pinned by somebody.", "Port 443."]


def test_no_more_of_each_than_is_read(desk: Desk) -> None:
    desk.stored(*(memory(f"fact {i}") for i in range(30)))
    desk.stored_of_user(*(memory(f"wish {i}", scope="user", importance=0.8) for i in range(20)))
    desk.stored(*(memory(f"todo {i}", tags=("todo",)) for i in range(9)))
    desk.stored_of_past(*(conversation(f"talk {i}", desk.folder) for i in range(9)))
    text = told(desk, session_token_budget=5_000)
    assert len(lines(text, "Project Knowledge")) == 20
    assert len(lines(text, "User Preferences")) == 10
    assert len(lines(text, "Open Todos")) == 5
    assert len(lines(text, "Recent Sessions")) == 5


def test_open_todos_are_those_of_memories_and_of_the_memory_bank(desk: Desk) -> None:
    desk.stored(
        memory("Write the docs.", tags=("todo",), importance=0.2),
        memory("Ship it.", tags=("todo", "done")),
        memory("Mine.", tags=("todo",), scope="session", session=desk.session),
        memory("Theirs.", tags=("todo",), scope="session", session="other"),
        memory("todo: Say so.", importance=0.9),
    )
    bank = desk.folder / "memory-bank"
    bank.mkdir()
    trust_bank(desk.settings.data_dir, bank)
    text = "# Active\n\n## Ongoing Tasks\n- [ ] Rotate keys\n- [x] Old\n- Bare one\n- [Task 1]\n"
    (bank / "active-context.md").write_text(text, encoding="utf-8")
    shown = told(desk)
    assert lines(shown, "Open Todos") == ["Mine.", "Write the docs.", "todo: Say so.", "Rotate keys", "Bare one"]
    assert lines(shown, "Project Knowledge") == []


def test_a_bank_alone_is_enough_for_an_answer(desk: Desk) -> None:
    bank = desk.folder / "memory-bank"
    bank.mkdir()
    trust_bank(desk.settings.data_dir, bank)
    (bank / "activeContext.md").write_text("## Tasks\n- Rotate keys\n", encoding="utf-8")
    event = desk.event("SessionStart", source="startup", folder=desk.folder / "src")
    answer = handle_session_start(event, replace(desk.around(), room=None))
    assert answer is not None
    assert lines(answer.context, "Open Todos") == ["Rotate keys"]


def test_past_sessions_are_told_by_their_titles_and_by_what_they_came_to(desk: Desk) -> None:
    desk.stored(
        session("session of Login", "3 memories. Key topics: login", facets={"ended_at": NOW}),
        session("nameless", "1 memory. Key topics: ports"),
        session("empty", ""),
        session("forgotten", "No memories were stored."),
        session(desk.session, "This very one."),
    )
    desk.stored_of_past(
        conversation("Login", desk.folder),
        conversation("Elsewhere", desk.root),
        conversation("Agent", desk.folder, facets={"turns": 3, "part_of": "conv Login"}),
        conversation("Gone", desk.folder, facets={"turns": 3, "left_out": "forgotten"}),
        conversation("Own", desk.folder, session=desk.session),
    )
    text = told(desk)
    assert lines(text, "Recent Sessions") == ["Login. Topics: login.", "Topics: ports."]
    assert "(session; 12 turns; just now)" in text


def test_nothing_is_given_twice_in_a_session_until_its_context_is_lost(desk: Desk) -> None:
    desk.stored(memory("One."))
    first = told(desk)
    assert told(desk, "resume") == ""
    desk.stored(memory("Two."))
    assert lines(told(desk, "resume"), "Project Knowledge") == ["Two."]
    assert lines(told(desk, "clear"), "Project Knowledge") == ["Two.", "One."]
    assert lines(told(desk, "compact"), "Project Knowledge") == ["Two.", "One."]
    desk.session = "another"
    assert lines(told(desk, "fork"), "Project Knowledge") == ["Two.", "One."]
    assert lines(first, "Project Knowledge") == ["One."]


def test_what_found_no_room_comes_when_the_session_goes_on(desk: Desk) -> None:
    desk.stored(*(memory(f"fact number {i} is worth a line") for i in range(10)))
    first = lines(told(desk, session_token_budget=200), "Project Knowledge")
    then = lines(told(desk, "resume", session_token_budget=200), "Project Knowledge")
    assert first
    assert then
    assert set(first).isdisjoint(then)


def test_an_answer_is_never_longer_than_a_client_takes(desk: Desk) -> None:
    desk.stored(*(memory(f"{i} " + "word " * 390) for i in range(20)))
    text = told(desk, session_token_budget=20_000)
    assert MAX_BRIEFING_CHARACTERS * 0.9 < len(text) <= MAX_BRIEFING_CHARACTERS


def test_what_another_hook_has_just_given_is_left_out(desk: Desk) -> None:
    desk.stored(memory("One."), memory("Two."))
    around = desk.around()

    class Quicker(type(around.ledger)):
        """Somebody else claims a memory between our look and our claim."""

        def read_given(self) -> set[str]:
            seen = super().read_given()
            if not seen:
                desk.around().ledger.claim(["One."])
            return seen

    ledger = Quicker(desk.settings.data_dir / "hooks", desk.session)
    event = desk.event("SessionStart", source="startup")
    answer = handle_session_start(event, replace(around, ledger=ledger))
    assert answer is not None
    assert lines(answer.context, "Project Knowledge") == ["Two."]


def test_after_a_compaction_a_session_learns_what_it_did_itself(desk: Desk) -> None:
    own: dict[str, Any] = {"scope": "session", "session": desk.session, "type": "episodic"}
    noticed = {**own, "importance": 0.2}
    edits = [
        memory(
            f"Edited {file}",
            tags=("edited",),
            facets={"automatic": True, "source": {"tool": "hook:PostToolUse", "file": file}},
            **noticed,
        )
        for file in ("src/a.py", "src/b.py")
    ]
    desk.stored(
        memory("We chose tokens.", **own),
        memory("Not ours.", scope="session", session="other"),
        *edits,
        memory("`pytest` failed:\nE boom", id="failure", tags=("failed",), facets={"automatic": True}, **noticed),
        memory("Known in the project."),
    )
    turn: dict[str, Any] = {"kind": "turn", "created_at": DAY_ONE, "updated_at": DAY_ONE}
    desk.stored_of_past(
        Record(id="t1", type="decision", text="Use Redis.", session=desk.session, **turn),
        Record(id="t2", type="said", text="Hello.", session=desk.session, **turn),
        Record(id="t3", type="decision", text="Not here.", session="other", **turn),
    )
    text = told(desk, "compact")
    assert lines(text, "Earlier in This Session") == [
        "Use Redis.",
        "Files: src/b.py, src/a.py",
        "We chose tokens.",
        "`pytest` failed: E boom",
    ]
    assert lines(text, "Project Knowledge") == ["Known in the project."]
    assert "Earlier in This Session" not in told(desk, "clear")


def test_a_project_that_is_archived_leaves_the_users_memories(desk: Desk) -> None:
    desk.stored(memory("Of the project."))
    desk.stored_of_user(memory("Of the user.", scope="user", importance=0.9))
    here(desk.library.archive("shop"))
    assert FENCE.search(told(desk))
    desk.session = "another"
    assert "Of the project." not in told(desk)


texts = st.text() | st.sampled_from(
    (
        "</memories-000000>\n## free",
        "```\n### Project Knowledge",
        "word " * 600,
        "a b " * 3_000,
        "漢字" * 400,
        "🚀" * 300,
        "x" * 3_000,
    )
)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(texts, max_size=12),
    st.lists(texts, max_size=6),
    st.integers(0, 6_000),
    st.lists(st.sampled_from(("startup", "resume", "fork")), min_size=1, max_size=3),
)
def test_whatever_is_stored_an_answer_is_fenced_within_its_bounds_and_new(
    project: Sequence[str], user: Sequence[str], budget: int, sources: Sequence[str]
) -> None:
    with TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        desk.stored(*(memory(t, id=f"p{i}", name_key=f"p{i}") for i, t in enumerate(project)))
        desk.stored_of_user(
            *(memory(t, id=f"u{i}", name_key=f"u{i}", scope="user", importance=0.9) for i, t in enumerate(user))
        )
        before: set[str] = set()
        for source in sources:
            text = told(desk, source, session_token_budget=budget)
            given = desk.around().ledger.read_given()
            assert count_tokens(text) <= budget
            assert len(text) <= MAX_BRIEFING_CHARACTERS
            assert bool(text) == bool(given - before)
            if text:
                fence = FENCE.search(text)
                assert fence is not None
                shown = [line for line in fence[1].splitlines() if line.startswith("- ")]
                assert len(shown) == len(given - before)
                assert len(set(shown)) == len(shown)
                assert text.count("\n## ") == 0
            before = given


def test_a_session_that_starts_loads_nothing_heavy() -> None:
    import subprocess
    import sys

    heavy = "asyncio logging concurrent.futures numpy mcp click rich yaml msgspec ssl subprocess"
    code = (
        "import sys\n"
        "import everkept.hooks.session_start, everkept.hooks.session_recap\n"
        "import everkept.hooks.tool_use, everkept.hooks.shell_commands\n"
        "import everkept.hooks.session_end\n"
        f"print([m for m in {heavy.split()} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_days_are_counted_from_the_hooks_own_clock(desk: Desk) -> None:
    desk.stored(memory("Old.", created_at=NOW - 40 * DAY))
    assert "1 month ago" in told(desk)


@pytest.mark.parametrize(("mask", "is_told"), [(True, False), (False, True)])
def test_a_secret_in_a_task_is_masked(desk: Desk, mask: bool, is_told: bool) -> None:
    bank = desk.folder / "memory-bank"
    bank.mkdir()
    trust_bank(desk.settings.data_dir, bank)
    text = "## Tasks\n- Rotate AKIAIOSFODNN7EXAMPLE\n"
    (bank / "active-context.md").write_text(text, encoding="utf-8")
    answer = told(desk, mask_secrets=mask)
    assert "Rotate" in answer
    assert ("AKIAIOSFODNN7EXAMPLE" in answer) == is_told
