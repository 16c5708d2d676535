import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core.times import parse_time
from everkept.transcripts.documents import LineTranscript, PlainFormat
from transcript_replay import Replay, replayed, written


def transcript(path: Path) -> LineTranscript:
    return LineTranscript(path, "jsonl", PlainFormat)


def said(**changes: Any) -> dict[str, Any]:
    line = {"session": "s1", "author": "Ada", "timestamp": "2026-03-02T11:00:00Z", "text": "Hello"}
    return line | changes


def read(folder: Path, *records: Any) -> Replay:
    return replayed(transcript(written(folder / "talk.jsonl", records)))


def test_a_line_is_a_turn_with_all_that_it_says(tmp_path: Path) -> None:
    extras = {"project": "/shop", "branch": "main", "files": ["a.py"], "tools": ["Read", "Read"]}
    [turn] = read(tmp_path, said(**extras)).turns.values()
    assert (turn.session, turn.author, turn.text) == ("s1", "Ada", "Hello")
    assert turn.at == parse_time("2026-03-02T11:00:00Z")
    assert (turn.project, turn.branch, turn.files, turn.tools) == ("/shop", "main", ("a.py",), ("Read",))


@pytest.mark.parametrize(
    ("author", "kept"), [("User", "user"), ("human", "user"), ("Assistant", "assistant"), ("Grace", "Grace")]
)
def test_the_two_sides_have_one_spelling_and_names_stay(author: str, kept: str, tmp_path: Path) -> None:
    [turn] = read(tmp_path, said(author=author)).turns.values()
    assert turn.author == kept


@pytest.mark.parametrize(
    ("written_time", "iso"),
    [
        ("2026-03-02T11:00:00.250Z", "2026-03-02T11:00:00.250Z"),
        ("2026-03-02T13:00:00+02:00", "2026-03-02T11:00:00Z"),
        (1_772_449_200, "2026-03-02T11:00:00Z"),
        (1_772_449_200_250, "2026-03-02T11:00:00.250Z"),
        ("1772449200", "2026-03-02T11:00:00Z"),
    ],
)
def test_times_are_iso_or_counted_since_1970(written_time: object, iso: str, tmp_path: Path) -> None:
    [turn] = read(tmp_path, said(timestamp=written_time)).turns.values()
    assert turn.at == parse_time(iso)


def test_a_time_without_a_zone_is_that_of_the_machine(tmp_path: Path) -> None:
    [turn] = read(tmp_path, said(timestamp="2026-07-02 11:00")).turns.values()
    assert turn.at == datetime(2026, 7, 2, 11).astimezone().timestamp() * 1_000_000


@pytest.mark.parametrize("timestamp", ["soon", {}, True, "9" * 400])
def test_a_time_that_is_none_is_counted_and_the_turn_stays(timestamp: object, tmp_path: Path) -> None:
    replay = read(tmp_path, said(timestamp=timestamp))
    assert [turn.at for turn in replay.turns.values()] == [None]
    assert replay.skipped == {"invalid timestamp": 1}


@pytest.mark.parametrize("field", ["session", "author", "text"])
@pytest.mark.parametrize("value", [None, "", " ", 4.5, [], {}])
def test_a_line_that_lacks_something_is_skipped_with_its_reason(field: str, value: object, tmp_path: Path) -> None:
    replay = read(tmp_path, said(**{field: value}), said())
    assert len(replay.turns) == 1
    assert replay.skipped == {f"line without {field}": 1}


def test_equal_lines_are_one_turn_where_they_have_one_time(tmp_path: Path) -> None:
    assert len(read(tmp_path, said(), said()).turns) == 1
    untimed = said(timestamp=None)
    assert len(read(tmp_path, untimed, untimed).turns) == 2


def test_lines_without_a_time_stay_apart_in_any_number_of_conversations(tmp_path: Path) -> None:
    lines = [said(session=f"s{n % 65}", timestamp=None) for n in range(195)]
    assert len(read(tmp_path, *lines).turns) == 195


