"""Whatever bit of a data folder changes, no reader breaks, and the doctor finds what a reader would meet."""

import asyncio
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from data_folders import off_folders, put_all, read_content
from everkept.care.backup import back_up
from everkept.core.times import read_clock
from everkept.engines.sqlite.care import SqliteCare
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import EverkeptError, StoreDamaged
from flipped_folders import COMMANDS, make_everything, read_everything, run_command

NEAR = 8  # bytes around a place; where all are zero, nothing is stored


@pytest.fixture
def flips(thorough: bool) -> int:
    return 3_000 if thorough else 150


def flip(rng: random.Random, path: Path) -> tuple[int, int]:
    """Change one bit of a part of the file that is in use."""
    data = bytearray(path.read_bytes())
    at, bit = rng.randrange(len(data)), rng.randrange(8)
    while not any(data[max(0, at - NEAR) : at + NEAR]):
        at = rng.randrange(len(data))
    data[at] ^= 1 << bit
    path.write_bytes(data)
    return at, bit


async def read_project(folder: Path) -> dict[str, Any]:
    """All that the doctor answers for: not the numbers of embeddings, nor the old values of changes."""
    library = SqliteLibrary(folder)
    try:
        content = await read_content((await library.open("shop"))[1])
        return {part: found for part, found in content.items() if part not in ("vectors", "changes")}
    finally:
        await library.close()


async def fill(folder: Path) -> None:
    library = SqliteLibrary(folder)
    await library.create("shop", "sells tea")
    await put_all((await library.open("shop"))[1], "shop")
    await library.set_note("note", "value")
    await library.close()


def list_problems(folder: Path) -> list[str]:
    found = SqliteCare(folder).check_databases("databases", full=True)
    return [finding.what for finding in found if finding.severity == "problem"]


def test_the_doctor_finds_each_changed_bit_that_a_reader_meets(tmp_path: Path, flips: int) -> None:
    asyncio.run(fill(tmp_path / "whole"))
    whole = asyncio.run(read_project(tmp_path / "whole"))
    assert list_problems(tmp_path / "whole") == []
    [project] = (tmp_path / "whole" / "projects").glob("*.db")
    rng = random.Random(flips)
    for number in range(flips):
        folder = tmp_path / "flipped"
        shutil.copytree(tmp_path / "whole", folder)
        name = "_meta.db" if number % 6 == 0 else f"projects/{project.name}"
        place = name, *flip(rng, folder / name)
        try:
            changed = asyncio.run(read_project(folder)) != whole
        except EverkeptError:
            changed = True
        except Exception:  # noqa: BLE001 - a server then asks the doctor, and says what it found
            assert list_problems(folder), place
            changed = False
        problems = list_problems(folder)
        assert problems or not changed or name == "_meta.db", place
        shutil.rmtree(folder)


def test_a_changed_letter_is_named_with_its_record(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "data"))
    [path] = (tmp_path / "data" / "projects").glob("*.db")
    path.write_bytes(path.read_bytes().replace(b"an observation of shop", b"an Observation of shop"))
    [problem] = list_problems(tmp_path / "data")
    assert "1 record differs from its checksum (an Observation of shop)" in problem
    back_up(SqliteCare(tmp_path / "data"), tmp_path / "copy.zip", read_clock, off_folders)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything, at the place where its copies will be too, because it names itself."""
    place = tmp_path_factory.mktemp("everything") / "place"
    make_everything(place)
    shutil.move(place, place.with_name("whole"))
    return place.with_name("whole")


def test_no_changed_bit_of_any_file_is_an_internal_error(
    whole: Path, thorough: bool, home_without_clients: Path
) -> None:
    place = whole.with_name("place")
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file() and path.stat().st_size)
    databases, others = ([each for each in files if (each.suffix == ".db") is of_kind] for of_kind in (True, False))
    assert len(databases) >= 5
    assert {"gateway.json", "config.md", "graph.jsonl", "calls.jsonl"} <= {each.name for each in others}
    rng = random.Random(5)
    for number in range(600 if thorough else 8):
        shutil.copytree(whole, place)
        file = rng.choice(others if number % 3 == 0 else databases)
        flipped = file, *flip(rng, place / file)
        said = [json.dumps(answer) for answer in read_everything(place).values()]
        said.append(run_command(place, *rng.choice((*COMMANDS, ("doctor", "--full")))))
        for text in said:
            assert "nternal error" not in text, flipped
            assert "cannot be encoded" not in text, flipped
            assert "Traceback" not in text, flipped
            assert "This check failed" not in text, flipped
        shutil.rmtree(place)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (b'{"sequence": 0', b'["sequence": 0', "is damaged: a text in it is not valid JSON"),
        (b"importance REAL", b"importancf REAL", "is not as Everkept creates it"),
        (b"generation", b"genfration", "is damaged: it has no generation"),
    ],
    ids=["value", "column", "generation"],
)
def test_a_server_says_which_damage_explains_an_unexpected_error(
    whole: Path, before: bytes, after: bytes, told: str
) -> None:
    place = whole.with_name("place")
    shutil.copytree(whole, place)
    path = place / "data" / "history.db"
    path.write_bytes(path.read_bytes().replace(before, after))
    said = json.dumps(read_everything(place))
    shutil.rmtree(place)
    assert told in said
    assert StoreDamaged.code in said
    assert "nternal error" not in said


@pytest.mark.parametrize("column", [b"longest_ms", b"milliseconds"], ids=["counts of calls", "searches"])
def test_a_server_ends_without_an_error_if_it_cannot_store_what_it_counted(whole: Path, column: bytes) -> None:
    place = whole.with_name("place")
    shutil.copytree(whole, place)
    path = place / "data" / "_meta.db"
    data = path.read_bytes()
    assert column in data
    path.write_bytes(data.replace(column, column[:-1] + b"x"))
    said = json.dumps(read_everything(place))
    shutil.rmtree(place)
    assert "nternal error" not in said
