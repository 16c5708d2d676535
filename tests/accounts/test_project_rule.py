import asyncio
import os
from pathlib import Path

import pytest

from everkept.accounts.account_library import GuardedLibrary
from everkept.accounts.accounts import Accounts
from everkept.accounts.project_rule import DEFAULT_PROJECT, ProjectRule
from everkept.core.folder_project import choose_project
from everkept.core.ports import Library
from everkept.core.records import RecordFilter
from everkept.core.sessions import Account, Session, ToolCall, act_as
from everkept.core.times import read_clock
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import NoActiveProject, NotFound, ProjectArchived, ProjectOff
from processes import acting
from records import batch, entity


@pytest.fixture
async def library(library: Library) -> Library:
    for name in ("called", "session", "configured"):
        await library.create(name, "")
    return library


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    return folder


def call(project: str | None = None, *, stateful: bool = True) -> ToolCall:
    return ToolCall(Session(project=project, stateful=stateful), "test")


async def names(library: Library) -> set[str]:
    return {project.name for project in await library.list_projects()}


async def written_to(library: Library, rule: ProjectRule, made: ToolCall, name: str | None) -> str:
    """The project that a write reaches, and that a read then sees."""
    store = await rule.open_to_write(made, name)
    await store.commit(batch(entity("written")))
    read = await rule.open_to_read(made, name)
    assert [record.id for record in await read.scan(RecordFilter())] == ["written"]
    [found] = [
        project.name
        for project in await library.list_projects()
        if await (await library.open(project.name))[1].scan(RecordFilter())
    ]
    return found


async def test_the_call_goes_before_the_session_and_the_session_before_the_rest(
    library: Library, workspace: Path
) -> None:
    rule = ProjectRule(library, configured="configured", workspace=workspace)
    assert await written_to(library, rule, call("session"), "called") == "called"


async def test_the_session_goes_before_the_configured_project(library: Library, workspace: Path) -> None:
    rule = ProjectRule(library, configured="configured", workspace=workspace)
    assert await written_to(library, rule, call("session"), None) == "session"


async def test_the_configured_project_goes_before_the_workspace(library: Library, workspace: Path) -> None:
    rule = ProjectRule(library, configured="configured", workspace=workspace)
    assert await written_to(library, rule, call(), None) == "configured"


async def test_the_workspace_is_what_is_left(library: Library, workspace: Path) -> None:
    rule = ProjectRule(library, workspace=workspace)
    assert await written_to(library, rule, call(), None) == "shop"


async def test_without_any_of_them_there_is_no_active_project(library: Library) -> None:
    rule = ProjectRule(library)
    for choose in (rule.open_to_read, rule.open_to_write):
        with pytest.raises(NoActiveProject) as caught:
            await choose(call(), None)
        assert caught.value.hint is None
        with pytest.raises(NoActiveProject) as caught:
            await choose(call(stateful=False), None)
        assert caught.value.hint
    assert await rule.find_active(call()) is None


@pytest.mark.parametrize("configured", ["fresh", None])
async def test_a_project_is_made_at_the_first_write_and_reads_as_empty_until_then(
    library: Library, workspace: Path, configured: str | None
) -> None:
    rule = ProjectRule(library, configured=configured, workspace=workspace)
    before = await names(library)
    store = await rule.open_to_read(call(), None)
    assert await store.scan(RecordFilter()) == []
    assert await rule.find_active(call()) is None
    assert await names(library) == before
    made = await written_to(library, rule, call(), None)
    assert made == (configured or "shop")
    current = await rule.find_active(call())
    assert current is not None
    assert current.name == made
    assert await names(library) == before | {made}


async def test_a_project_that_a_call_or_session_names_is_not_made(library: Library, workspace: Path) -> None:
    rule = ProjectRule(library, configured="configured", workspace=workspace)
    before = await names(library)
    for made, name in ((call(), "unknown"), (call("unknown"), None)):
        for choose in (rule.open_to_read, rule.open_to_write):
            with pytest.raises(NotFound):
                await choose(made, name)
    with pytest.raises(NotFound):
        await rule.find_active(call("unknown"))
    assert await names(library) == before


