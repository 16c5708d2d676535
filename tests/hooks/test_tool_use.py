import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from everkept.core.records import Record, RecordFilter, Update
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.read_only_library import open_read_only_library
from everkept.errors import EverkeptError
from everkept.hooks.events import HookAnswer, HookContext, HookEvent
from everkept.hooks.tool_use import handle_tool_use
from everkept.hooks.workspace import SessionLedger
from everkept.settings import Settings
from hook_session import NOW, here
from records import batch

TRACEBACK = "Exit code 1\nE       AttributeError: Limiter has no attribute window\n1 failed"


class Session:
    """An assistant at work in a repository, with hooks that write to a data folder."""

    def __init__(self, root: Path, name: str = "s-1", **settings: Any) -> None:
        self.name = name
        self.folder = root / "shop"
        (self.folder / ".git").mkdir(parents=True, exist_ok=True)
        self.settings = Settings(data_dir=root / "data", **settings)

    def tells(self, name: str, tool: str, **more: Any) -> HookAnswer | None:
        event = HookEvent(name, session=self.name, folder=self.folder, tool=tool, **more)
        ledger = SessionLedger(self.settings.data_dir / "hooks", self.name)
        room = open_read_only_library(self.settings.data_dir)
        try:
            return handle_tool_use(event, HookContext(self.settings, room, ledger, NOW, here))
        finally:
            if room is not None:
                here(room.close())

    def runs(self, command: str, output: str = "", **response: Any) -> HookAnswer | None:
        response = {"stdout": output, "stderr": "", "interrupted": False} | response
        return self.tells("PostToolUse", "Bash", tool_input={"command": command}, tool_response=response)

    def fails(self, command: str, error: str = TRACEBACK) -> HookAnswer | None:
        return self.tells("PostToolUseFailure", "Bash", tool_input={"command": command}, error=error)

    def edits(self, file: str | Path, tool: str = "Edit") -> HookAnswer | None:
        return self.tells("PostToolUse", tool, tool_input={"file_path": str(file)})

    def memories(self) -> list[Record]:
        room = open_read_only_library(self.settings.data_dir)
        if room is None:
            return []
        _, store = here(room.open("shop"))
        found = here(store.scan(RecordFilter(kinds=("memory",))))
        here(room.close())
        return found

    def texts(self) -> list[str]:
        return [record.text for record in self.memories()]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)


def test_a_failure_becomes_a_memory_of_the_session_that_nobody_asked_for(session: Session) -> None:
    assert session.fails("cd src && pytest -q 2>&1 | tail -5") is None
    (memory,) = session.memories()
    assert memory.text == ("`pytest -q` failed:\nE       AttributeError: Limiter has no attribute window\n1 failed")
    assert (memory.type, memory.scope, memory.session) == ("episodic", "session", "s-1")
    assert memory.facets == {"source": {"tool": "hook:PostToolUse"}, "automatic": True}
    assert (memory.importance, memory.tags, memory.author) == (0.4, ("failed",), None)


def test_the_same_event_twice_is_stored_once(session: Session) -> None:
    for _ in range(2):
        session.fails("pytest -q")
    for _ in range(2):
        session.edits("src/login.py")
    for _ in range(2):
        session.runs("pytest -q", "3 passed")
    for _ in range(2):
        session.runs("npm install")
    assert len(session.texts()) == 3


def test_a_failed_command_leaves_one_memory_however_it_goes_on(session: Session) -> None:
    session.fails("make", "first error")
    session.fails("make", "second error")
    assert session.texts() == ["`make` failed:\nsecond error"]
    session.runs("make")
    fixed = "`make` failed and then succeeded, with no file edited in between. It had failed with:\nsecond error"
    assert session.texts() == [fixed]
    session.fails("make", "second error")
    assert sorted(session.texts()) == sorted(["`make` failed:\nsecond error", fixed])
    session.runs("make")
    assert session.texts() == [fixed]


def test_a_failure_that_a_person_pinned_stays(session: Session) -> None:
    session.fails("make", "first error")
    (failure,) = session.memories()

    async def pin() -> None:
        library = SqliteLibrary(session.settings.data_dir)
        _, store = await library.open("shop")
        await store.commit(batch(Update(failure.id, {"facets": {**failure.facets, "pinned": True}}, failure.version)))
        await library.close()

    asyncio.run(pin())
    session.runs("make")
    assert len(session.texts()) == 2


def test_a_failed_command_that_works_later_says_what_was_edited_in_between(session: Session) -> None:
    session.edits("src/early.py")
    session.fails("pytest -q")
    session.edits("src/login.py")
    session.edits("src/early.py")
    session.runs("pytest -q | tail -1", "3 passed")
    memory = session.memories()[-1]
    assert memory.text == (
        "`pytest -q` failed and then succeeded, after edits of src/login.py, src/early.py. "
        "It had failed with:\n"
        "E       AttributeError: Limiter has no attribute window\n"
        "1 failed"
    )
    assert (memory.importance, memory.scope, memory.tags) == (0.45, "project", ("fixed",))
    assert memory.session == "s-1"


def test_a_command_that_works_is_kept_once_where_it_does_something(session: Session) -> None:
    session.runs("npm install express")
    session.runs("npm install express", "up to date")
    session.runs("ls -la", "login.py")
    session.runs("python script.py", "done")
    session.runs("git push")
    (memory,) = session.memories()
    assert memory.text == "`npm install express` worked."
    assert memory.tags == ("worked", "install")


