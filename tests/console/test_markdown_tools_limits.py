"""Markdown made to take long, or to break the reader."""

import pytest

from everkept.console.markdown_tools import MAX_CHARACTERS, MAX_TOGETHER, MarkdownPageTools, read_tokens


@pytest.mark.parametrize("text", ["*" * 5_000 + "a" + "*" * 5_000, "> " * 5_000, "- " * 5_000, "[" * 5_000])
def test_marks_within_marks_are_shown(text: str) -> None:
    assert read_tokens(text)["tokens"]


def test_a_table_of_very_many_cells_is_not_built() -> None:
    """Each row gets as many cells as the head, so that a few characters would become millions of nodes."""
    hostile = "|" + "a|" * 2_000 + "\n|" + "-|" * 2_000 + "\n" + "|\n" * 2_000
    assert "table" not in {each["tag"] for each in read_tokens(hostile)["tokens"]}
    assert [each["tag"] for each in read_tokens("a|b\n-|-\n1|2")["tokens"]] == ["table"]


async def test_texts_are_read_up_to_a_limit_together() -> None:
    long = "a" * (MAX_CHARACTERS + 10)
    count = MAX_TOGETHER // MAX_CHARACTERS + 2
    told = (await MarkdownPageTools().read_markdown(texts=[long] * count)).facts["texts"]
    assert [each["rest"] for each in told[:-2]] == [10] * (count - 2)
    assert [each["rest"] for each in told[-2:]] == [len(long)] * 2
