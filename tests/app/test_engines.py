import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from database_places import SERVERS, named
from everkept.app.engines import StrandedWrites, find_standby, find_stranded_writes, format_command, make_library
from everkept.core.extras import format_install_hint
from everkept.core.times import read_clock
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.journal_acts import SetNote
from everkept.errors import StoreUnreachable
from everkept.settings import Settings, read_settings
from server_processes import INITIALIZE
from surreal_server import PASSWORD

NOBODY = "ws://127.0.0.1:1"  # where nothing listens
OF_FILES, OF_FOLDERS = (0o600, 0o700) if os.name == "posix" else (0o666, 0o777)
NOBODY_EITHER = "postgresql://127.0.0.1:1/team"
HEAVY = ("surrealdb", "websockets", "psycopg", "numpy", "mcp")

_SERVE = """
import sys
for name in sys.argv[1].split():
    sys.modules[name] = None
from everkept.cli.main import main
sys.argv[:2] = ["everkept"]
try:
    main()
finally:
    print("loaded", *(name for name in sys.modules if sys.modules[name]), file=sys.stderr)
"""


def settings_of(folder: Path, **flags: Any) -> Settings:
    environment = {"EVERKEPT_DATABASE_PASSWORD": PASSWORD} if "database_user" in flags else {}
    if flags.get("database_url", "").startswith("postgres"):
        environment = {"EVERKEPT_DATABASE_USER": "postgres"}
    return read_settings({"data_dir": folder, "config": "none", **flags}, environment)