async def test_an_archived_project_is_refused_wherever_it_is_chosen(library: Library, workspace: Path) -> None:
    rule = ProjectRule(library, workspace=workspace)
    await written_to(library, rule, call(), None)
    await library.archive("shop")
    for made, name in ((call(), "shop"), (call("shop"), None), (call(), None)):
        for choose in (rule.open_to_read, rule.open_to_write):
            with pytest.raises(ProjectArchived):
                await choose(made, name)
    assert "shop-2" not in await names(library)


async def test_two_folders_of_one_name_get_two_projects(library: Library, tmp_path: Path) -> None:
    folders = [tmp_path / "one" / "shop", tmp_path / "two" / "shop", tmp_path / "shop"]
    for folder in folders:
        (folder / ".git").mkdir(parents=True)
        await ProjectRule(library, workspace=folder).open_to_write(call(), None)
    assert {"shop", "shop-2", "shop-3"} <= await names(library)


async def test_a_subfolder_uses_the_project_of_its_repository(library: Library, workspace: Path) -> None:
    (workspace / "src").mkdir()
    await ProjectRule(library, workspace=workspace / "src").open_to_write(call(), None)
    current = await ProjectRule(library, workspace=workspace).find_active(call())
    assert current is not None
    assert current.name == "shop"


async def test_a_project_file_makes_a_folder_and_its_subfolders_a_project(library: Library, tmp_path: Path) -> None:
    deep = tmp_path / "shop" / "src" / "deep"
    deep.mkdir(parents=True)
    (tmp_path / "shop" / "pyproject.toml").touch()
    rule = ProjectRule(library, workspace=deep)
    assert await written_to(library, rule, call(), None) == "shop"
    around = await ProjectRule(library, workspace=tmp_path / "shop").find_active(call())
    assert around is not None
    assert around.name == "shop"


async def test_a_folder_without_a_project_file_is_no_project_unless_one_is_linked(
    library: Library, tmp_path: Path
) -> None:
    inside = tmp_path / "notes" / "march"
    inside.mkdir(parents=True)
    rule = ProjectRule(library, workspace=inside)
    assert await written_to(library, rule, call(), None) == DEFAULT_PROJECT
    linked = await library.create("diary", "")
    await library.link_workspace(str((tmp_path / "notes").resolve()), linked)
    assert await rule.find_active(call()) == linked
    assert (await rule.ensure_project(call())).name == "diary"


