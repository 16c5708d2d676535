import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core.times import parse_time
from everkept.transcripts.cursor_agents import CursorFormat, parse_text
from everkept.transcripts.documents import DocumentTranscript, LineTranscript
from examples import examples
from transcript_replay import SAMPLES, Replay, expected, replayed, written

SESSION = "55555555-6666-4777-8888-999999999999"


def lines(path: Path) -> LineTranscript:
    return LineTranscript(path, "cursor", CursorFormat)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def use(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": tool, "input": arguments}


def user(said: str) -> dict[str, Any]:
    return {"role": "user", "message": {"content": [text(said)]}}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "message": {"content": list(blocks)}}


ENDED = {"type": "turn_ended", "status": "completed"}


def read(folder: Path, *records: Any) -> Replay:
    return replayed(lines(written(folder / f"{SESSION}.jsonl", records)))


def test_the_sample_is_a_question_and_an_answer() -> None:
    replay = replayed(lines(SAMPLES / "cursor_agent_transcript.jsonl"))
    wanted = expected("cursor_agent_transcript.jsonl")
    question, answer = replay.turns.values()
    assert (question.author, question.text) == ("user", wanted["user"])
    assert question.at == datetime(2026, 3, 2, 12).astimezone().timestamp() * 1_000_000
    assert (answer.author, answer.text) == ("assistant", "Searching for uses.")
    assert list(answer.tools) == wanted["tools"]
    assert replay.skipped == {}


@pytest.mark.parametrize(
    ("tag", "iso"),
    [
        ("Monday, Mar 2, 2026, 3:01 PM (UTC-5)", "2026-03-02T20:01:00Z"),
        ("Monday, Mar 2, 2026, 12:30 AM (UTC+5:30)", "2026-03-01T19:00:00Z"),
        ("Monday, March 2, 2026, 12:05 PM (UTC)", "2026-03-02T12:05:00Z"),
        ("2026-03-02T12:00:00Z", "2026-03-02T12:00:00Z"),
    ],
)
def test_the_time_is_that_of_the_tag(tag: str, iso: str, tmp_path: Path) -> None:
    asked = f"<timestamp>{tag}</timestamp>\n<user_query>\nWhy?\n</user_query>"
    [turn] = read(tmp_path, user(asked)).turns.values()
    assert turn.at == parse_time(iso)


def test_a_spelled_time_without_a_zone_is_that_of_the_machine(tmp_path: Path) -> None:
    [turn] = read(tmp_path, user("<timestamp>Monday, Jul 13, 2026</timestamp> Why?")).turns.values()
    assert turn.at == datetime(2026, 7, 13).astimezone().timestamp() * 1_000_000


@pytest.mark.parametrize(
    "tag", ["Monday morning", "Xyz 2, 2026", "Feb 31, 2026", "Mar 2, 2026, 25:00", "", "Mar 2, 2026 (UTC+99)"]
)
def test_a_tag_that_is_no_time_gives_none(tag: str, tmp_path: Path) -> None:
    [turn] = read(tmp_path, user(f"<timestamp>{tag}</timestamp> Why?")).turns.values()
    assert (turn.at, turn.text) == (None, "Why?")


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("<user_query>\nWhy?\n</user_query>", "Why?"),
        ("[Image]\n<image_files>\n1. a.png\n</image_files>\n<user_query>Why?</user_query>", "Why?"),
        ("<user_query>One</user_query> and <user_query>two</user_query>", "One\n\ntwo"),
        ("<user_query>cut off", "cut off"),
        ("<attached_files>\nx\n</attached_files>\nWhy?", "Why?"),
        ('<system_notification source="x">y</system_notification>\nWhy?', "Why?"),
        ("Why is <my_tag>this</my_tag> here?", "Why is <my_tag>this</my_tag> here?"),
    ],
)
def test_only_what_the_user_wrote_is_kept(said: str, kept: str, tmp_path: Path) -> None:
    assert read(tmp_path, user(said)).texts == [kept]


