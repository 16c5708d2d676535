import json

import pytest

from everkept.core.transcripts import has_marker, has_marker_in_json

MARKER = "<!-- everkept: do not index -->"


@pytest.mark.parametrize(
    "text",
    [
        "<INSTRUCTIONS-TO-EPISODIC-MEMORY>DO NOT INDEX THIS CHAT</INSTRUCTIONS-TO-EPISODIC-MEMORY>",
        "a <instructions-to-episodic-memory>\n do not  index this chat\n</ instructions-to-episodic-memory > b",
        "<!-- everkept: do not index -->",
        "<!--EVERKEPT : DO NOT\nINDEX-->",
        "What does `<!-- everkept: do not index -->` do?",
        "```\n<!-- everkept: do not index -->\n```",
    ],
)
def test_a_marker_counts_wherever_it_stands(text: str) -> None:
    assert has_marker(text)


@pytest.mark.parametrize(
    "text",
    [
        "do not index this chat",
        "<INSTRUCTIONS-TO-EPISODIC-MEMORY>",
        "<INSTRUCTIONS-TO-EPISODIC-MEMORY>index this</INSTRUCTIONS-TO-EPISODIC-MEMORY>",
        "<!-- everkept -->",
        "everkept: do not index",
        "",
    ],
)
def test_less_than_the_whole_marker_is_none(text: str) -> None:
    assert not has_marker(text)


@pytest.mark.parametrize(
    "raw",
    [
        json.dumps({"a": MARKER}),
        json.dumps({"a": json.dumps({"b": json.dumps([f"x\n{MARKER}"])})}),
        r'{"a": "\u003c!\u002d- Everkept: do\nnot\tindex --\u003E"}',
        r'{"a": "{\"b\": \"\\u003c!-- everkept: do not\\nindex --\\u003e\"}"}',
        r'{"a": "<INSTRUCTIONS-TO-EPISODIC-MEMORY>DO NOT INDEX THIS CHAT'
        r'<\/INSTRUCTIONS-TO-EPISODIC-MEMORY>"}',
        f"no json at all {MARKER}",
    ],
)
def test_a_marker_counts_however_it_is_escaped(raw: str) -> None:
    assert has_marker_in_json(raw.encode())


@pytest.mark.parametrize("raw", [b"", b"everkept", b'{"everkept": "\\u003c!-- no"}', b"\xff<!--"])
def test_other_bytes_hold_none(raw: bytes) -> None:
    assert not has_marker_in_json(raw)


def test_a_long_row_of_backslashes_takes_no_long_time() -> None:
    assert not has_marker_in_json(b"everkept" + b"\\" * 4_000_000)
