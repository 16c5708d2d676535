import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.hooks.session_recap import MAX_TAIL_BYTES, Utterance, read_recent_utterances


def line(kind: str, content: Any, **more: Any) -> str:
    record = {"type": kind, "sessionId": "s-1", "timestamp": "2026-01-01T00:00:00Z"}
    return json.dumps(record | {"message": {"role": kind, "content": content}} | more)


def read(tmp_path: Path, *lines: str) -> list[str]:
    file = tmp_path / "s-1.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [said.text for said in read_recent_utterances(file, "s-1")]


def test_what_both_said_is_there_in_order_with_its_time(tmp_path: Path) -> None:
    file = tmp_path / "s-1.jsonl"
    text = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Yes."}]
    file.write_text(line("user", "Is it?") + "\n" + line("assistant", text), encoding="utf-8")
    at = 1_767_225_600_000_000
    assert read_recent_utterances(file, "s-1") == [Utterance("Is it?", True, at), Utterance("Yes.", False, at)]


def test_tools_agents_summaries_and_others_are_left_out(tmp_path: Path) -> None:
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "printed"}]
    assert read(
        tmp_path,
        line("user", "Mine."),
        line("user", result),
        line("user", "<system-reminder>Be brief.</system-reminder>"),
        line("user", "Of an agent.", isSidechain=True),
        line("user", "The program's.", isMeta=True),
        line("user", "This session is being continued.", isCompactSummary=True),
        line("assistant", [{"type": "text", "text": "API Error"}], isApiErrorMessage=True),
        line("user", "Of another session.", sessionId="s-2"),
        line("system", "Conversation compacted", subtype="user"),
        '{"type": "user", "broken',
    ) == ["Mine."]


def test_of_a_long_transcript_only_the_end_is_read(tmp_path: Path) -> None:
    padding = line("user", "x" * MAX_TAIL_BYTES)
    assert read(tmp_path, line("user", "Early."), padding, line("user", "Late.")) == ["Late."]


def test_what_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    assert read_recent_utterances(tmp_path / "missing.jsonl", "s-1") == []
    assert read_recent_utterances(tmp_path, "s-1") == []


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tail") / "any.jsonl"


shapes = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(("user", "text", "assistant")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("type", "message", "content", "text", "sessionId", "timestamp")), inner, max_size=5
        )
    ),
    max_leaves=12,
)


@given(st.lists(shapes, max_size=4), st.binary(max_size=40))
def test_no_shape_of_a_line_is_a_fault(file: Path, values: list[Any], rest: bytes) -> None:
    file.write_bytes("\n".join(map(json.dumps, values)).encode() + b'\n"user"' + rest)
    for said in read_recent_utterances(file, "s-1"):
        assert said.text
