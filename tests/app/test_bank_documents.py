import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everkept.app.bank import MAX_READ_BYTES, BankResources
from everkept.app.resources import AllResources, ResourceWatcher
from everkept.core.files import FileInfo
from everkept.core.sessions import Session
from everkept.errors import BankNotFound, InvalidInput, NotFound, Refused, Unavailable
from everkept.families.bank.banks import Banks
from memory_bank import Banking, bank_in

PATIENCE = 60  # seconds; only a hang takes as long


@pytest.fixture
async def banking(tmp_path: Path) -> AsyncIterator[Banking]:
    async with bank_in(tmp_path) as made:
        yield made


@pytest.fixture
def resources(banking: Banking) -> BankResources:
    return BankResources(banking.banks, banking.clock)


async def test_the_files_that_are_there_are_listed(banking: Banking, resources: BankResources) -> None:
    for name in ("zoo.md", "my notes.json", "progress.md", "activeContext.md", "graph/graph.md"):
        banking.put(name, "x")
    listed = await resources.list_resources(banking.session)
    assert [(i.uri, i.name, i.description, i.mime_type) for i in listed[:2]] == [
        ("memory-bank://active-context.md", "active-context.md", "Current project state", "text/markdown"),
        ("memory-bank://progress.md", "progress.md", "Progress history", "text/markdown"),
    ]
    assert [info.uri for info in listed[2:]] == [
        "memory-bank://my%20notes.json",
        "memory-bank://zoo.md",
        "memory-bank://graph/graph.md",
    ]
    assert listed[2].mime_type == "application/json"
    for info in listed:
        assert (await resources.read(banking.session, info.uri)).text == "x"


async def test_pictures_and_files_that_are_not_text_are_read_as_bytes(
    banking: Banking, resources: BankResources
) -> None:
    banking.put("Plan v2.PNG", b"\x89PNG\0")
    banking.put("broken.md", b"a\0b")
    banking.put("tool.exe", b"MZ")
    (banking.folder / "away.png").symlink_to("/etc/hostname")
    listed = {info.uri: info.mime_type for info in await resources.list_resources(banking.session)}
    assert listed == {"memory-bank://broken.md": "text/markdown", "memory-bank://Plan%20v2.PNG": "image/png"}
    picture = await resources.read(banking.session, "memory-bank://Plan%20v2.PNG")
    assert (picture.mime_type, picture.data) == ("image/png", b"\x89PNG\0")
    assert (await resources.read(banking.session, "memory-bank://broken.md")).data == b"a\0b"
    with pytest.raises(Refused):
        await resources.read(banking.session, "memory-bank://away.png")
    for name in ("tool.exe", "none.png", "../x.png"):
        with pytest.raises((NotFound, InvalidInput, Refused)):
            await resources.read(banking.session, f"memory-bank://{name}")


async def test_a_large_bank_lists_some_and_reads_all(banking: Banking, resources: BankResources) -> None:
    for i in range(150):
        banking.put(f"n{i:03}.md", str(i))
    assert len(await resources.list_resources(banking.session)) == 100
    assert (await resources.read(banking.session, "memory-bank://n149")).text == "149"


async def test_a_document_is_read_with_and_without_its_ending(banking: Banking, resources: BankResources) -> None:
    banking.put("decisionLog.md", b"\xef\xbb\xbf# Log \xff\r\n")
    for uri in ("memory-bank://decision-log.md", "memory-bank://decision-log"):
        document = await resources.read(banking.session, uri)
        assert (document.mime_type, document.text) == ("text/markdown", "# Log \ufffd\r\n")


async def test_what_is_not_there_is_not_found(banking: Banking, resources: BankResources) -> None:
    for uri in ("memory-bank://progress.md", "memory-bank://x.json", "memory-bank://graph/graph.md"):
        with pytest.raises(NotFound):
            await resources.read(banking.session, uri)
    with pytest.raises(InvalidInput):
        await resources.read(banking.session, "memory-bank://../x.md")


async def test_without_a_bank_nothing_is_listed_and_reading_says_so(tmp_path: Path) -> None:
    async with bank_in(tmp_path, made=False) as banking:
        resources = BankResources(banking.banks, banking.clock)
        assert await resources.list_resources(banking.session) == []
        with pytest.raises(BankNotFound):
            await resources.read(banking.session, "memory-bank://progress.md")


async def test_a_session_reads_the_bank_it_chose(tmp_path: Path) -> None:
    async with bank_in(tmp_path / "one") as one, bank_in(tmp_path / "two") as two:
        one.put("progress.md", "one")
        two.put("progress.md", "two")
        resources = BankResources(one.banks, one.clock)
        session = Session(bank=two.bank.address)
        assert (await resources.read(session, "memory-bank://progress.md")).text == "two"
        assert (await resources.read(one.session, "memory-bank://progress.md")).text == "one"


async def test_subscribers_hear_of_an_edit_from_outside(banking: Banking, resources: BankResources) -> None:
    banking.put("notes.md", "x")
    watcher = ResourceWatcher(AllResources([resources]))
    heard: asyncio.Queue[str] = asyncio.Queue()
    uri = "memory-bank://notes"
    await watcher.subscribe(banking.session, uri, heard.put)
    await watcher.subscribe(banking.session, "memory-bank://progress.md", heard.put)
    banking.put("notes.md", "longer")
    assert await asyncio.wait_for(heard.get(), PATIENCE) == uri
    banking.put("progress.md", "made at last")
    assert await asyncio.wait_for(heard.get(), PATIENCE) == "memory-bank://progress.md"
    await watcher.close()