def test_what_the_program_says_by_itself_is_no_turn(tmp_path: Path) -> None:
    notice = "<timestamp>now</timestamp>\n<system_reminder>Mind the gap.</system_reminder>"
    replay = read(tmp_path, user(notice), user("Why?"))
    assert replay.texts == ["Why?"]
    assert replay.skipped == {"empty message": 1}


def test_what_the_model_thought_is_not_kept(tmp_path: Path) -> None:
    replay = read(tmp_path, assistant(text("[REDACTED]")), assistant(text("So.\n[REDACTED]")))
    assert replay.texts == ["So."]


def test_edits_are_snippets_and_files(tmp_path: Path) -> None:
    edit = use("StrReplace", path="cart.py", old_string="a", new_string="b")
    made = use("Write", path="basket.py", contents="class Basket: ...")
    replay = read(tmp_path, assistant(text("I rename it."), edit), assistant(made), ENDED)
    [turn] = replay.turns.values()
    assert (turn.tools, turn.files) == (("StrReplace", "Write"), ("cart.py", "basket.py"))
    assert [(each.text, each.file, each.replaced) for each in turn.snippets] == [
        ("b", "cart.py", "a"),
        ("class Basket: ...", "basket.py", None),
    ]


def test_a_turn_that_ended_badly_says_why(tmp_path: Path) -> None:
    ended = {"type": "turn_ended", "status": "error", "error": "Too many requests"}
    [turn] = read(tmp_path, assistant(text("I look.")), ended).turns.values()
    assert turn.failures == ("Too many requests",)


def test_each_text_is_a_turn_with_the_tools_behind_it(tmp_path: Path) -> None:
    replay = read(
        tmp_path,
        user("Rename it"),
        assistant(text("I look."), use("Grep", pattern="Cart")),
        assistant(use("Read", path="cart.py")),
        assistant(text("Done.")),
        ENDED,
    )
    assert replay.texts == ["Rename it", "I look.", "Done."]
    assert list(replay.turns.values())[1].tools == ("Grep", "Read")


def test_equal_turns_are_told_apart_and_copies_are_not(tmp_path: Path) -> None:
    records = [user("Again"), assistant(text("So.")), ENDED, user("Again")]
    first = read(tmp_path / "here", *records)
    assert len(first.turns) == 3
    assert first.turns == read(tmp_path / "there", *records).turns


@pytest.mark.parametrize("changed", [0, 2, 3])
def test_what_is_written_anew_takes_the_place_of_what_was_there(changed: int, tmp_path: Path) -> None:
    records = [user("one"), assistant(text("yes")), user("two"), assistant(text("no"))]
    path = written(tmp_path / f"{SESSION}.jsonl", records)
    replay = replayed(lines(path))
    records[changed] = user("other") if changed % 2 == 0 else assistant(text("other"))
    replay.read(lines(written(path, records)))
    assert sorted(replay.texts) == sorted(replayed(lines(path)).texts)
    assert "other" in replay.texts
    assert len(replay.turns) == 4


def test_turns_say_that_they_are_out_of_a_file(tmp_path: Path) -> None:
    assert {turn.reader for turn in read(tmp_path, user("Why?")).turns.values()} == {"file"}


def test_an_answer_keeps_its_key_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / f"{SESSION}.jsonl"
    records = [user("Why?"), assistant(text("I look.")), assistant(use("Read", path="a.py"))]
    replay = replayed(lines(written(path, records[:2])))
    replay.read(lines(written(path, records)))
    assert replay.texts == ["Why?", "I look."]
    assert list(replay.turns.values())[1].tools == ("Read",)


def test_the_session_is_named_by_the_file_and_the_folder_by_its_slug(tmp_path: Path) -> None:
    project = tmp_path / "shop-api"
    project.mkdir()
    slug = "-".join(str(project).replace(":", "").replace("_", "-").split(project.anchor[-1]))
    place = tmp_path / "projects" / slug.strip("-") / "agent-transcripts" / SESSION
    records = [user("Why?")]
    [turn] = replayed(lines(written(place / f"{SESSION}.jsonl", records))).turns.values()
    assert (turn.session, turn.project, turn.part_of) == (SESSION, str(project), None)
    [turn] = replayed(lines(written(place / "subagents" / "a1.jsonl", records))).turns.values()
    assert (turn.session, turn.project, turn.part_of) == ("a1", str(project), SESSION)


