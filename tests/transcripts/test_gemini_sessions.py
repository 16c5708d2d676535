import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core.times import parse_time
from everkept.core.transcripts import Transcript
from everkept.transcripts.documents import DocumentTranscript, LineTranscript
from everkept.transcripts.gemini import GeminiFormat, GeminiProjects, parse_object
from examples import examples
from transcript_replay import SAMPLES, Replay, expected, replayed, written

SESSION = "22222222-3333-4444-8555-666666666666"
HEAD = {"sessionId": SESSION, "projectHash": "0" * 64, "kind": "main"}
NOWHERE = GeminiProjects(Path("nowhere"))


def lines(path: Path, projects: GeminiProjects = NOWHERE) -> Transcript:
    return LineTranscript(path, "gemini", partial(GeminiFormat, projects=projects))


def whole(path: Path) -> Transcript:
    return DocumentTranscript(path, "gemini", partial(parse_object, projects=NOWHERE))


def user(own: str, text: Any) -> dict[str, Any]:
    return {"id": own, "type": "user", "timestamp": "2026-03-02T11:00:01Z", "content": text}


def gemini(own: str, text: Any = "", *calls: dict[str, Any]) -> dict[str, Any]:
    message = {"id": own, "type": "gemini", "timestamp": "2026-03-02T11:00:02Z", "content": text}
    return message | {"toolCalls": list(calls)}


def call(name: str, status: str = "success", **arguments: Any) -> dict[str, Any]:
    return {"id": name, "name": name, "args": arguments, "status": status}


def read(folder: Path, *records: Any) -> Replay:
    return replayed(lines(written(folder / "session-1.jsonl", [HEAD, *records])))


def test_the_sample_is_what_is_left_after_its_rewind() -> None:
    replay = replayed(lines(SAMPLES / "gemini_session.jsonl"))
    wanted = expected("gemini_session.jsonl")
    ids = [key.removeprefix(f"{SESSION}:") for key in replay.turns]
    assert ids == wanted["messages_after_rewind"]
    assert replay.titles == {SESSION: wanted["summary"]}
    question, answer = replay.turns.values()
    assert (question.author, question.text) == ("user", "Explain the cache layer")
    assert question.at == parse_time("2026-03-02T11:00:01Z")
    assert (answer.author, answer.text) == ("assistant", "It is a read-through cache.")
    assert (answer.model, answer.tools, answer.files) == ("model-z", ("read_file",), ("cache.py",))
    assert replay.skipped == {}


def test_the_older_sample_is_read_as_one_object() -> None:
    replay = replayed(whole(SAMPLES / "gemini_session_legacy.json"))
    wanted = expected("gemini_session_legacy.json")
    assert [key.rpartition(":")[2] for key in replay.turns] == wanted["messages"]
    assert replay.skipped == {f"{kind} message": 1 for kind in wanted["skipped_types"]}
    assert replay.texts == ["hello", "hi"]


def test_the_object_and_the_lines_it_becomes_have_the_same_turns(tmp_path: Path) -> None:
    older = json.loads((SAMPLES / "gemini_session_legacy.json").read_text(encoding="utf-8"))
    messages = older.pop("messages")
    newer = written(tmp_path / "session-1.jsonl", [older, *messages])
    older_turns = replayed(whole(SAMPLES / "gemini_session_legacy.json")).turns
    assert replayed(lines(newer)).turns == older_turns


def test_text_that_hooks_added_to_a_prompt_is_not_what_the_user_said(tmp_path: Path) -> None:
    before, after = "<hook_context>&lt;a&gt;\nb</hook_context>\n\nWhich port? ", "<hook_context>c</hook_context>"
    replay = read(tmp_path, user("1", [{"text": before}, {"text": "See a.md"}, {"text": after}]), user("2", after))
    assert replay.texts == ["Which port? See a.md"]