@pytest.mark.parametrize("name", ["missing.md", "../x.md", "graph/graph.md"])
async def test_nobody_waits_for_what_is_no_document(banking: Banking, resources: BankResources, name: str) -> None:
    watcher = ResourceWatcher(AllResources([resources]))
    with pytest.raises(NotFound):
        await watcher.subscribe(banking.session, f"memory-bank://{name}", asyncio.Queue[str]().put)
    await watcher.close()


class Remote:
    """Folders that say they are on another machine, and count how often they are asked."""

    def __init__(self, inner: Any, asked: list[str]) -> None:
        self._inner = inner
        self._asked = asked
        self.is_remote = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def open_folder(self, address: str) -> "Remote":
        return Remote(await self._inner.open_folder(address), self._asked)

    async def list(self, folder: str = "") -> list[FileInfo]:
        if "lost" in self._asked:
            raise Unavailable("The connection is lost.")
        self._asked.append("list")
        return await self._inner.list(folder)


async def test_another_machine_is_asked_once_in_a_while_for_all(banking: Banking) -> None:
    asked: list[str] = []
    now = [0]
    remote = Remote(banking.files, asked)
    banks = Banks(remote, banking.banks.registry, banking.banks.options)  # pyright: ignore
    resources = BankResources(banks, lambda: now[0])
    banking.put("progress.md", "x")
    banking.put("productContext.md", "x")
    uris = ("memory-bank://progress.md", "memory-bank://progress", "memory-bank://product-context")

    async def states() -> list[object]:
        return [await resources.read_state(banking.session, uri) for uri in uris]

    before = await states()
    banking.put("progress.md", "longer")
    assert await states() == before
    assert asked == ["list"]
    now[0] += 2_000_000
    after = await states()
    assert [b == a for b, a in zip(before, after, strict=True)] == [False, False, True]
    assert asked == ["list", "list"]
    asked.append("lost")
    now[0] += 2_000_000
    assert await states() == after
    assert await resources.list_resources(banking.session) == []


async def test_what_is_no_file_is_no_document(banking: Banking, resources: BankResources) -> None:
    for name in ("folder.md", "graph/graph.md"):
        (banking.folder / name).mkdir(parents=True)
        with pytest.raises(NotFound):
            await resources.read(banking.session, f"memory-bank://{name}")
        assert await resources.read_state(banking.session, f"memory-bank://{name}") == NotFound.code


async def test_a_document_says_by_its_first_bytes_how_it_is_read(banking: Banking, resources: BankResources) -> None:
    for encoding in ("utf-16", "utf-32", "utf-8-sig"):
        banking.put("notes.md", "# Grüße\n".encode(encoding))
        assert (await resources.read(banking.session, "memory-bank://notes")).text == "# Grüße\n"


async def test_a_document_that_is_too_large_for_one_message_is_refused(
    banking: Banking, resources: BankResources
) -> None:
    banking.put("large.md", b"x" * (MAX_READ_BYTES + 1))
    with pytest.raises(Refused, match="16,777,217 bytes"):
        await resources.read(banking.session, "memory-bank://large.md")
    banking.put("large.md", b"x" * MAX_READ_BYTES)
    assert len((await resources.read(banking.session, "memory-bank://large.md")).text) == MAX_READ_BYTES


async def test_many_who_ask_another_machine_at_once_share_a_look(banking: Banking) -> None:
    asked: list[str] = []
    remote = Remote(banking.files, asked)
    banks = Banks(remote, banking.banks.registry, banking.banks.options)  # pyright: ignore
    resources = BankResources(banks, lambda: 0)
    banking.put("progress.md", "x")
    uris = ["memory-bank://progress.md", "memory-bank://active-context.md"] * 5
    states = await asyncio.gather(*(resources.read_state(banking.session, uri) for uri in uris))
    assert len(set(states)) == 2
    assert asked == ["list"]


async def test_a_machine_that_does_not_answer_is_not_asked_for_each_document(banking: Banking) -> None:
    asked = ["lost"]
    now = [0]
    remote = Remote(banking.files, asked)
    banks = Banks(remote, banking.banks.registry, banking.banks.options)  # pyright: ignore
    resources = BankResources(banks, lambda: now[0])
    banking.put("progress.md", "x")
    uri = "memory-bank://progress.md"
    assert [await resources.read_state(banking.session, uri) for _ in range(3)] == ["unavailable"] * 3
    asked.remove("lost")
    assert await resources.read_state(banking.session, uri) == "unavailable"
    now[0] += 2_000_000
    assert await resources.read_state(banking.session, uri) != "unavailable"
    assert asked == ["list"]


async def test_a_remote_document_is_watched_under_any_spelling(banking: Banking) -> None:
    remote = Remote(banking.files, [])
    banks = Banks(remote, banking.banks.registry, banking.banks.options)  # pyright: ignore
    resources = BankResources(banks, lambda: 0)
    banking.put("Notes.md", "x")
    here = BankResources(banking.banks, lambda: 0)
    uri = "memory-bank://notes"
    assert await resources.read_state(banking.session, uri) == await here.read_state(banking.session, uri)
