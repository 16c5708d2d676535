import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everkept.app.hook_tasks import store_memory
from everkept.core.times import read_clock
from everkept.families.memories.memory_record import NewMemory
from everkept.families.memories.model import MemorySource
from everkept.settings import Settings

Run = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("repository")
Notice = Callable[..., None]

DAY = 86_400 * 1_000_000


@pytest.fixture
def notice(tmp_path: Path, repository: Path) -> Notice:
    """Stores a memory as a hook does."""

    def store(text: str, session: str = "s-1", days_ago: int = 0, folder: Path = repository, **more: Any) -> None:
        wanted = NewMemory(
            content=text,
            type="episodic",
            importance=0.2,
            session=session,
            source=MemorySource(tool="hook:PostToolUse"),
            **{"scope": "session"} | more,
        )
        clock = lambda: read_clock() - days_ago * DAY  # noqa: E731
        asyncio.run(store_memory(Settings(data_dir=tmp_path / "data"), folder, wanted, clock=clock))

    return store


def contents(answer: Any) -> list[str]:
    return [memory["content"] for memory in answer.json["memories"]]


def test_what_hooks_stored_is_listed_apart_and_marked(everkept: Run, notice: Notice) -> None:
    everkept("remember", "Asked for")
    notice("Edited a.py")
    assert contents(everkept("list", "--automatic", "--json")) == ["Edited a.py"]
    both = everkept("list", "--json").json["memories"]
    assert [memory.get("automatic") for memory in both] == [True, None]
    listed = everkept("list").out
    assert listed.count("automatic") == 1
    assert " · automatic · " in listed


def test_what_is_recalled_is_marked_too(everkept: Run, notice: Notice, monkeypatch: pytest.MonkeyPatch) -> None:
    notice("Edited limiter.py")
    monkeypatch.setenv("MEMORY_SESSION_ID", "s-1")
    assert " · automatic · " in everkept("recall", "limiter").out


def test_what_somebody_made_their_own_is_marked_no_longer(everkept: Run, notice: Notice) -> None:
    notice("Edited limiter.py", scope="project")
    [memory] = everkept("list", "--json").json["memories"]
    everkept("update-memory", memory["id"], "--importance", "0.9")
    for shown in (everkept("list").out, everkept("recall", "limiter").out):
        assert "limiter.py" in shown
        assert "automatic" not in shown
    assert contents(everkept("list", "--automatic", "--json")) == []


def test_all_of_it_is_forgotten_at_once_and_comes_back_by_one_undo(everkept: Run, notice: Notice) -> None:
    everkept("remember", "Asked for")
    for name in ("a.py", "b.py", "c.py", "d.py"):
        notice(f"Edited {name}")
    gone = everkept("forget", "--automatic", "--yes")
    assert gone.out == "Forgot 4 automatic memories of shop. To reverse this, run `everkept undo`.\n"
    assert contents(everkept("list", "--json")) == ["Asked for"]
    everkept("undo")
    assert len(contents(everkept("list", "--json"))) == 5


def test_what_was_forgotten_in_two_places_comes_back_as_it_is_told(everkept: Run, notice: Notice) -> None:
    notice("Edited a.py")
    notice("Edited b.py", scope="user")
    notice("Edited c.py", scope="user")
    gone = everkept("forget", "--automatic", "--yes").out
    assert gone == (
        "Forgot 3 automatic memories, 1 of shop and 2 of @user. "
        "To reverse it for one project, run `everkept undo --project NAME`.\n"
    )
    assert contents(everkept("list", "--json")) == []
    everkept("undo", "--project", "shop")
    assert contents(everkept("list", "--json")) == ["Edited a.py"]
    everkept("undo", "--project", "@user")
    assert len(contents(everkept("list", "--json"))) == 3


