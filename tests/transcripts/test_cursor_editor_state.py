from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editor_actors import conversation, opened, put
from everkept.core.times import parse_time
from everkept.core.transcripts import Transcript
from everkept.errors import Unavailable
from everkept.transcripts.cursor_editor import list_composers
from everkept.transcripts.source_programs import MAX_VALUE_BYTES
from examples import examples
from processes import acting
from transcript_replay import Replay, replayed


def asked(text: str, **more: Any) -> dict[str, Any]:
    return {"type": 1, "text": text, **more}


def answered(text: str = "", **more: Any) -> dict[str, Any]:
    return {"type": 2, "text": text, **more}


def used(tool: str, arguments: str, **more: Any) -> dict[str, Any]:
    return answered(toolFormerData={"name": tool, "params": arguments, **more})


def stored(folder: Path, rows: dict[str, Any]) -> list[Transcript]:
    path = folder / "state.vscdb"
    connection = opened(path)
    put(connection, rows)
    connection.close()
    return list_composers(path)


def read(folder: Path, *bubbles: Any, **more: Any) -> Replay:
    [transcript] = stored(folder, conversation("c1", *bubbles, **more))
    return replayed(transcript)


def test_each_conversation_is_a_transcript_of_its_own(tmp_path: Path) -> None:
    rows = conversation("c1", asked("One"), lastUpdatedAt=1_772_449_300_000)
    rows |= conversation("c2", asked("Two"), answered("Three"))
    first, second = stored(tmp_path, rows)
    assert first.name == f"{tmp_path / 'state.vscdb'}#c1"
    assert (first.size, second.size) == (1, 2)
    assert (first.modified, second.modified) == (1_772_449_300_000_000, 1_772_449_200_000_000)
    assert [turn.session for turn in replayed(second).turns.values()] == ["c2", "c2"]


def test_a_conversation_in_which_nothing_was_said_is_none(tmp_path: Path) -> None:
    deleted = {"composerData:c2": None, "composerData:c3": "null"}
    assert stored(tmp_path, conversation("c1") | deleted) == []


def test_turns_hold_what_the_database_knows(tmp_path: Path) -> None:
    replay = read(
        tmp_path,
        asked("Fix it", createdAt="2026-03-02T11:00:01.000Z", workspaceUris=["file:///home/ada/a%20b"]),
        answered("I look.", createdAt=1_772_449_202_000, modelInfo={"modelName": "model-z"}),
        used("read_file", '{"targetFile": "cart.py"}', status="completed"),
        answered(thinking={"text": "Hm."}),
        answered("Done."),
        name="The cart",
        createdOnBranch="main",
        modelConfig={"modelName": "default"},
    )
    assert replay.titles == {"c1": "The cart"}
    assert replay.texts == ["Fix it", "I look.", "Done."]
    question, answer, _ = replay.turns.values()
    assert (question.author, question.at) == ("user", parse_time("2026-03-02T11:00:01Z"))
    assert (question.project, question.branch) == ("/home/ada/a b", "main")
    assert (answer.author, answer.at) == ("assistant", parse_time("2026-03-02T11:00:02Z"))
    assert (answer.model, answer.project) == ("model-z", "/home/ada/a b")
    assert (answer.tools, answer.files) == (("read_file",), ("cart.py",))
    assert replay.skipped == {}


def test_code_that_the_text_shows_already_is_no_snippet(tmp_path: Path) -> None:
    shown = {"content": "a = 1", "languageId": "python"}
    beside = {"content": "b = 2", "languageId": "python", "uri": {"fsPath": "/shop/b.py"}}
    said = answered("```python\na = 1\n```", codeBlocks=[shown, beside, {"content": " "}])
    [turn] = read(tmp_path, said).turns.values()
    [snippet] = turn.snippets
    assert (snippet.text, snippet.language, snippet.file) == ("b = 2", "python", "/shop/b.py")
    assert turn.files == ("/shop/b.py",)


def test_an_edit_is_a_snippet_unless_it_failed(tmp_path: Path) -> None:
    edit = '{"file_path": "a.py", "old_string": "a", "new_string": "b"}'
    made = used("search_replace", "{}", rawArgs=edit, status="completed")
    [turn] = read(tmp_path / "made", answered("I change it."), made).turns.values()
    assert [(each.text, each.replaced) for each in turn.snippets] == [("b", "a")]
    failed = used("search_replace", edit, status="error", result='{"error": "No match."}')
    [turn] = read(tmp_path / "failed", answered("I change it."), failed).turns.values()
    assert (turn.snippets, turn.failures) == ((), ("No match.",))


def test_the_older_form_has_its_messages_in_one_place(tmp_path: Path) -> None:
    bubbles = [asked("One", bubbleId="x"), answered("Two", bubbleId="y")]
    rows = {"composerData:c1": {"conversation": bubbles, "createdAt": 1_772_449_200_000}}
    [transcript] = stored(tmp_path, rows)
    replay = replayed(transcript)
    assert replay.texts == ["One", "Two"]
    assert list(replay.turns) == ["c1:x", "c1:y"]
    assert [turn.at for turn in replay.turns.values()] == [1_772_449_200_000_000, None]