def test_uses_of_tools_belong_to_the_text_before_them(tmp_path: Path) -> None:
    replay = read(
        tmp_path,
        user("u1", "Fix it"),
        gemini("a1", "", call("read_file", absolute_path="/shop/cart.py")),
        gemini("a2", "I change the total."),
        gemini("a3", "", call("replace", file_path="/shop/cart.py", old_string="a", new_string="b")),
        gemini("a4", "Done."),
    )
    assert replay.texts == ["Fix it", "I change the total.", "Done."]
    answer = list(replay.turns.values())[1]
    assert (answer.tools, answer.files) == (("read_file", "replace"), ("/shop/cart.py",))
    [snippet] = answer.snippets
    assert (snippet.text, snippet.replaced, snippet.file) == ("b", "a", "/shop/cart.py")


def test_a_file_that_is_written_is_a_snippet(tmp_path: Path) -> None:
    made = call("write_file", file_path="a.py", content="LIMIT = 5")
    replay = read(tmp_path, gemini("a1", "Here it is.", made))
    [turn] = replay.turns.values()
    assert [(snippet.text, snippet.file) for snippet in turn.snippets] == [("LIMIT = 5", "a.py")]


def test_a_call_that_failed_wrote_nothing_and_says_why(tmp_path: Path) -> None:
    response = {"functionResponse": {"response": {"error": "File not found."}}}
    failed = call("write_file", "error", file_path="a.py", content="x") | {"result": [response]}
    [turn] = read(tmp_path, gemini("a1", "I try.", failed)).turns.values()
    assert (turn.failures, turn.snippets, turn.tools) == (("File not found.",), (), ("write_file",))


def test_a_message_that_comes_again_takes_the_place_of_the_first(tmp_path: Path) -> None:
    replay = read(
        tmp_path,
        user("u1", "Hwo?"),
        user("u1", "How?"),
        gemini("a1", "So."),
        gemini("a1", "So.", call("read_file", path="a.py")),
        user("u2", "Thanks"),
        gemini("a1", "So it is.", call("read_file", path="a.py")),
    )
    assert replay.texts == ["How?", "So it is.", "Thanks"]
    assert [turn.tools for turn in replay.turns.values()] == [(), ("read_file",), ()]


def test_part_of_an_earlier_answer_that_changes_is_counted(tmp_path: Path) -> None:
    replay = read(
        tmp_path, gemini("a1", "So."), gemini("a2", "", call("read_file")), user("u2", "Thanks"), gemini("a2", "Masked")
    )
    assert replay.texts == ["So.", "Thanks"]
    assert replay.skipped == {"change of an earlier answer": 1}


def test_a_rewind_takes_back_the_message_and_what_came_after_it(tmp_path: Path) -> None:
    replay = read(
        tmp_path,
        user("u1", "One"),
        gemini("a1", "Two"),
        user("u2", "Three"),
        gemini("a2", "Four"),
        {"$rewindTo": "u2"},
        user("u3", "Instead"),
    )
    assert replay.texts == ["One", "Two", "Instead"]


def test_a_rewind_reaches_into_the_answer_that_is_open(tmp_path: Path) -> None:
    used = [gemini("a1", "Two"), gemini("a2", "", call("read_file"))]
    replay = read(tmp_path, user("u1", "One"), *used, {"$rewindTo": "a2"})
    assert [turn.tools for turn in replay.turns.values()] == [(), ()]
    replay = read(tmp_path, user("u1", "One"), *used, {"$rewindTo": "a1"})
    assert replay.texts == ["One"]


def test_a_rewind_into_an_answer_that_is_closed_leaves_it_whole(tmp_path: Path) -> None:
    used = [gemini("a1", "Two"), gemini("a2", "", call("read_file"))]
    replay = read(tmp_path, *used, user("u2", "Three"), gemini("a3", "Four"), {"$rewindTo": "a2"})
    assert replay.texts == ["Two"]


def test_a_rewind_after_a_first_reading_takes_back_what_was_read(tmp_path: Path) -> None:
    told = [user("u1", "One"), gemini("a1", "Two")]
    path = written(tmp_path / "s.jsonl", [HEAD, *told])
    replay = replayed(lines(path))
    written(path, [HEAD, *told, {"$rewindTo": "a1"}])
    assert replay.read(lines(path)).texts == ["One"]