async def test_a_chosen_project_that_vanished_is_reported_once_and_the_folders_own_is_used(
    library: Library, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rule = ProjectRule(library, workspace=workspace)
    own = await rule.ensure_project(call())
    await choose_project(library, workspace, (await library.create("ideas", "")).name)
    assert (await rule.ensure_project(call())).name == "ideas"
    await library.delete("ideas")
    for _ in range(2):
        assert await rule.ensure_project(call()) == own
    assert [record.message for record in caplog.records] == [
        'Project "ideas", chosen for this folder, no longer exists. Project "shop" is used instead. '
        "To clear the choice, run `everkept doctor --fix`."
    ]


async def test_home_means_the_default_project(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for folder in (tmp_path, Path(tmp_path.anchor)):
        rule = ProjectRule(library, workspace=folder)
        await rule.open_to_write(call(), None)
        current = await rule.find_active(call())
        assert current is not None
        assert current.name == DEFAULT_PROJECT
    assert await names(library) == {"called", "session", "configured", DEFAULT_PROJECT}


@pytest.mark.parametrize(
    "folder", ["x" * 150, "tab\there", "line\nbreak", "a\\b", "x" * 93 + " y", os.fsdecode(b"caf\xe9")], ids=repr
)
async def test_a_folder_whose_name_cannot_be_a_projects_gets_one_all_the_same(
    library: Library, tmp_path: Path, folder: str
) -> None:
    (tmp_path / folder / ".git").mkdir(parents=True)
    rule = ProjectRule(library, workspace=tmp_path / folder)
    await rule.open_to_write(call(), None)
    assert await rule.find_active(call()) is not None


async def test_calls_at_once_make_one_project(library: Library, workspace: Path) -> None:
    rule = ProjectRule(library, workspace=workspace)
    await asyncio.gather(*(rule.open_to_write(call(), None) for _ in range(5)))
    assert await names(library) == {"called", "session", "configured", "shop"}


async def test_windows_that_open_at_once_end_with_one_project(tmp_path: Path, workspace: Path) -> None:
    library = SqliteLibrary(tmp_path / "data")
    await library.list_projects()
    windows = [acting("write_in_workspace", tmp_path / "data", workspace, n) for n in range(3)]
    with windows[0] as one, windows[1] as two, windows[2] as three:
        assert [window.hear() for window in (one, two, three)] == ["ready"] * 3
        for window in (one, two, three):
            window.tell()
        assert [window.hear() for window in (one, two, three)] == ["ok"] * 3
    [project] = await library.list_projects()
    _, store = await library.open(project.name)
    assert {record.id for record in await store.scan(RecordFilter())} == {"0", "1", "2"}
    assert await library.find_workspace_project(str(workspace.resolve())) == project  # noqa: ASYNC240
    await library.close()


async def test_a_project_that_is_off_is_neither_read_nor_written(library: Library, workspace: Path) -> None:
    rule = ProjectRule(library, workspace=workspace)
    await rule.open_to_write(call(), None)
    for name in ("shop", "called", "session"):
        await library.set_off(name, off=True)
    for made, name in ((call(), None), (call(), "called"), (call("session"), None)):
        for ask in (rule.open_to_read, rule.open_to_write):
            with pytest.raises(ProjectOff) as caught:
                await ask(made, name)
            assert caught.value.facts["project"] == (name or made.session.project or "shop")
    await rule.open_to_read(call(), "configured")
    current = await rule.find_active(call())
    assert current is not None
    assert current.is_off


async def test_a_project_that_is_on_again_is_as_it_was(library: Library, workspace: Path) -> None:
    rule = ProjectRule(library, workspace=workspace)
    await (await rule.open_to_write(call(), None)).commit(batch(entity("written")))
    await library.set_off("shop", off=True)
    await library.set_off("shop", off=False)
    assert len(await (await rule.open_to_read(call(), None)).scan(RecordFilter())) == 1


async def test_the_project_of_a_folder_is_made_for_who_needs_one(library: Library, workspace: Path) -> None:
    rule = ProjectRule(library, workspace=workspace)
    made = await rule.ensure_project(call())
    assert made.name == "shop"
    assert await rule.ensure_project(call()) == made
    assert (await rule.ensure_project(call("session"))).name == "session"


async def test_an_account_is_not_told_how_folders_are_called(library: Library, workspace: Path) -> None:
    rule = ProjectRule(GuardedLibrary(library, read_clock), workspace=workspace)
    with act_as(Account("anna")):
        assert await rule.find_pending_name(call()) == DEFAULT_PROJECT
        made = await rule.ensure_project(call())
        again = await rule.ensure_project(call())
    assert (made.name, made.description, again.id) == (DEFAULT_PROJECT, "", made.id)
    assert (await rule.ensure_project(call())).description == f"Workspace {workspace}"


async def test_an_account_that_is_made_again_gets_one_project_for_the_folder(library: Library, workspace: Path) -> None:
    accounts = Accounts(library, read_clock)
    rule = ProjectRule(GuardedLibrary(library, read_clock), workspace=workspace)
    before: set[str] = set()
    for _ in range(2):
        await accounts.create_token("anna", "")
        with act_as(Account("anna")):
            made = {(await rule.ensure_project(call())).id for _ in range(3)}
        assert len(made) == 1
        assert not made & before
        before |= made
        await accounts.remove_user("anna")


SECRET = "gh" + "p_" + "a1B2" * 9


async def test_a_secret_in_the_name_of_a_folder_is_masked_in_its_project(library: Library, tmp_path: Path) -> None:
    folder = tmp_path / f"backup {SECRET}"
    (folder / ".git").mkdir(parents=True)
    rule = ProjectRule(library, workspace=folder)
    assert await rule.find_pending_name(call()) == "backup [masked: github token]"
    assert await written_to(library, rule, call(), None) == "backup [masked: github token]"
    assert SECRET not in str([(each.name, each.description) for each in await library.list_projects()])


async def test_a_secret_in_the_configured_name_is_masked_and_the_project_is_found_again(library: Library) -> None:
    rule = ProjectRule(library, configured=f"shop {SECRET}")
    assert await written_to(library, rule, call(), None) == "shop [masked: github token]"
    again = await ProjectRule(library, configured=f"shop {SECRET}").find_active(call())
    assert again is not None
    assert again.name == "shop [masked: github token]"


async def test_names_stay_if_masking_is_turned_off(library: Library) -> None:
    rule = ProjectRule(library, configured=f"shop {SECRET}", mask=False)
    assert await written_to(library, rule, call(), None) == f"shop {SECRET}"
