"""Reading markdown line by line, and the quick way to what most texts hold."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from everkept.families.bank.markdown_blocks import find_headings, parse_outline, split_lines

PIECES = st.sampled_from(
    [
        "# ", "## ", "### Title", "#", "#tag", "####### deep", " # ", "    # ", "\t# ", "x", "- ",
        "  ", "1. ", "> ", "---", "===", " -- ", "***", "```", "~~~", "<!--", "-->", "\ufeff",
        "#\t", "\n", "\n", "\n\n", "\r\n", "\r", "\x0b", "\x85", "\u2028", "\0", "\ud800",
        "## done ##",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=25).map("".join)


@given(TEXTS)
@example("# Title\n\n## History\n\n- one\n  # no heading\n- two\n\n## Next ##\n")
@example("Title\n=====\n\nOther\n---\n")
@example("---\nkey: value\n---\n# Title\n")
def test_the_headings_of_a_text_are_those_of_its_outline(text: str) -> None:
    assert find_headings(text) == parse_outline(split_lines(text), whole=True).headings


@given(TEXTS)
def test_line_feeds_and_carriage_returns_alone_end_a_line(text: str) -> None:
    lines = split_lines(text)
    assert lines == re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)
    assert "".join(lines) == text