def test_what_was_forgotten_in_a_named_project_comes_back_by_its_name(
    everkept: Run, notice: Notice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notice("Edited a.py")
    monkeypatch.chdir(tmp_path)
    gone = everkept("forget", "--automatic", "--yes", "--project", "shop").out
    back = 'To reverse this, run `everkept undo --project "shop"`'
    assert gone == f"Forgot 1 automatic memory of shop. {back}.\n"
    everkept("undo", "--project", "shop")
    assert contents(everkept("list", "--json", "--project", "shop")) == ["Edited a.py"]


def test_undo_means_what_a_person_did_although_a_hook_stored_since(everkept: Run, notice: Notice) -> None:
    notice("Edited a.py")
    everkept("forget", "--automatic", "--yes")
    notice("Edited b.py")
    everkept("undo")
    assert sorted(contents(everkept("list", "--json"))) == ["Edited a.py", "Edited b.py"]


def test_only_those_of_a_session_or_from_before_a_time_are_meant(everkept: Run, notice: Notice) -> None:
    notice("Edited old.py", days_ago=40)
    notice("Edited new.py")
    notice("Edited other.py", session="s-2")
    gone = everkept("forget", "--automatic", "--before", "2 weeks ago", "--yes", "--json")
    assert gone.json == {"forgotten": 1}
    assert contents(everkept("list", "--json")) == ["Edited other.py", "Edited new.py"]
    everkept("forget", "--automatic", "--session", "s-2", "--yes")
    assert contents(everkept("list", "--json")) == ["Edited new.py"]


def test_a_pinned_one_stays(everkept: Run, notice: Notice) -> None:
    notice("Edited a.py", pinned=True)
    assert everkept("forget", "--automatic", "--yes", "--json").json == {"forgotten": 0}
    said = everkept("forget", "--automatic", "--yes").out
    assert said == ("No automatic memories match in shop or your user scope. Nothing changed.\n")
    assert contents(everkept("list", "--json")) == ["Edited a.py"]


def test_a_person_is_asked_first(everkept: Run, notice: Notice) -> None:
    notice("Edited a.py")
    assert everkept("forget", "--automatic").status == 2
    asked = everkept("forget", "--automatic", stdin="n\n", terminal=True)
    assert "Forget 1 automatic memory of shop (Edited a.py)?" in asked.err
    assert asked.out == "Nothing changed.\n"
    assert contents(everkept("list", "--json")) == ["Edited a.py"]
    everkept("forget", "--automatic", stdin="y\n", terminal=True)
    assert contents(everkept("list", "--json")) == []


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--session", "s-1"),
        ("memory:x", "--before", "yesterday"),
        ("memory:x", "--automatic"),
        ("--automatic", "--reason", "x"),
        ("--automatic", "--before", "whenever", "--yes"),
        ("memory:x", "--all-projects"),
    ],
)
def test_what_is_not_clear_is_refused_and_changes_nothing(
    everkept: Run, notice: Notice, arguments: tuple[str, ...]
) -> None:
    notice("Edited a.py")
    assert everkept("forget", *arguments).status == 2
    assert contents(everkept("list", "--json")) == ["Edited a.py"]


@pytest.fixture
def three(everkept: Run, notice: Notice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Automatic memories of two projects and of one that is off; commands are called elsewhere."""
    notice("Edited a.py")
    for name in ("blog", "private"):
        folder = tmp_path / name
        (folder / ".git").mkdir(parents=True)
        monkeypatch.chdir(folder)
        notice(f"Edited {name}.py", folder=folder)
    everkept("off")
    monkeypatch.chdir(tmp_path / "blog")
    return everkept


def test_it_is_said_which_project_is_meant(three: Run, tmp_path: Path) -> None:
    listed = three("list", "--automatic").out
    assert listed.startswith("Automatic memories of blog and your user scope. ")
    assert "a.py" not in listed
    assert "Automatic" not in three("list").out
    assert "2 of them automatic" not in three("status").out
    assert "3 of them automatic, 1 in blog (" in three("status").out


def test_those_of_all_projects_are_listed_and_forgotten_but_of_one_that_is_off(three: Run) -> None:
    listed = three("list", "--automatic", "--all-projects", "--json").json["memories"]
    assert [(each["project"], each["content"]) for each in listed] == [
        ("blog", "Edited blog.py"),
        ("shop", "Edited a.py"),
    ]
    assert " · shop · " in three("list", "--all-projects").out
    gone = three("forget", "--automatic", "--all-projects", "--yes").out
    assert gone.startswith("Forgot 2 automatic memories, 1 of blog and 1 of shop. ")
    assert three("forget", "--automatic", "--all-projects", "--yes").out == (
        "No automatic memories match in any project. Nothing changed.\n"
    )
    three("undo", "--project", "shop")
    assert contents(three("list", "--all-projects", "--json")) == ["Edited a.py"]
    three("on", "--project", "private")
    assert contents(three("list", "--project", "private", "--json")) == ["Edited private.py"]


def test_a_mistake_is_told_in_the_words_of_the_help(everkept: Run) -> None:
    told = everkept("forget", "memory:x", "--automatic").err
    assert "and ID one" in told
    assert "memory_id" not in told
    assert "--reason" in everkept("forget", "--automatic", "--reason", "x").err