@pytest.mark.parametrize(
    ("uri", "folder"),
    [
        ("file:///c%3A/Users/ada", "c:/Users/ada"),
        ({"fsPath": "/home/ada", "scheme": "file"}, "/home/ada"),
        ("vscode-remote://ssh-remote%2Bhost/home/ada", None),
        ({"scheme": "vscode-remote", "path": "/home/ada"}, None),
        ("file://[", None),
        (7, None),
    ],
)
def test_the_folder_is_one_of_this_machine(uri: object, folder: str | None, tmp_path: Path) -> None:
    replay = read(tmp_path, asked("One"), workspaceIdentifier={"uri": uri})
    assert [turn.project for turn in replay.turns.values()] == [folder]


def test_what_cannot_be_read_is_counted(tmp_path: Path) -> None:
    rows = conversation("c1", *[asked(f"Message {place}") for place in range(6)])
    rows["bubbleId:c1:b0"] = None
    rows["bubbleId:c1:b1"] = "no JSON"
    rows["bubbleId:c1:b2"] = b"\x00\xff"
    rows["bubbleId:c1:b3"] = b" " * (MAX_VALUE_BYTES + 1)
    rows["bubbleId:c1:b4"] = {"type": 9, "text": "?"}
    [transcript] = stored(tmp_path, rows)
    replay = replayed(transcript)
    assert replay.texts == ["Message 5"]
    assert replay.skipped == {
        "missing message": 1,
        "value that is not JSON": 2,
        "value over 8 MiB": 1,
        "unknown message": 1,
    }


@pytest.mark.parametrize(
    ("value", "reason"), [("no JSON", "value that is not JSON"), (b" " * (MAX_VALUE_BYTES + 1), "value over 8 MiB")]
)
def test_a_conversation_that_cannot_be_read_is_counted(value: object, reason: str, tmp_path: Path) -> None:
    [transcript] = stored(tmp_path, {"composerData:c1": value})
    assert replayed(transcript).skipped == {reason: 1}


def test_a_database_without_conversations_is_counted(tmp_path: Path) -> None:
    connection = opened(tmp_path / "state.vscdb")
    connection.execute("DROP TABLE cursorDiskKV")
    connection.close()
    [transcript] = list_composers(tmp_path / "state.vscdb")
    assert replayed(transcript).skipped == {"database without conversations": 1}


def test_a_database_that_cannot_be_read_says_so_when_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "state.vscdb").write_bytes(b"this is no database" * 100)
    [transcript] = list_composers(tmp_path / "state.vscdb")
    assert transcript.name == str(tmp_path / "state.vscdb")
    with pytest.raises(Unavailable):
        replayed(transcript)


def test_long_conversations_come_in_portions(tmp_path: Path) -> None:
    bubbles = [bubble for n in range(150) for bubble in (asked(f"Q{n}"), answered(f"A{n}"))]
    [transcript] = stored(tmp_path, conversation("c1", *bubbles))
    portions = list(transcript.read_portions(None))
    assert len(portions) > 3
    assert all(len(portion.events) <= 66 for portion in portions)
    assert portions[-1].done == transcript.size
    for stop in range(len(portions)):
        replay = Replay().read(transcript, stop).read(transcript)
        assert replay.turns == replayed(transcript).turns


def test_a_large_conversation_is_not_held_at_once(tmp_path: Path) -> None:
    bubbles = [asked(f"{n}" * 400_000) for n in range(1, 9)]
    [transcript] = stored(tmp_path, conversation("c1", *bubbles))
    assert [len(portion.events) for portion in transcript.read_portions(None)] == [3, 3, 2]


def test_an_edited_conversation_is_read_again(tmp_path: Path) -> None:
    [transcript] = stored(tmp_path, conversation("c1", asked("One"), answered("Two")))
    replay = replayed(transcript)
    rows = conversation("c1", asked("One"), answered("Two"))
    headers = [{"bubbleId": "b0"}, {"bubbleId": "n1"}, {"bubbleId": "n2"}]
    rows["composerData:c1"]["fullConversationHeadersOnly"] = headers
    rows |= {"bubbleId:c1:n1": answered("Instead"), "bubbleId:c1:n2": asked("Good")}
    [transcript] = stored(tmp_path, rows)
    assert set(replay.read(transcript).texts) >= {"One", "Instead", "Good"}


def test_a_conversation_is_followed_while_the_editor_writes(tmp_path: Path) -> None:
    path = tmp_path / "state.vscdb"
    replay = Replay()
    with acting("editor_actors:keep_writing", path) as editor:
        for count in range(1, 8):
            assert editor.ask() == count
            [transcript] = list_composers(path)
            assert transcript.size == count
            assert replay.read(transcript).texts == [f"message {n}" for n in range(count)]