def test_a_file_is_kept_once_where_it_is_the_projects_own(session: Session) -> None:
    session.edits(session.folder / "src" / "login.py")
    session.edits("src/login.py", "Write")
    session.edits("package-lock.json")
    session.edits("dist/app.js")
    session.edits("/etc/hosts")
    session.edits("../elsewhere.py")
    session.tells("PostToolUseFailure", "Edit", tool_input={"file_path": "src/other.py"})
    session.tells("PostToolUse", "NotebookEdit", tool_input={"notebook_path": "a.ipynb"})
    assert session.texts() == ["Edited src/login.py", "Edited a.ipynb"]
    assert session.memories()[0].facets["source"]["file"] == "src/login.py"


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("Read", {"file_path": "src/login.py"}),
        ("Bash", {}),
        ("Bash", {"command": 7}),
        ("Bash", {"command": "  "}),
        ("Bash", {"command": "grep -rn nothing ."}),
        ("Edit", {"file_path": None}),
        ("Edit", {"file_path": "bad\0name"}),
        ("Task", {"prompt": "x"}),
    ],
)
def test_all_else_is_worth_nothing_and_makes_nothing(session: Session, tool: str, given: dict[str, Any]) -> None:
    assert session.tells("PostToolUse", tool, tool_input=given, tool_response="x") is None
    assert not session.settings.data_dir.exists()


def test_secrets_do_not_reach_the_memory_even_where_a_text_is_cut(session: Session) -> None:
    secret = "sk-ant-api03-" + "Ab1" * 30
    padding = "x" * 165  # so that the command is cut in the middle of the secret
    session.fails(f"./deploy.sh {padding} {secret}", f"Error: {padding[:160]} {secret} is bad")
    (text,) = session.texts()
    assert "Ab1" not in text


def test_a_password_on_the_command_line_reaches_no_memory(session: Session) -> None:
    session.fails("docker login -u me -p Dck3rPass99 registry", "Error: Dck3rPass99 was denied")
    session.runs("docker login -u me -p Dck3rPass99 registry")
    assert session.texts() == [
        "`docker login -u me -p [masked: password] registry` failed and then succeeded, "
        "with no file edited in between. It had failed with:\nError: [masked: password] was denied"
    ]


def test_a_script_that_ends_itself_is_named_by_what_it_said(session: Session) -> None:
    session.fails("echo 'migration 0042 failed' >&2; exit 3", "Exit code 3\nmigration 0042 failed")
    (text,) = session.texts()
    assert text == "`echo 'migration 0042 failed' ; exit 3` failed:\nmigration 0042 failed"


@pytest.mark.parametrize("setting", [{"automatic_memories": False}, {"read_only": True}])
def test_settings_switch_it_off(tmp_path: Path, setting: dict[str, Any]) -> None:
    session = Session(tmp_path, **setting)
    session.fails("pytest")
    assert not session.settings.data_dir.exists()


def test_without_a_session_nothing_is_stored(tmp_path: Path) -> None:
    session = Session(tmp_path, name=" ")
    session.fails("pytest")
    assert not session.settings.data_dir.exists()


def test_a_session_stores_no_more_than_it_may_and_says_nothing(tmp_path: Path) -> None:
    session = Session(tmp_path, max_memories_per_session=2)
    for number in range(4):
        assert session.edits(f"src/{number}.py") is None
    assert len(session.texts()) == 2


def test_what_mended_an_error_is_told_when_another_session_meets_it(tmp_path: Path) -> None:
    first = Session(tmp_path)
    first.fails("pytest -q")
    first.edits("src/limiter.py")
    first.runs("pytest -q", "3 passed")
    second = Session(tmp_path, "s-2")
    assert second.fails("pytest -q", "Exit code 1\nTypeError: something else entirely") is None
    answer = second.fails("make test", TRACEBACK)
    assert answer is not None
    assert "after edits of src/limiter.py" in answer.context
    assert "<memories-" in answer.context
    assert second.fails("make test", TRACEBACK) is None
    assert first.fails("pytest -q") is None  # it was there


def test_a_hook_that_stores_loads_neither_the_model_nor_the_tools_of_the_web(tmp_path: Path) -> None:
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    event = {
        "session_id": "s-1",
        "cwd": str(tmp_path / "shop"),
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "pytest -q"},
        "tool_response": {"stdout": "1 failed", "stderr": "", "interrupted": False},
    }
    code = (
        "import sys, os\n"
        "from everkept.hooks import entry\n"
        "os._exit = lambda _: print([m for m in ('numpy', 'mcp', 'click', 'rich', 'yaml',"
        " 'onnxruntime') if m in sys.modules])\n"
        f"entry.main(['PostToolUse', '--data-dir', {str(tmp_path / 'data')!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(event), capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr
    assert Session(tmp_path).texts() == ["`pytest -q` failed:\n1 failed"]


def test_what_cannot_be_stored_happened_all_the_same(session: Session) -> None:
    session.runs("npm test", "all is well")
    there = session.settings.data_dir / "_meta.db"
    there.replace(there.with_name("elsewhere"))
    there.mkdir()
    for tell in (lambda: session.fails("make"), lambda: session.edits(session.folder / "a.py")):
        with pytest.raises(EverkeptError):
            tell()
    there.rmdir()
    there.with_name("elsewhere").replace(there)
    session.runs("make")
    assert "`make` failed and then succeeded, after edits of a.py." in session.texts()