def test_a_rewind_to_nothing_known_changes_nothing(tmp_path: Path) -> None:
    replay = read(tmp_path, user("u1", "One"), {"$rewindTo": "u9"})
    assert replay.texts == ["One"]
    assert replay.skipped == {"rewind to an unknown message": 1}


def test_what_the_program_leaves_out_to_shorten_a_conversation_stays(tmp_path: Path) -> None:
    summary = user("n1", "<state_snapshot>They spoke of carts.</state_snapshot>")
    kept = gemini("a2", [{"functionResponse": {"response": {"output": "[masked]"}}}])
    replay = read(
        tmp_path,
        user("u1", "One"),
        gemini("a1", "Two"),
        user("u2", "Three"),
        gemini("a2", "Four"),
        {"$set": {"messages": [summary, user("u2", "Three"), kept]}},
        user("u3", "Five"),
    )
    assert [text for text in replay.texts if "state" not in text] == ["One", "Two", "Three", "Four", "Five"]
    [told] = [turn for turn in replay.turns.values() if turn.is_summary]
    assert told.key.endswith(":n1")


def test_what_the_program_says_in_the_users_name_is_no_turn(tmp_path: Path) -> None:
    results = [{"functionResponse": {"name": "read_file", "response": {"output": "x"}}}]
    context = "<session_context>Today is Monday.</session_context>"
    replay = read(tmp_path, user("u0", context), user("u1", results), user("u2", "Real"))
    assert replay.texts == ["Real"]
    assert replay.skipped == {"empty message": 2}


def test_thoughts_are_not_kept(tmp_path: Path) -> None:
    parts = [{"text": "Hm, what is it?", "thought": True}, {"text": "It is a cache."}]
    assert read(tmp_path, gemini("a1", parts)).texts == ["It is a cache."]


def test_notices_and_unknown_things_are_counted(tmp_path: Path) -> None:
    strange = [{"id": "x", "type": "video"}, {"what": 1}, {"id": "y", "type": "warning"}]
    replay = read(tmp_path, *strange, user("u1", "One"))
    assert replay.texts == ["One"]
    assert replay.skipped == {"unknown message": 1, "unknown record": 1, "warning message": 1}


def test_an_agent_is_part_of_the_session_whose_folder_it_is_in(tmp_path: Path) -> None:
    path = tmp_path / "tmp" / "shop" / "chats" / "parent-session" / "agent-1.jsonl"
    written(path, [HEAD | {"directories": ["/shop"]}, gemini("a1", "Found.")])
    [turn] = replayed(lines(path)).turns.values()
    assert (turn.part_of, turn.project) == ("parent-session", "/shop")


def test_a_session_is_part_of_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "shop" / "chats" / "session-1.jsonl", [HEAD, user("u1", "One")])
    assert [turn.part_of for turn in replayed(lines(path)).turns.values()] == [None]


def test_the_object_that_lost_messages_takes_them_back(tmp_path: Path) -> None:
    path = tmp_path / "session-1.json"
    told = [user("u1", "One"), gemini("a1", "Two"), user("u2", "Three")]
    path.write_text(json.dumps(HEAD | {"messages": told}), encoding="utf-8")
    replay = replayed(whole(path))
    path.write_text(json.dumps(HEAD | {"messages": told[:1]}), encoding="utf-8")
    assert replay.read(whole(path)).texts == ["One"]


def test_the_folder_is_found_by_the_hash_of_a_known_one(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"/home/ada/shop").hexdigest()
    path = written(tmp_path / "session-1.jsonl", [HEAD | {"projectHash": digest}, user("u1", "One")])
    [turn] = replayed(lines(path, GeminiProjects(tmp_path, ["/home/ada/shop"]))).turns.values()
    assert turn.project == "/home/ada/shop"
    [turn] = replayed(lines(path)).turns.values()
    assert turn.project is None


