"""Files in other encodings are shown where that is possible, and never broken by an edit."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.errors import Refused
from everkept.families.bank.bank_files import as_bytes, as_text, as_utf8, replace_undecoded
from everkept.families.bank.banks import Bank
from everkept.families.bank.file_tools import FileTools
from everkept.families.bank.progress_tools import ProgressTools
from memory_bank import Banking, bank_in

TEXT = "# Context\n\n## Ongoing Tasks\n\n- Größe\n- b\n"
FOREIGN = {
    "UTF-16 of Windows": TEXT.encode("utf-16"),
    "UTF-16 the other way round": b"\xfe\xff" + TEXT.encode("utf-16-be"),
    "UTF-32": TEXT.encode("utf-32"),
    "without a mark": TEXT.encode("utf-16-le"),
}


async def no_graph(_: Bank) -> str | None:
    return None


@pytest.fixture
async def bank(tmp_path: Path) -> AsyncIterator[Banking]:
    async with bank_in(tmp_path) as bank:
        bank.offer(FileTools(bank.banks, bank.records, bank.clock, no_graph), ProgressTools(bank.banks, bank.clock))
        yield bank


@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("update_tasks", {"add": ["c"]}),
        ("update_tasks", {"remove": ["b"]}),
        ("update_active_context", {"issues": ["c"]}),
        ("add_session_note", {"note": "c"}),
    ],
)
async def test_an_edit_refuses_what_it_could_not_keep_whole(
    bank: Banking, data: bytes, tool: str, arguments: dict[str, object]
) -> None:
    bank.put("activeContext.md", data)
    with pytest.raises(Refused) as caught:
        await bank(tool, **arguments)
    assert "activeContext.md was not changed: it " in str(caught.value)
    assert "UTF-8" in str(caught.value)
    assert (bank.folder / "activeContext.md").read_bytes() == data


@pytest.mark.parametrize("data", list(FOREIGN.values())[:3], ids=list(FOREIGN)[:3])
async def test_what_a_mark_tells_is_read_decoded_and_warned_about(bank: Banking, data: bytes) -> None:
    bank.put("active-context.md", data)
    answer = await bank("read_memory_bank_file", filename="active-context.md")
    assert answer["content"] == TEXT
    assert [warning["code"] for warning in answer["warnings"]] == ["not_utf8"]
    part = await bank("read_memory_bank_file", filename="active-context.md", startLine=5, endLine=5)
    assert (part["content"], part["totalLines"]) == ("- Größe\n", 6)
    assert part["warnings"] == answer["warnings"]
    digest = await bank("get_context_digest")
    assert digest["digest"]["currentContext"]["tasks"] == ["Größe", "b"]


async def test_nul_bytes_are_warned_about(bank: Banking) -> None:
    bank.put("notes.md", b"a\0b")
    answer = await bank("read_memory_bank_file", filename="notes.md")
    assert "NUL bytes" in answer["warnings"][0]["message"]


async def test_single_bytes_that_are_no_text_are_kept_and_shown_as_such(bank: Banking) -> None:
    bank.put("active-context.md", b"## Ongoing Tasks\n\n- caf\xe9\n")
    for _ in range(2):  # the second time nothing changes
        result = await bank.result("update_tasks", add=["b"])
        assert result.facts["tasks"] == ["caf\ufffd", "b"]
        assert [warning["code"] for warning in result.facts["warnings"]] == ["not_utf8"]
        assert "caf\ufffd" in result.text
    written = (bank.folder / "active-context.md").read_bytes()
    assert written == b"## Ongoing Tasks\n\n- caf\xe9\n- b\n"


@given(st.binary())
def test_bytes_survive_the_way_through_text(data: bytes) -> None:
    assert as_bytes(as_text(data)) == data
    replace_undecoded(as_text(data)).encode()
    as_utf8(data)
