"""Many files in one go: each with its outcome, and nothing at all where the batch is wrong."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from everkept.core.files import FileStore
from everkept.errors import EtagMismatch, EverkeptError, InvalidInput, Refused, StoreBusy
from everkept.families.bank.bank_files import compute_etag
from everkept.families.bank.file_answers import FileWrite, ReadResult, WriteResult
from everkept.families.bank.file_tools import SKIPPED_MESSAGE, read_batch, write_batch
from everkept.values import replace
from memory_bank import Banking, bank_in


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[Banking]:
    async with bank_in(tmp_path) as team:
        yield team


async def test_each_file_that_cannot_be_read_says_why(team: Banking) -> None:
    team.put("a.md", "text")
    team.put("latin.md", "Größe".encode("latin-1"))
    names = ["a.md", "b.md", "../c.md", "a.md", "latin.md"]
    results, warnings = await read_batch(team.bank, names, with_etags=True)
    assert list(results) == ["a.md", "b.md", "../c.md", "latin.md"]
    assert results["a.md"] == ReadResult("text", compute_etag(b"text"))
    for name in ("b.md", "../c.md"):
        assert isinstance(results[name], EverkeptError)
    assert [warning.code for warning in warnings or []] == ["not_utf8"]


async def test_old_names_are_read_too(team: Banking) -> None:
    team.put("activeContext.md", "old")
    results, _ = await read_batch(team.bank, ["active-context.md"], with_etags=False)
    assert results["active-context.md"] == ReadResult("old")


async def test_a_batch_says_which_files_were_written(team: Banking) -> None:
    team.put("a.md", "old")
    results = await write_batch(
        team.bank,
        [FileWrite("a.md", "new", "0123456789abcdef"), FileWrite("myNotes.md", "notes"), FileWrite("c.md", "c")],
        stop_on_error=False,
    )
    assert isinstance(results["a.md"], EtagMismatch)
    assert results["myNotes.md"] == WriteResult(True, compute_etag(b"notes"), "my-notes.md")
    assert results["c.md"] == WriteResult(True, compute_etag(b"c"))
    assert team.names() == ["a.md", "c.md", "my-notes.md"]
    assert team.get("a.md") == "old"


async def test_the_rest_is_skipped_after_a_failure_if_asked(team: Banking) -> None:
    files = [FileWrite("a.md", "a"), FileWrite("b.md", "b", "0" * 16), FileWrite("c.md", "c")]
    results = await write_batch(team.bank, files, stop_on_error=True)
    assert results["a.md"] == WriteResult(True, compute_etag(b"a"))
    assert results["c.md"] == WriteResult(False, error=SKIPPED_MESSAGE)
    assert team.names() == ["a.md"]


@pytest.mark.parametrize(
    ("names", "error"),
    [
        (["a.md", "a.md"], InvalidInput),
        (["a.md", "activeContext.md", "active-context.md"], InvalidInput),
        (["a.md", "A.md"], InvalidInput),
        (["a.md", "../b.md"], Refused),
        (["a.md", "pro\u200bgress.md"], Refused),
    ],
)
async def test_a_wrong_batch_writes_nothing(team: Banking, names: list[str], error: type[EverkeptError]) -> None:
    with pytest.raises(error) as caught:
        await write_batch(team.bank, [FileWrite(name, "x") for name in names], stop_on_error=False)
    assert str(caught.value).startswith("Nothing was written: ")
    assert team.names() == []


class Losing:
    """A folder whose lock is lost before it is given back."""

    def __init__(self, files: FileStore) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncGenerator[None, None]:
        async with self._files.lock(name):
            yield
        raise StoreBusy("Somebody else took the lock.")


async def test_an_error_at_the_end_says_what_was_written(team: Banking) -> None:
    bank = replace(team.bank, files=cast(FileStore, Losing(team.bank.files)))
    with pytest.raises(StoreBusy) as caught:
        await write_batch(bank, [FileWrite("a.md", "a")], stop_on_error=False)
    assert caught.value.facts["written"] == ["a.md"]


async def test_a_migrated_name_stays_with_its_file_in_a_batch(team: Banking) -> None:
    team.put("activeContext.md", "old")
    files = [FileWrite("activeContext.md", "new", compute_etag(b"old"))]
    results = await write_batch(team.bank, files, stop_on_error=False)
    assert results["activeContext.md"].filename == "active-context.md"
    assert team.names() == ["active-context.md"]


async def test_a_batch_writes_through_no_link_to_what_is_no_file_of_the_bank(team: Banking) -> None:
    team.put("graph/graph.jsonl", "theirs")
    (team.folder / "g.md").symlink_to("graph/graph.jsonl")
    written = await write_batch(team.bank, [FileWrite("g.md", "ours")], stop_on_error=False)
    assert "is a link to" in str(written["g.md"])
    found, _ = await read_batch(team.bank, ["g.md"], with_etags=True)
    assert isinstance(found["g.md"], Refused)
    assert team.get("graph/graph.jsonl") == "theirs"