@pytest.mark.parametrize("timestamp", ["2026-03-02T11:00:00Z", None])
def test_a_file_that_is_written_anew_has_its_own_turns_alone(timestamp: str | None, tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    lines = [said(text=f"line {n}", timestamp=timestamp) for n in range(5)]
    replay = replayed(transcript(written(path, lines)))
    written(path, [said(text="in front", timestamp=timestamp), *lines[:3]])
    replay.read(transcript(path))
    assert sorted(replay.texts) == ["in front", "line 0", "line 1", "line 2"]
    assert replay.turns == replayed(transcript(path)).turns


def test_a_name_of_any_length_is_kept_shortened(tmp_path: Path) -> None:
    lines = [said(session="s" * 300 + end, author="a" * 300) for end in "xy"]
    one, other = read(tmp_path, *lines).turns.values()
    assert one.session != other.session
    assert {len(turn.session) for turn in (one, other)} == {167}
    assert one.session.startswith("s" * 150 + "#")
    assert one.author == "a" * 200


def test_a_path_that_is_none_is_left_out_and_counted(tmp_path: Path) -> None:
    long = "/x" * 501
    replay = read(tmp_path, said(project=long, files=[long, "a.py"], tools=["t" * 201, "Read"]))
    [turn] = replay.turns.values()
    assert (turn.project, turn.files, turn.tools) == (None, ("a.py",), ("Read",))
    assert replay.skipped == {"path over 1,000 characters": 2}


def test_a_copy_of_the_file_has_the_same_turns(tmp_path: Path) -> None:
    lines = [said(), said(session="s2"), said(text="And?"), said()]
    first = read(tmp_path / "here", *lines)
    assert first.turns == read(tmp_path / "there", *lines).turns


def test_a_conversation_that_comes_before_changes_no_keys(tmp_path: Path) -> None:
    alone = read(tmp_path / "alone", said(), said(text="And?"))
    after = read(tmp_path / "after", said(session="s0"), said(), said(text="And?"))
    assert alone.turns.keys() < after.turns.keys()


def test_an_id_of_its_own_is_the_key(tmp_path: Path) -> None:
    replay = read(tmp_path, said(id="a"), said(id=7), said(id="a", text="Hello again"))
    assert replay.texts == ["Hello again", "Hello"]


def test_a_title_is_told_once(tmp_path: Path) -> None:
    path = written(tmp_path / "talk.jsonl", [said(title="Greetings"), said(title="Greetings")])
    [portion] = transcript(path).read_portions(None)
    assert [type(event).__name__ for event in portion.events] == ["TitleEvent", "Turn", "Turn"]


def test_the_state_stays_small_however_many_conversations_there_are(tmp_path: Path) -> None:
    path = written(tmp_path / "talk.jsonl", [said(session=f"s{n}") for n in range(2_000)])
    replay = replayed(transcript(path))
    assert len(replay.turns) == 2_000
    assert len(json.dumps(replay.mark)) < 4_000


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_bytes(b'{"session": "s", "author": "a", "text": "caf\xe9"}\n\xff\xfe\n')
    replay = replayed(transcript(path))
    assert replay.texts == ["caf\ufffd"]
    assert replay.skipped.total() == 1


LINES = st.builds(
    said,
    session=st.sampled_from(["a", "b"]),
    text=st.sampled_from(["yes", "no", ""]),
    timestamp=st.sampled_from([1, 2]),
)


@settings(deadline=None)
@given(st.lists(LINES, max_size=8), st.integers(min_value=0))
def test_reading_on_as_the_file_grows_gives_what_one_reading_gives(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Any], cut: int
) -> None:
    path = written(tmp_path_factory.mktemp("plain") / "talk.jsonl", lines)
    whole = path.read_bytes()
    replay = Replay()
    path.write_bytes(whole[: cut % (len(whole) + 1)])
    replay.read(transcript(path))
    path.write_bytes(whole)
    replay.read(transcript(path))
    assert replay.turns == replayed(transcript(path)).turns


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(st.fixed_dictionaries(dict.fromkeys([*said(), "id", "title", "files", "project"], JSON)))
def test_no_shape_of_a_field_is_an_error(record: dict[str, Any]) -> None:
    form = PlainFormat(Path("talk.jsonl"), None)
    form.take(record, 1)
    PlainFormat(Path("talk.jsonl"), form.get_state()).take(said(), 2)
    PlainFormat(Path("talk.jsonl"), record).take(said(), 2)
