"""What every format of JSON lines must bear: files that are cut, mixed, wrong or still growing."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.transcripts.claude_code import ClaudeCodeFormat
from everkept.transcripts.codex import CodexFormat
from everkept.transcripts.cursor_agents import CursorFormat
from everkept.transcripts.documents import LineTranscript, MakeFormat, PlainFormat
from everkept.transcripts.gemini import GeminiFormat, GeminiProjects
from line_files import changed, jsonl, places, read, read_growing, read_with_breaks
from transcript_replay import SAMPLES, Replay

PLAIN = jsonl(
    {"session": "s", "author": "user", "timestamp": "2026-03-02T10:00:00Z", "text": "Why?"},
    {"session": "s", "author": "assistant", "timestamp": 1772445605, "text": "So.", "title": "T"},
    {"session": "t", "author": "Ada", "timestamp": None, "text": "Hello", "project": "/home/dev"},
)
FORMATS: dict[str, tuple[MakeFormat, bytes]] = {
    "claude-code": (ClaudeCodeFormat, (SAMPLES / "claude_code_session.jsonl").read_bytes()),
    "codex": (CodexFormat, (SAMPLES / "codex_rollout.jsonl").read_bytes()),
    "cursor": (CursorFormat, (SAMPLES / "cursor_agent_transcript.jsonl").read_bytes()),
    "gemini": (
        partial(GeminiFormat, projects=GeminiProjects(SAMPLES)),
        (SAMPLES / "gemini_session.jsonl").read_bytes(),
    ),
    "jsonl": (PlainFormat, PLAIN),
}
NAMES = pytest.mark.parametrize("source", FORMATS)

JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(["", "<", "text", "tool_use", "9999-12-31T23:59:59-14:00", "\ud800"]),
    ),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3), st.dictionaries(st.sampled_from(["type", "text", "content", "id", "input"]), parts)
    ),
    max_leaves=6,
)


def records_of(data: bytes) -> Iterator[Any]:
    for line in data.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def made(folders: pytest.TempPathFactory, data: bytes) -> Path:
    path = folders.mktemp("cut") / "transcript.jsonl"
    path.write_bytes(data)
    return path


def storable(kept: Replay) -> bool:
    """Texts can be stored, times are times, and the mark is JSON."""
    for turn in kept.turns.values():
        repr(turn).encode("utf-8")
        turn.text.encode("utf-8")
        assert "\0" not in turn.text
        assert all((turn.key, turn.session, turn.author))
        assert turn.at is None or type(turn.at) is int
    return json.loads(json.dumps(kept.mark)) == kept.mark


@NAMES
def test_a_file_that_is_cut_anywhere_and_then_whole_is_read_as_one(
    source: str, tmp_path_factory: pytest.TempPathFactory, *, thorough: bool
) -> None:
    form, data = FORMATS[source]
    path = made(tmp_path_factory, data)
    whole = read(path, form)
    assert whole.turns
    for length in range(0, len(data), 1 if thorough else 7):
        grown = read_growing(path, form, [length])
        assert grown.turns == whole.turns
        assert (grown.titles, grown.skipped) == (whole.titles, whole.skipped)


@NAMES
@settings(deadline=None)
@given(data=st.data())
def test_reading_may_stop_after_any_turn(
    source: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    form, sample = FORMATS[source]
    lines = sample.splitlines(keepends=True)
    order = data.draw(st.lists(st.sampled_from(range(len(lines))), max_size=16))
    # The first line says what the others belong to.
    path = made(tmp_path_factory, b"".join(lines[number] for number in [0, *order]))
    size = path.stat().st_size
    lengths = sorted(data.draw(st.lists(st.integers(0, size), max_size=4)))
    whole = read(path, form)
    for interrupted in (read_with_breaks, read_growing):
        kept = interrupted(path, form, lengths)
        assert (kept.turns, kept.titles) == (whole.turns, whole.titles)
        assert kept.skipped == whole.skipped


@NAMES
@settings(deadline=None)
@given(data=st.data())
def test_of_a_file_that_is_written_anew_is_known_what_is_in_it(
    source: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    form, sample = FORMATS[source]
    lines = sample.splitlines(keepends=True)
    kept = read(path := made(tmp_path_factory, sample), form)
    numbers = data.draw(st.lists(st.sampled_from(range(len(lines))), max_size=16))
    path.write_bytes(b"\n" + b"".join(lines[number] for number in [0, *numbers]))
    anew = read(path, form)
    for stop in (*data.draw(st.lists(st.integers(0, 3), max_size=3)), None):
        kept.read(LineTranscript(path, "test", form, turns_in_portion=1), stop)
    assert kept.turns == anew.turns or not anew.turns


@NAMES
@settings(deadline=None)
@given(data=st.data())
def test_a_marker_in_any_line_is_of_a_conversation_in_the_file(
    source: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    form, sample = FORMATS[source]
    records = list(records_of(sample))
    number = data.draw(st.integers(0, len(records) - 1))
    records[number] |= {"also": [{"deep": "<!-- everkept: do not index -->"}]}
    kept = read(made(tmp_path_factory, jsonl(*records)), form)
    [marked] = kept.marked
    parents = {turn.part_of for turn in kept.turns.values()}
    assert marked in {turn.session for turn in kept.turns.values()} | parents


@NAMES
@settings(deadline=None)
@given(data=st.data())
def test_any_value_in_any_field_is_borne(
    source: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    form, sample = FORMATS[source]
    records = list(records_of(sample))
    for _ in range(data.draw(st.integers(1, 3))):
        number = data.draw(st.integers(0, len(records) - 1))
        where = data.draw(st.sampled_from(places(records[number])))
        records[number] = changed(records[number], where, data.draw(JSON))
    path = made(tmp_path_factory, jsonl(*records))
    kept = read(path, form)
    assert storable(kept)
    growing = read_growing(path, form, [path.stat().st_size // 2])
    assert growing.turns == kept.turns


@NAMES
@settings(deadline=None)
@given(data=st.data())
def test_any_bytes_in_any_place_are_borne(
    source: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    form, sample = FORMATS[source]
    damaged = bytearray(sample)
    for _ in range(data.draw(st.integers(1, 5))):
        start = data.draw(st.integers(0, len(damaged)))
        length = data.draw(st.integers(0, 20))
        damaged[start : start + length] = data.draw(st.binary(max_size=20))
    assert storable(read(made(tmp_path_factory, bytes(damaged)), form))


@NAMES
def test_a_gigantic_line_is_passed(source: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    form, sample = FORMATS[source]
    expected = read(made(tmp_path_factory, sample), form)
    line = b'{"type": "user", "text": "' + b"x" * (9 * 1024 * 1024) + b'"}\n'
    kept = read(made(tmp_path_factory, line + sample), form)
    assert kept.skipped["line too long"] == 1
    assert [turn.text for turn in kept.turns.values()] == [turn.text for turn in expected.turns.values()]


def test_lines_of_two_sessions_between_each_other_are_told_apart(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where lines say which session they are of."""
    form, sample = FORMATS["claude-code"]
    other = sample.replace(b"11111111-2222", b"99999999-2222").replace(b"aaaaaaaa-0", b"bbbbbbbb-0")
    pairs = zip(sample.splitlines(True), other.splitlines(True), strict=True)
    path = made(tmp_path_factory, b"".join(line for pair in pairs for line in pair))
    kept = read(path, form)
    for data in (sample, other):
        alone = read(made(tmp_path_factory, data), form)
        assert {key: kept.turns[key] for key in alone.turns} == alone.turns
    assert len(kept.turns) == 10
