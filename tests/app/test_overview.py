from pathlib import Path

from conversations import tell
from database_places import named
from everkept.app.app import App
from everkept.app.engines import make_library
from everkept.app.overview import SHOWN_WEEKS, ProjectCounts, StorageOverview
from everkept.core.ports import Library
from everkept.core.records import Delete
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.settings import read_settings
from hash_embedder import HashingEmbedder
from records import DAY_ONE, batch, entity, memory

DAY = 86_400_000_000


async def overview(library: Library, folder: Path, at: int = DAY_ONE) -> StorageOverview:
    settings = read_settings({"data_dir": folder / "data"}, {})
    app = App(settings, library=library, embedder=HashingEmbedder(), clock=lambda: at)
    return await app.overview_reader.read_overview()


async def test_nothing_is_remembered_at_first(library: Library, tmp_path: Path) -> None:
    found = await overview(library, tmp_path)
    assert (found.totals.memories, found.totals.projects, found.projects) == (0, 0, [])
    assert found.recalled == []
    assert [(week.memories, week.turns) for week in found.weeks] == [(0, 0)] * SHOWN_WEEKS


async def test_everything_is_counted_by_project_and_type(library: Library, tmp_path: Path) -> None:
    for name in ("shop", "blog"):
        await library.create(name, "")
        _, store = await library.open(name)
        await store.commit(batch(memory(f"{name}-1"), entity("Ada")))
    automatic = memory("seen", type="episodic", facets={"automatic": True})
    await store.commit(batch(automatic, memory("gone"), memory("waits")))
    await store.commit(batch(Delete(memory("gone").ref)))
    await (await library.open_user_store()).commit(batch(memory("mine", scope="user")))
    found = await overview(library, tmp_path)
    assert (found.totals.memories, found.totals.automatic, found.totals.entities) == (5, 1, 2)
    assert found.totals.without_vectors == 5
    assert found.types == {"semantic": 4, "episodic": 1}
    assert found.user.memories == 1
    assert [(share.name, share.memories, share.entities) for share in found.projects] == [
        ("blog", 3, 1),
        ("shop", 1, 1),
    ]