BUBBLES = st.lists(st.sampled_from([asked("Q"), answered("A"), answered(), used("ls", '{"path": "a"}')]), max_size=8)


@settings(deadline=None, max_examples=examples(60))
@given(BUBBLES, st.integers(min_value=0, max_value=8))
def test_reading_on_as_it_grows_gives_what_one_reading_gives(
    tmp_path_factory: pytest.TempPathFactory, bubbles: list[Any], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("composer")
    replay = Replay()
    for shown in (bubbles[:cut], bubbles):
        for transcript in stored(folder, conversation("c1", *shown)):
            replay.read(transcript)
    once = [replayed(transcript) for transcript in list_composers(folder / "state.vscdb")]
    assert replay.turns == (once[0].turns if once else {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
NAMES = ("type", "text", "toolFormerData", "codeBlocks", "createdAt", "workspaceUris", "modelInfo")


@settings(deadline=None, max_examples=examples(80))
@given(st.dictionaries(st.sampled_from(NAMES), JSON | st.sampled_from([1, 2])), JSON, JSON)
def test_no_shape_of_a_value_is_an_error(
    tmp_path_factory: pytest.TempPathFactory, bubble: dict[str, Any], head: Any, rest: Any
) -> None:
    rows = conversation("c1", {"type": 1, **bubble}, {"type": 2, "toolFormerData": rest}, bubble)
    rows["composerData:c1"] |= {"name": head, "createdAt": rest, "workspaceIdentifier": head}
    rows["composerData:c2"] = {"fullConversationHeadersOnly": head, "conversation": rest}
    rows["composerData:c3"] = head if not isinstance(head, str) else "{"
    for transcript in stored(tmp_path_factory.mktemp("fuzz"), rows):
        replayed(transcript)


def test_turns_say_that_they_are_out_of_the_database(tmp_path: Path) -> None:
    replay = read(tmp_path, asked("One"), answered("Two"), workspaceIdentifier={"uri": "/p"})
    assert {turn.reader for turn in replay.turns.values()} == {"state"}


@pytest.mark.parametrize("kept", [0, 1, 2, 3, 4])
def test_what_was_edited_or_answered_anew_takes_the_place_of_what_was_there(kept: int, tmp_path: Path) -> None:
    said = [asked("one"), answered("yes"), asked("two"), answered("no")]
    rows = conversation("c1", *said)
    [transcript] = stored(tmp_path, rows)
    replay = replayed(transcript)
    head = rows["composerData:c1"]
    headers = [*head["fullConversationHeadersOnly"][:kept], {"bubbleId": "new"}]
    new = asked("other") if kept % 2 == 0 else answered("other")
    changed = {"composerData:c1": head | {"fullConversationHeadersOnly": headers}}
    [transcript] = stored(tmp_path, changed | {"bubbleId:c1:new": new})
    portions = list(transcript.read_portions(replay.mark))
    assert (portions[0].is_anew, portions[-1].is_last) == (kept < 4, True)
    replay.read(transcript)
    assert replay.texts == [each["text"] for each in said[:kept]] + ["other"]


def test_a_conversation_whose_messages_are_missing_takes_nothing_back(tmp_path: Path) -> None:
    rows = conversation("c1", asked("one"), answered("two"))
    [transcript] = stored(tmp_path, rows)
    replay = replayed(transcript)
    headers = [{"bubbleId": "gone"}]
    rows["composerData:c1"]["fullConversationHeadersOnly"] = headers
    [transcript] = stored(tmp_path, rows)
    assert len(replay.read(transcript).turns) == 2


MARKER = "<!-- everkept: do not index -->"


@pytest.mark.parametrize(
    "rows",
    [
        conversation("c1", asked("one"), context={"rules": MARKER}),
        conversation("c1", asked("one", attached=[{"text": MARKER}])),
        conversation("c1", asked("one"), used("read_file", "{}", result=MARKER)),
    ],
)
def test_a_marker_anywhere_in_a_conversation_counts(rows: dict[str, Any], tmp_path: Path) -> None:
    [transcript] = stored(tmp_path, rows)
    assert replayed(transcript).marked == {"c1"}


def test_paths_that_are_none_are_left_out_and_counted(tmp_path: Path) -> None:
    long = "/x" * 501
    replay = read(
        tmp_path,
        asked("one", workspaceProjectDir=long),
        used("edit_file", f'{{"path": "{long}", "content": "A = 1"}}'),
        asked("two"),
        workspaceIdentifier={"uri": f"file://{long}"},
    )
    assert {turn.project for turn in replay.turns.values()} == {None}
    [snippet] = [part for turn in replay.turns.values() for part in turn.snippets]
    assert snippet.file is None
    assert replay.skipped == {"path over 1,000 characters": 4}
