from pathlib import Path

from assistant import Time
from everkept.core.files import FileInfo
from everkept.families.bank.banks import Bank
from everkept.families.bank.section_records import TextCache, list_searched_files
from memory_bank import Banking, bank_in


class CountedFiles:
    """Counts which files are read."""

    def __init__(self, bank: Bank) -> None:
        self._files = bank.files
        self.read_names: list[str] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._files, name)

    async def read(self, path: str) -> bytes:
        self.read_names.append(path)
        return await self._files.read(path)


def counted(bank: Bank) -> tuple[Bank, list[str]]:
    files = CountedFiles(bank)
    return Bank(files, bank.home), files.read_names  # pyright: ignore[reportArgumentType]


async def info_of(banking: Banking, name: str) -> FileInfo:
    info = await banking.bank.files.read_info(name)
    assert info is not None
    return info


async def test_a_file_is_read_again_only_when_it_changed(tmp_path: Path) -> None:
    async with bank_in(tmp_path) as banking:
        bank, read = counted(banking.bank)
        texts = TextCache(Time())
        banking.put("a.md", "one")
        for _ in range(3):
            assert await texts.read(bank, await info_of(banking, "a.md")) == b"one"
        assert read == ["a.md"]
        banking.put("a.md", "one and two")
        assert await texts.read(bank, await info_of(banking, "a.md")) == b"one and two"
        assert read == ["a.md", "a.md"]


async def test_a_file_that_changed_just_now_may_change_again_unseen(tmp_path: Path) -> None:
    async with bank_in(tmp_path) as banking:
        banking.put("a.md", "one")
        info = await info_of(banking, "a.md")
        texts = TextCache(lambda: info.modified_at + 1_000_000)
        assert await texts.read(banking.bank, info) == b"one"
        banking.put("a.md", "two")
        assert await texts.read(banking.bank, info) == b"two"


async def test_what_does_not_fit_is_read_again_and_keeps_nothing_else_out(tmp_path: Path) -> None:
    async with bank_in(tmp_path) as banking:
        bank, read = counted(banking.bank)
        texts = TextCache(Time(), most=10)
        for name, text in (("a.md", "12345"), ("b.md", "12345"), ("c.md", "1234567")):
            banking.put(name, text)
        for _ in range(2):
            for info in await list_searched_files(bank):
                await texts.read(bank, info)
        assert read == ["a.md", "b.md", "c.md", "c.md"]


async def test_another_bank_makes_room_for_the_one_in_use(tmp_path: Path) -> None:
    async with bank_in(tmp_path / "one") as one, bank_in(tmp_path / "two") as two:
        first, read_first = counted(one.bank)
        second, read_second = counted(two.bank)
        texts = TextCache(Time(), most=10)
        one.put("a.md", "12345678")
        two.put("a.md", "12345678")
        for _ in range(2):
            await texts.read(second, await info_of(two, "a.md"))
        await texts.read(first, await info_of(one, "a.md"))
        await texts.read(second, await info_of(two, "a.md"))
        assert (read_first, read_second) == (["a.md"], ["a.md", "a.md"])


async def test_core_files_are_searched_first_and_only_files_of_a_bank(tmp_path: Path) -> None:
    async with bank_in(tmp_path) as banking:
        for name in ("zeta.md", "Alpha.json", "progress.md", "activeContext.md", "x.txt", ".y.md"):
            banking.put(name, "text")
        banking.put("graph/graph.md", "text")
        found = [info.path for info in await list_searched_files(banking.bank)]
        assert found == ["activeContext.md", "progress.md", "Alpha.json", "zeta.md"]