def everkept(*arguments: object, hidden: str = "", said: str = "") -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, in which some packages are not installed."""
    return subprocess.run(
        [sys.executable, "-c", _SERVE, hidden, *map(str, arguments)],
        input=said,
        capture_output=True,
        check=False,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
    )


def made_in(folder: Path) -> list[Path]:
    return [*folder.iterdir()]


MODES: list[tuple[dict[str, str], str, str, str]] = [
    ({}, "sqlite", "embedded-file", "{folder}"),
    ({"deployment_mode": "embedded-memory"}, "memory", "embedded-memory", ""),
    ({"engine": "surreal"}, "surreal", "embedded-file", "{folder}/surreal"),
    ({"engine": "surreal", "deployment_mode": "embedded-memory"}, "surreal", "embedded-memory", ""),
    ({"deployment_mode": "local-server"}, "surreal", "local-server", "ws://127.0.0.1:8000"),
    ({"database_url": NOBODY}, "surreal", "local-server", NOBODY),
    ({"database_url": "wss://db.example.com"}, "surreal", "remote", "wss://db.example.com"),
    ({"database_url": NOBODY_EITHER}, "postgres", "local-server", NOBODY_EITHER),
    ({"database_url": "postgres://db.example.com/team"}, "postgres", "remote", "postgresql://db.example.com/team"),
]


@pytest.mark.parametrize(("flags", "engine", "mode", "place"), MODES)
async def test_a_library_says_what_it_is_and_touches_nothing_before_it_is_asked(
    tmp_path: Path, flags: dict[str, str], engine: str, mode: str, place: str
) -> None:
    library = make_library(settings_of(tmp_path, **flags), read_clock)
    condition = library.condition
    assert (condition.engine, condition.mode) == (engine, mode)
    assert Path(condition.place) == Path(place.format(folder=tmp_path))
    assert condition.status == "connected"
    await library.close()
    assert made_in(tmp_path) == []


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"deployment_mode": "embedded-memory"},
        {"engine": "surreal"},
        {"engine": "surreal", "deployment_mode": "embedded-memory"},
    ],
)
async def test_what_is_stored_in_a_mode_on_this_machine_is_found_again(tmp_path: Path, flags: dict[str, str]) -> None:
    settings = settings_of(tmp_path, **flags)
    library = make_library(settings, read_clock)
    await library.create("shop", "about it")
    assert [project.name for project in await library.list_projects()] == ["shop"]
    await library.close()
    again = make_library(settings, read_clock)
    is_kept = settings.deployment_mode == "embedded-file"
    assert len(await again.list_projects()) == is_kept
    await again.close()


@pytest.mark.parametrize("server", SERVERS)
async def test_two_programs_share_what_a_server_keeps(tmp_path: Path, server: str) -> None:
    places = named(server)
    one, other = (make_library(settings_of(tmp_path / name, **places), read_clock) for name in ("one", "other"))
    await one.create("shop", "about it")
    assert [project.name for project in await other.list_projects()] == ["shop"]
    assert other.condition.version
    await one.close()
    await other.close()


@pytest.mark.parametrize("address", [NOBODY, NOBODY_EITHER])
async def test_where_nothing_stands_by_a_server_that_is_away_is_an_error(tmp_path: Path, address: str) -> None:
    library = make_library(settings_of(tmp_path, database_url=address), read_clock, standing_by=False)
    with pytest.raises(StoreUnreachable):
        await library.list_projects()
    await library.close()
    assert made_in(tmp_path) == []


@pytest.mark.parametrize("address", [NOBODY, NOBODY_EITHER])
async def test_what_stands_by_answers_for_a_server_that_is_away(tmp_path: Path, address: str) -> None:
    settings = settings_of(tmp_path, database_url=address)
    library = make_library(settings, read_clock)
    await library.create("shop", "about it")
    assert [project.name for project in await library.list_projects()] == ["shop"]
    assert (library.condition.status, library.condition.waiting) == ("reconnecting", 1)
    await library.close()
    standby = find_standby(settings)
    assert standby is not None
    assert await standby.count_writes() == (1, 0)
    assert standby.replica.is_dir()


async def test_only_a_server_can_be_away(tmp_path: Path) -> None:
    for flags in ({}, {"engine": "surreal"}, {"deployment_mode": "embedded-memory"}):
        assert find_standby(settings_of(tmp_path, **flags)) is None
    standby = find_standby(settings_of(tmp_path, database_url=NOBODY))
    assert standby is not None
    assert await standby.count_writes() == (0, 0)
    assert made_in(tmp_path) == []


@pytest.mark.parametrize(
    "options",
    [
        ("--engine", "surreal"),
        ("--database-url", NOBODY),
        ("--database-url", NOBODY_EITHER, "--database-user", "postgres"),
    ],
)
def test_a_server_lists_its_tools_before_it_loads_or_reaches_a_database(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    said = "".join(f"{json.dumps(each)}\n" for each in asked)
    ended = everkept("serve", "--data-dir", tmp_path / "data", *options, said=said)
    assert ended.returncode == 0
    assert {json.loads(line)["id"] for line in ended.stdout.splitlines()} == {1, 2}
    [loaded] = [line for line in ended.stderr.splitlines() if line.startswith("loaded")]
    assert not {name.partition(".")[0] for name in loaded.split()} & set(HEAVY)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("command", [("status",), ("remember", "x"), ("migrate", "--to", "sqlite:x")])
def test_a_missing_package_is_named_with_what_installs_it(tmp_path: Path, command: tuple[str, ...]) -> None:
    places = ("--data-dir", tmp_path / "data", "--engine", "surreal")
    (tmp_path / "data" / "surreal" / "clog").mkdir(parents=True)
    ended = everkept(*command, *places, hidden="surrealdb")
    assert ended.returncode == 1
    assert "needs the package surrealdb, which is not installed" in ended.stderr
    assert format_install_hint("surreal") in ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_postgresql_needs_is_named_with_what_installs_it(tmp_path: Path) -> None:
    server = ("--database-url", NOBODY_EITHER, "--database-user", "postgres")
    places = ("--data-dir", tmp_path / "data", *server)
    ended = everkept("status", *places, hidden="psycopg")
    assert ended.returncode == 1
    assert "The engine postgres needs the package psycopg" in ended.stderr
    assert format_install_hint("postgres") in ended.stderr
    assert "Traceback" not in ended.stderr


def waiting_for(settings: Settings, writes: int = 1) -> Path:
    """Leaves writes in the journal of a server that a setting named once."""
    standby = find_standby(settings)
    assert standby is not None

    async def run() -> None:
        journal = Journal(standby.journal)
        for _ in range(writes):
            await journal.append(SetNote("key", ""))
        await journal.close()

    asyncio.run(run())
    return standby.folder


def test_what_waits_for_a_server_that_is_not_used_any_more_is_told(tmp_path: Path) -> None:
    old = settings_of(tmp_path, database_url="ws://old:8000")
    folder = waiting_for(old, 3)
    (folder / "address").write_text("ws://old:8000 (memory/default)\n", encoding="utf-8")
    for flags in ({}, {"database_url": NOBODY}, {"engine": "surreal"}):
        [left] = asyncio.run(find_stranded_writes(settings_of(tmp_path, **flags)))
        assert (left.waiting, left.set_aside) == (3, 0)
        assert "Writes for ws://old:8000 (memory/default) are still" in left.sentence
        assert "3 pending" in left.sentence
        where = f"--data-dir {tmp_path} --database-url ws://old:8000"
        assert f"`everkept status {where}` sends the pending writes" in left.hint
        assert f"`everkept journal {where}` lists them" in left.hint
    assert asyncio.run(find_stranded_writes(old)) == []


def test_the_advice_names_the_user_and_what_no_option_says(tmp_path: Path) -> None:
    old = settings_of(tmp_path, database_url=NOBODY_EITHER, database_user="ada", namespace="team")
    waiting_for(old)
    library = make_library(old, read_clock)

    async def used() -> None:
        await library.list_projects()
        await library.close()

    asyncio.run(used())
    [left] = asyncio.run(find_stranded_writes(settings_of(tmp_path)))
    where = f"--data-dir {tmp_path} --database-url {NOBODY_EITHER} --database-user ada"
    assert left.hint.startswith(
        f"With EVERKEPT_NAMESPACE=team and EVERKEPT_DATABASE_PASSWORD set, `everkept status {where}` "
    )


@pytest.mark.parametrize(
    ("word", "posix", "windows"),
    [
        ("ws://old:8000", "ws://old:8000", "ws://old:8000"),
        (r"C:\Users\Ada", r"'C:\Users\Ada'", r"C:\Users\Ada"),
        (r"C:\Users\Ada L", r"'C:\Users\Ada L'", r'"C:\Users\Ada L"'),
        (r"C:\R&D", r"'C:\R&D'", r'"C:\R&D"'),
        ("C:\\Ada L\\", "'C:\\Ada L\\'", '"C:\\Ada L\\\\"'),
    ],
)
def test_an_advised_command_runs_in_the_shell_of_the_platform(word: str, posix: str, windows: str) -> None:
    assert format_command(["--data-dir", word], "linux") == f"--data-dir {posix}"
    assert format_command(["--data-dir", word], "win32") == f"--data-dir {windows}"


def test_on_windows_the_advice_is_for_its_own_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    left = StrandedWrites("ws://old:8000 (memory/default)", "/home/Ada L/standby/one", 1, 0)
    for platform, quote in (("linux", "'"), ("win32", '"')):
        monkeypatch.setattr(sys, "platform", platform)
        folder = Path("/home/Ada L")
        assert f"`everkept status --data-dir {quote}{folder}{quote} " in left.hint


def test_a_folder_without_an_address_is_told_too_and_one_without_writes_is_not(tmp_path: Path) -> None:
    folder = waiting_for(settings_of(tmp_path, database_url="ws://old:8000"))
    waiting_for(settings_of(tmp_path, database_url="ws://older:8000"), 0)
    [left] = asyncio.run(find_stranded_writes(settings_of(tmp_path)))
    assert "another database" in left.sentence
    assert str(folder) in left.sentence
    assert "ADDRESS" in left.hint


def test_nothing_is_made_to_look_for_what_is_left(tmp_path: Path) -> None:
    assert asyncio.run(find_stranded_writes(settings_of(tmp_path, database_url=NOBODY))) == []
    assert made_in(tmp_path) == []


@pytest.mark.parametrize(
    ("address", "name"), [(NOBODY, f"{NOBODY} (memory/default)"), (NOBODY_EITHER, f"{NOBODY_EITHER} (memory)")]
)
async def test_what_stands_by_says_whom_it_stands_in_for(tmp_path: Path, address: str, name: str) -> None:
    settings = settings_of(tmp_path, database_url=address)
    library = make_library(settings, read_clock)
    await library.list_projects()
    await library.close()
    standby = find_standby(settings)
    assert standby is not None
    assert standby.address == name


@pytest.mark.parametrize("flags", [{}, {"engine": "surreal"}, {"database_url": NOBODY}])
async def test_what_is_kept_is_for_its_owner_alone(tmp_path: Path, flags: dict[str, str]) -> None:
    data = tmp_path / "above" / "data"
    library = make_library(settings_of(data, **flags), read_clock)
    await library.create("shop", "")
    await library.close()
    folders = [data, *(each for each in data.rglob("*") if each.is_dir())]
    ours = [each for each in folders if "surreal" not in each.parent.parts]
    assert {each.stat().st_mode & 0o777 for each in ours} == {OF_FOLDERS}
    locks = [each for each in data.rglob("*") if each.suffix in (".lock", ".writing", ".founding")]
    assert {each.stat().st_mode & 0o777 for each in locks} <= {OF_FILES}