OLDER = """user:
<user_query>
Rename Cart
</user_query>

assistant:
[Thinking] Where is it?
I look for it.
[Tool call] Grep
  pattern: Cart
  path: src/cart.py
[Tool result] Grep

It is in one file.

user:
Thanks
"""


def older(path: Path, content: str) -> DocumentTranscript:
    path.write_text(content, encoding="utf-8")
    return DocumentTranscript(path, "cursor", parse_text)


def test_the_older_text_is_read_by_its_headings(tmp_path: Path) -> None:
    replay = replayed(older(tmp_path / f"{SESSION}.txt", OLDER))
    assert replay.texts == ["Rename Cart", "I look for it.\n\nIt is in one file.", "Thanks"]
    assert [turn.author for turn in replay.turns.values()] == ["user", "assistant", "user"]
    answer = list(replay.turns.values())[1]
    assert (answer.tools, answer.files) == (("Grep",), ("src/cart.py",))
    assert answer.session == SESSION


def test_the_older_text_may_grow(tmp_path: Path) -> None:
    path = tmp_path / f"{SESSION}.txt"
    replay = replayed(older(path, OLDER[:-30]))
    assert replay.read(older(path, OLDER)).turns == replayed(older(path, OLDER)).turns


def test_a_text_without_headings_is_counted(tmp_path: Path) -> None:
    replay = replayed(older(tmp_path / "notes.txt", "Buy milk.\n"))
    assert (replay.texts, replay.skipped) == ([], {"file without turns": 1})


def test_the_sample_cut_off_anywhere_is_read_to_its_end_later(tmp_path: Path) -> None:
    content = (SAMPLES / "cursor_agent_transcript.jsonl").read_bytes()
    path = tmp_path / "cursor_agent_transcript.jsonl"
    whole = replayed(lines(SAMPLES / path.name)).turns
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        replay = replayed(lines(path))
        path.write_bytes(content)
        assert replay.read(lines(path)).turns == whole


SCRIPT = st.lists(
    st.one_of(
        st.sampled_from([user("Why?"), user("Again"), ENDED, {"type": "new"}, assistant()]),
        st.sampled_from([assistant(text("So.")), assistant(use("Read", path="a"))]),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=examples(200))
@given(SCRIPT, st.lists(st.integers(min_value=0), max_size=3))
def test_reading_on_as_the_file_grows_gives_what_one_reading_gives(
    tmp_path_factory: pytest.TempPathFactory, script: list[Any], cuts: list[int]
) -> None:
    path = written(tmp_path_factory.mktemp("cursor") / f"{SESSION}.jsonl", script)
    content = path.read_bytes()
    replay = Replay()
    for cut in sorted(place % (len(content) + 1) for place in cuts):
        path.write_bytes(content[:cut])
        replay.read(lines(path))
    path.write_bytes(content)
    replay.read(lines(path))
    once = replayed(lines(path))
    assert list(replay.turns.values()) == list(once.turns.values())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(JSON, JSON, JSON)
def test_no_shape_of_a_field_is_an_error(role: Any, content: Any, rest: Any) -> None:
    form = CursorFormat(Path(f"{SESSION}.jsonl"), {"turns": rest})
    block = {"type": "tool_use", "name": role, "input": content}
    for each in (role, "user", "assistant"):
        form.take({"role": each, "message": {"content": content}}, 1)
        form.take({"role": each, "message": {"content": [block, content]}}, 1)
        form.take({"role": each, "message": rest}, 2)
    form.list_open_turns()
    form.take({"type": "turn_ended", "error": rest}, 3)
    assert json.loads(json.dumps(form.get_state())) == form.get_state()


@given(st.binary(max_size=200) | st.text(alphabet="user:\n<timestamp>/[]").map(str.encode))
def test_no_bytes_of_an_older_text_are_an_error(raw: bytes) -> None:
    events, skipped = parse_text(Path("a.txt"), b"user:\n" + raw)
    assert events or skipped