async def test_conversations_count_for_the_project_of_their_folder(library: Library, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    (root / ".git").mkdir(parents=True)
    await library.link_workspace(str(root.resolve()), await library.create("shop", ""))
    store = await library.open_history_store()
    await tell(store, "a", "one", "two", project=str(root))
    await tell(store, "b", "three", project=str(root / "api"))
    await tell(store, "c", "four", project="/elsewhere")
    found = await overview(library, tmp_path)
    assert [share.conversations for share in found.projects] == [2]
    assert (found.totals.conversations, found.totals.turns) == (3, 4)
    assert found.history.conversations == 3


async def test_weeks_tell_what_came_when(library: Library, tmp_path: Path) -> None:
    await library.create("shop", "")
    _, store = await library.open("shop")
    ages = {"today": 0, "six": 6, "seven": 7, "oldest": 7 * SHOWN_WEEKS - 1, "older": 7 * SHOWN_WEEKS}
    made = [memory(name, created_at=DAY_ONE - days * DAY) for name, days in ages.items()]
    await store.commit(batch(*made))
    await tell(await library.open_history_store(), "a", "one", "two", at=DAY_ONE - 8 * DAY)
    weeks = (await overview(library, tmp_path)).weeks
    assert [week.memories for week in weeks] == [1, *[0] * (SHOWN_WEEKS - 3), 1, 2]
    assert [week.turns for week in weeks][-3:] == [0, 2, 0]
    assert weeks[-1].since == "2023-11-08"


async def test_what_was_recalled_most_is_shown_of_all_places(library: Library, tmp_path: Path) -> None:
    for name, times in (("shop", 3), ("blog", 8), ("secret", 9)):
        await library.create(name, "")
        _, store = await library.open(name)
        await store.commit(batch(memory(f"About\n  {name}", id=name), memory(f"never {name}")))
        await store.note_accesses({name: times}, DAY_ONE)
    user = await library.open_user_store()
    await user.commit(batch(memory("x" * 1_000, id="mine")))
    await user.note_accesses({"mine": 5}, DAY_ONE)
    await library.set_off("secret", off=True)
    found = await overview(library, tmp_path)
    assert [(each.project, each.times) for each in found.recalled] == [("blog", 8), ("@user", 5), ("shop", 3)]
    assert found.recalled[0].content == "About blog"
    assert len(found.recalled[1].content) <= 201
    assert [(share.name, share.off) for share in found.projects if share.off] == [("secret", True)]


async def test_an_archived_project_is_named_and_not_counted(library: Library, tmp_path: Path) -> None:
    await library.create("old", "")
    await library.archive("old")
    [share] = (await overview(library, tmp_path)).projects
    assert (share.status, share.memories) == ("archived", None)
    assert share.size_bytes > 0


async def test_files_are_told_with_their_size_and_project(tmp_path: Path) -> None:
    library = SqliteLibrary(tmp_path / "data")
    made = await library.create("shop", "")
    await library.open_user_store()
    found = await overview(library, tmp_path)
    named = {file.file: file for file in found.files}
    own = named[f"projects/{made.id}.db"]
    assert own.project == "shop"
    assert {"_meta.db", "user.db"} <= named.keys()
    assert not any(name.endswith(("-wal", "-shm")) for name in named)
    assert found.projects[0].size_bytes == own.size_bytes > 0
    assert found.totals.size_bytes == sum(file.size_bytes for file in found.files)
    await library.close()


async def test_what_a_server_keeps_is_as_large_as_it_says(tmp_path: Path) -> None:
    given = {"data_dir": tmp_path / "data", "config": "none", **named("postgres")}
    library = make_library(read_settings(given, {}), lambda: DAY_ONE, standing_by=False)
    copy = tmp_path / "data" / "standby" / "0" / "replica"
    copy.mkdir(parents=True)
    for name in ("shop", "old"):
        made = await library.create(name, "")
        _, store = await library.open(name)
        await store.commit(batch(memory(name)))
        (copy / f"{made.id}.db").write_bytes(b"x" * 10)
    sizes = {"shop": await (await library.open("shop"))[1].measure_size()}
    sizes["old"] = await store.measure_size()
    await library.archive("old")
    found = await overview(library, tmp_path)
    assert {share.name: share.size_bytes for share in found.projects} == sizes
    assert min(sizes.values()) > 1_000
    assert found.totals.size_bytes == sum(sizes.values())
    assert (found.totals.here_bytes, found.files[0].project) == (20, None)
    await library.close()


async def test_a_project_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    library = SqliteLibrary(tmp_path / "data")
    for name in ("broken", "sound"):
        made = await library.create(name, "")
        path = tmp_path / "data" / "projects" / f"{made.id}.db"
        if name == "broken":
            path.write_bytes(b"no database at all" * 500)
    found = await overview(library, tmp_path)
    shares: dict[str, ProjectCounts] = {share.name: share for share in found.projects}
    assert shares["sound"].memories == 0
    assert shares["broken"].memories is None
    assert shares["broken"].problem
    await library.close()


async def test_conversations_of_no_project_are_counted_apart(library: Library, tmp_path: Path) -> None:
    history = await library.open_history_store()
    await library.link_workspace("/home/ann/shop", await library.create("shop", ""))
    for name, folder in (("a", "/home/ann/shop"), ("b", "/home/ann/blog"), ("c", "")):
        await tell(history, name, "Hello", project=folder)
    found = await overview(library, tmp_path)
    assert (found.projects[0].conversations, found.elsewhere) == (1, 2)
    assert found.totals.conversations == 3


async def test_what_is_an_accounts_alone_is_counted_and_never_shown(library: Library, tmp_path: Path) -> None:
    for name in ("shop", "@user (anna)", "@history (anna)", "@user (bob)"):
        await library.create(name, "")
        _, store = await library.open(name)
        own = memory(f"quokka of {name}", scope="user" if "@" in name else "project")
        await store.commit(batch(own))
        await store.note_accesses({own.id: 5}, DAY_ONE)
    found = await overview(library, tmp_path)
    assert (found.accounts.accounts, found.accounts.memories) == (2, 3)
    assert (found.totals.memories, found.totals.projects) == (4, 1)
    assert [share.name for share in found.projects] == ["shop"]
    assert [each.content for each in found.recalled] == ["quokka of shop"]
    assert {file.project for file in found.files} <= {None, "shop"}
    assert "anna" not in repr(found)