def test_the_state_stays_small_however_long_a_session_is(tmp_path: Path) -> None:
    replay = read(tmp_path, *(user(f"{place:036}", f"Message {place}") for place in range(3_000)))
    assert len(replay.turns) == 3_000
    assert len(json.dumps(replay.mark)) < 50_000


@pytest.mark.parametrize("step", range(7))
def test_the_sample_cut_off_anywhere_is_read_to_its_end_later(step: int, tmp_path: Path) -> None:
    content = (SAMPLES / "gemini_session.jsonl").read_bytes()
    path = tmp_path / "session-1.jsonl"
    whole_turns = replayed(lines(SAMPLES / "gemini_session.jsonl")).turns
    for cut in range(step, len(content), 7):
        path.write_bytes(content[:cut])
        replay = replayed(lines(path))
        path.write_bytes(content)
        assert replay.read(lines(path)).turns == whole_turns


def rewind(own: str) -> dict[str, Any]:
    return {"$rewindTo": own}


SUMMARY: dict[str, Any] = {"$set": {"summary": "Talk", "messages": [user("u9", "New"), gemini("a9", "Q")]}}
SCRIPT: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.one_of(
        st.builds(user, st.sampled_from(["u1", "u2", "u3"]), st.sampled_from(["One", "Two"])),
        st.builds(gemini, st.sampled_from(["a1", "a2", "a3"]), st.sampled_from(["So", "Thus", ""])),
        st.builds(gemini, st.sampled_from(["a1", "a4"]), st.just(""), st.just(call("ls", path="a"))),
        st.builds(rewind, st.sampled_from(["u1", "u2", "a1", "a2"])),
        st.just(SUMMARY),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=examples(200))
@given(SCRIPT, st.lists(st.integers(min_value=0), max_size=3))
def test_reading_on_as_the_file_grows_gives_what_one_reading_gives(
    tmp_path_factory: pytest.TempPathFactory, script: list[Any], cuts: list[int]
) -> None:
    path = written(tmp_path_factory.mktemp("gemini") / "session-1.jsonl", [HEAD, *script])
    content = path.read_bytes()
    replay = Replay()
    for cut in sorted(place % (len(content) + 1) for place in cuts):
        path.write_bytes(content[:cut])
        replay.read(lines(path))
    path.write_bytes(content)
    replay.read(lines(path))
    once = replayed(lines(path))
    assert list(replay.turns.values()) == list(once.turns.values())
    assert replay.titles == once.titles


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
FIELDS = ("id", "type", "content", "timestamp", "toolCalls", "model", "$set", "sessionId")


@given(st.dictionaries(st.sampled_from(FIELDS), JSON | st.sampled_from(["user", "gemini"])))
def test_no_shape_of_a_field_is_an_error(record: dict[str, Any]) -> None:
    form = GeminiFormat(Path("session-1.jsonl"), record, NOWHERE)
    for each in (record, {"$set": record}, {"$set": {"messages": [record]}}):
        form.take(each, 1)
    form.take(gemini("a1", "x", record, {"args": record, "result": [record]}), 2)
    form.list_open_turns()
    assert json.loads(json.dumps(form.get_state())) == form.get_state()


@given(st.integers(min_value=0, max_value=700), st.binary(max_size=3))
def test_an_object_in_pieces_is_no_error(cut: int, put: bytes) -> None:
    raw = (SAMPLES / "gemini_session_legacy.json").read_bytes()
    events, skipped = parse_object(Path("s.json"), raw[:cut] + put + raw[cut + 1 :], NOWHERE)
    assert events or skipped


def test_a_folder_that_is_none_is_left_out_and_counted(tmp_path: Path) -> None:
    replay = read(tmp_path, {"$set": {"directories": ["/y" * 501]}}, user("1", "Hello"))
    [turn] = replay.turns.values()
    assert turn.project is None
    assert replay.skipped == {"path over 1,000 characters": 1}
