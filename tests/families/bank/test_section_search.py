import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from assistant import PromptIndexing
from bank_search import Searched, searched_in
from everkept.core.sessions import Session
from everkept.embedders.onnx import OnnxEmbedder
from everkept.errors import BankNotFound
from everkept.families.bank.core_files import TEMPLATES
from everkept.families.bank.model import SECTION_KIND, BankOptions
from everkept.families.bank.section_records import MAX_INDEXED_BYTES
from memory_bank import bank_in

DECISIONS = """# Decision Log

## Use Postgres

- **Date:** 2026-02-13 10:30:00
- **Decision:** The orders database moves to Postgres.

## Ship on Fridays

- **Decision:** Never deploy the website on a Friday.
"""


@pytest.fixture
async def searched(tmp_path: Path) -> AsyncIterator[Searched]:
    async with searched_in(tmp_path) as made:
        yield made


async def found(searched: Searched, query: str, limit: int = 5) -> list[tuple[str, int]]:
    await searched.sync()
    await searched.indexing.catch_up()
    ranked = await searched.sections.rank_sections(searched.at.call(), searched.at.bank, query, limit)
    return [(section.file, section.line) for section in ranked.sections]


async def test_the_best_section_comes_first_with_its_lines(searched: Searched) -> None:
    searched.at.put("decision-log.md", DECISIONS)
    searched.at.put("notes.md", "Something else entirely.\n")
    await searched.sync()
    await searched.indexing.catch_up()
    answer = await searched.sections.find_sections(searched.at.call(), "database of orders", 3)
    best = answer.hits[0]
    assert (best.file, best.line) == ("decision-log.md", 3)
    assert best.heading == "Decision Log > Use Postgres"
    assert best.uri == "memory-bank://decision-log.md"
    assert "Postgres" in best.text
    assert 0 < best.score <= 1
    assert answer.notices == []


async def test_lines_are_those_of_the_file_as_it_is_now(searched: Searched) -> None:
    searched.at.put("decision-log.md", DECISIONS)
    assert (await found(searched, "Postgres"))[0] == ("decision-log.md", 3)
    searched.at.put("decision-log.md", DECISIONS.replace("# Decision Log", "# Decision Log\n\nx"))
    assert (await found(searched, "Postgres"))[0] == ("decision-log.md", 5)


async def test_an_index_that_may_not_follow_shows_only_what_is_still_there(tmp_path: Path) -> None:
    async with searched_in(tmp_path) as writing:
        writing.at.put("decision-log.md", DECISIONS)
        await writing.sync()
        options = BankOptions(str(tmp_path), read_only=True)
        async with searched_in(tmp_path, library=writing.at.library, options=options) as reading:
            changed = DECISIONS.replace("orders database", "whole store")
            reading.at.put("decision-log.md", f"---\ntitle: x\n---\n{changed}")
            ranked = await reading.sections.rank_sections(
                reading.at.call(), reading.at.bank, "website Postgres Friday", 5
            )
            assert [(s.heading, s.line) for s in ranked.sections] == [("Decision Log > Ship on Fridays", 11)]


async def test_a_file_that_vanished_is_no_answer(tmp_path: Path) -> None:
    async with searched_in(tmp_path) as writing:
        writing.at.put("a.md", "Postgres")
        await writing.sync()
        options = BankOptions(str(tmp_path), read_only=True)
        async with searched_in(tmp_path, library=writing.at.library, options=options) as reading:
            (tmp_path / "memory-bank" / "a.md").unlink()
            assert (
                await reading.sections.rank_sections(reading.at.call(), reading.at.bank, "Postgres", 5)
            ).sections == []


async def test_of_a_very_long_file_the_beginning_is_ranked_and_the_answer_says_so(searched: Searched) -> None:
    line = "- filler " + "x" * 1_900 + "\n"
    text = "# Long\n\nPostgres\n\n" + line * (MAX_INDEXED_BYTES // len(line) + 10) + "\n# End\n\nMySQL\n"
    searched.at.put("long.md", text)
    ranked = await searched.sections.rank_sections(searched.at.call(), searched.at.bank, "Postgres MySQL", 3)
    assert [section.line for section in ranked.sections][:1] == [1]
    assert "MySQL" not in "".join(section.text for section in ranked.sections)
    assert [n for n in ranked.notices if "beginning" in n and "long.md" in n]


async def test_without_a_bank_there_is_nothing_to_search(searched: Searched) -> None:
    call = searched.at.call()
    call.session.bank = os.fspath(searched.at.home / "nowhere")
    with pytest.raises(BankNotFound):
        await searched.sections.find_sections(call, "x", 3)
    assert Session().bank is None


@pytest.fixture
async def understood(tmp_path: Path) -> AsyncIterator[Searched]:
    """With the model that the package carries."""
    embedder = OnnxEmbedder()
    async with bank_in(tmp_path) as banking:
        yield Searched(banking, indexing=PromptIndexing(embedder, kinds=(SECTION_KIND,)))
    await embedder.close()


async def test_what_says_nothing_of_the_question_is_no_answer(understood: Searched) -> None:
    for name, text in TEMPLATES.items():
        understood.at.put(name, text)
    understood.at.put("decision-log.md", DECISIONS)
    understood.at.put(
        "progress.md", "# P\n\n## Log\n\n- [2026-02-13 10:30:00] [Al] - Fixed login: the token came too early\n"
    )
    assert await found(understood, "sign-in problem") == [("progress.md", 3)]
    assert (await found(understood, "when may we release?"))[0] == ("decision-log.md", 8)
    for query in ("xyzzyplugh", "how to bake sourdough bread", '"', "%", "🐛"):
        assert await found(understood, query) == []


async def test_a_section_beside_one_that_answers_is_no_answer(searched: Searched) -> None:
    searched.at.put("a.md", "# One\n\nPostgres\n\n# Two\n\nsomething\n\n# Three\n\nelse\n")
    assert await found(searched, "Postgres") == [("a.md", 1)]


async def test_a_question_of_signs_is_taken_literally(understood: Searched) -> None:
    understood.at.put("a.md", "# One\n\nIt costs 5 $.\n\n# Currency\n\nThe dollar amount\n")
    assert await found(understood, "$") == [("a.md", 1)]


class Sleepy(PromptIndexing):
    """Never comes to what waits."""

    async def wait_until_settled(self, within: float | None = None) -> bool:
        return False


async def test_sections_that_wait_for_their_vectors_are_counted(searched: Searched) -> None:
    searched.at.put("a.md", "# One\n\nfirst\n\n# Two\n\nsecond\n")
    slow = Searched(searched.at, indexing=Sleepy(kinds=(SECTION_KIND,)))
    answer = await slow.sections.find_sections(slow.at.call(), "first", 3)
    assert [hit.line for hit in answer.hits] == [1]
    assert [n for n in answer.notices if "does not cover 2 sections yet" in n]
    await slow.indexing.catch_up()
    assert (await slow.sections.find_sections(slow.at.call(), "first", 3)).notices == []


async def test_a_hit_is_shown_from_the_line_that_fits(searched: Searched) -> None:
    filler = "Some words that fill a line of this section.\n" * 18
    searched.at.put("a.md", f"# One\n\n{filler}\nThe cache is warmed.\n{filler}")
    await searched.sync()
    await searched.indexing.catch_up()
    answer = await searched.sections.find_sections(searched.at.call(), "warm caches", 1)
    (hit,) = answer.hits
    assert "The cache is warmed." in hit.text[:30]
    assert searched.at.get("a.md").splitlines()[hit.line - 1] == "The cache is warmed."
