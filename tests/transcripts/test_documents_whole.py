from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core.transcripts import Event, TitleEvent, Turn
from everkept.errors import Unavailable
from everkept.transcripts.documents import DocumentTranscript
from everkept.transcripts.source_programs import MAX_DOCUMENT_BYTES
from transcript_replay import Replay, replayed


def words(path: Path, raw: bytes) -> tuple[list[Event], Counter[str]]:
    """Each word is a turn; a number is left out."""
    said = raw.decode().split()
    turns = [Turn(word, "s", "user", word) for word in said if not word.isdigit()]
    return [TitleEvent("s", path.name), *turns], Counter(number=len(said) - len(turns))


def document(path: Path, *said: str) -> DocumentTranscript:
    path.write_text(" ".join(said), encoding="utf-8")
    return DocumentTranscript(path, "gemini", words)


def test_a_document_is_read_as_a_whole(tmp_path: Path) -> None:
    transcript = document(tmp_path / "a", "one", "2", "three")
    assert (transcript.source, transcript.name) == ("gemini", str(tmp_path / "a"))
    assert transcript.size == len("one 2 three")
    replay = replayed(transcript)
    assert (replay.texts, replay.titles, replay.skipped) == (["one", "three"], {"s": "a"}, {"number": 1})


def test_reading_it_again_gives_nothing_new(tmp_path: Path) -> None:
    transcript = document(tmp_path / "a", "one", "two")
    replay = replayed(transcript)
    [portion] = transcript.read_portions(replay.mark)
    assert portion.events == ()
    assert portion.done == transcript.size


def test_it_comes_in_portions_and_goes_on_behind_each(tmp_path: Path) -> None:
    transcript = document(tmp_path / "a", *(f"w{n}" for n in range(200)))
    portions = list(transcript.read_portions(None))
    assert len(portions) == 4
    for stop in range(len(portions)):
        assert Replay().read(transcript, stop).read(transcript).texts == replayed(transcript).texts


def test_a_document_over_the_limit_is_counted(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(MAX_DOCUMENT_BYTES + 1)
    replay = replayed(DocumentTranscript(tmp_path / "a", "gemini", words))
    assert (replay.texts, replay.skipped) == ([], {"file over 32 MiB": 1})


def test_a_document_that_is_gone_is_unavailable(tmp_path: Path) -> None:
    transcript = DocumentTranscript(tmp_path / "a", "gemini", words)
    with pytest.raises(Unavailable):
        replayed(transcript)
    with pytest.raises(Unavailable):
        assert transcript.size
    with pytest.raises(Unavailable):
        assert transcript.modified


WORDS = st.lists(st.sampled_from([f"w{n}" for n in range(90)]), max_size=90, unique=True)


@settings(deadline=None)
@given(WORDS, WORDS, st.integers(min_value=0, max_value=3))
def test_after_a_change_exactly_its_turns_are_known(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], after: list[str], stop: int
) -> None:
    path = tmp_path_factory.mktemp("whole") / "a"
    replay = Replay().read(document(path, *before), stop)
    replay.read(document(path, *after), stop).read(document(path, *after))
    # A document that holds nothing any more is a broken one as a rule: what was read stays.
    assert sorted(replay.turns) == sorted(after) or not after


def test_a_document_that_was_changed_is_read_anew_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a"
    replay = replayed(document(path, "one", "two"))
    [portion] = document(path, "one", "three").read_portions(replay.mark)
    assert (portion.is_anew, portion.is_last) == (True, True)
    [again] = document(path, "one", "three").read_portions(portion.mark)
    assert (again.is_anew, again.is_last, again.events) == (False, True, ())
    assert "one" not in str(portion.mark)


def test_a_marker_anywhere_in_a_document_counts(tmp_path: Path) -> None:
    assert replayed(document(tmp_path / "a", "<!-- everkept: do not index -->")).marked == {"s"}
    assert replayed(document(tmp_path / "a", "everkept")).marked == set()
