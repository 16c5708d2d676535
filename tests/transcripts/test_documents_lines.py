"""Files of JSON lines: portions, marks, and whatever else a file may hold."""

import json
import os
import tracemalloc
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core.transcripts import Event, Turn
from everkept.errors import Unavailable
from everkept.transcripts.documents import LineTranscript
from line_files import jsonl, read, read_growing, read_with_breaks, spoken
from transcript_replay import Replay

MEBIBYTE = 1024 * 1024


class Talk:
    """A turn goes on while its name stays the same; `_` says nothing, `-` ends what is open."""

    def __init__(self, path: Path, state: Mapping[str, Any] | None) -> None:
        self.skipped: Counter[str] = Counter()
        self._closed: int = (state or {}).get("closed", 0)
        self._open: list[str] = []
        self._name = ""

    def take(self, record: Mapping[str, Any], line: int) -> list[Event]:
        name, text = str(record.get("name", "_")), str(record.get("text", ""))
        if name == "_":
            self.skipped["silent"] += 1
            return []
        events = self.list_open_turns() if name != self._name else []
        if name != self._name:
            self._closed += len(events)
            self._open = []
        self._name = name
        if name != "-":
            self._open.append(text)
        return events

    def list_open_turns(self) -> list[Event]:
        text = " ".join(self._open)
        return [Turn(f"{self._closed}", "talk", self._name, text)] if self._open else []

    def get_session(self, record: Mapping[str, Any]) -> str:
        return str(record.get("session", "talk"))

    def get_state(self) -> dict[str, Any]:
        return {"closed": self._closed}


def said(name: str, text: str = "…") -> dict[str, str]:
    return {"name": name, "text": text}


def made(folder: Path, data: bytes, name: str = "talk.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def transcript(path: Path) -> LineTranscript:
    return LineTranscript(path, "test", Talk)


def test_a_transcript_says_what_it_is_and_how_large(tmp_path: Path) -> None:
    path = made(tmp_path, jsonl(said("a")))
    os.utime(path, ns=(5_000_000, 7_000_000))
    found = transcript(path)
    assert (found.source, found.name) == ("test", str(path))
    assert (found.size, found.modified) == (path.stat().st_size, 7_000)


def test_a_turn_that_is_open_at_the_end_comes_again_when_it_has_grown(tmp_path: Path) -> None:
    path = made(tmp_path, jsonl(said("a", "one"), said("b", "two")))
    before = read(path, Talk)
    assert spoken(before) == [("a", "one"), ("b", "two")]
    path.write_bytes(path.read_bytes() + jsonl(said("b", "three"), said("-")))
    after = read(path, Talk, before.mark)
    assert spoken(after) == [("b", "two three")]
    assert list(after.turns) == ["1"]
    assert read(path, Talk, after.mark).turns == {}


def test_nothing_new_is_still_one_portion_with_the_same_mark(tmp_path: Path) -> None:
    path = made(tmp_path, jsonl(said("a"), said("-")))
    mark = read(path, Talk).mark
    [portion] = transcript(path).read_portions(mark)
    assert (portion.events, portion.mark, portion.done) == ((), mark, path.stat().st_size)


def test_a_portion_holds_so_many_turns_at_most(tmp_path: Path) -> None:
    path = made(tmp_path, jsonl(*(said(str(n)) for n in range(200))))
    portions = list(transcript(path).read_portions(None))
    assert [len(portion.events) for portion in portions] == [64, 64, 64, 8]
    assert [portion.done for portion in portions] == sorted(portion.done for portion in portions)


def test_a_portion_ends_where_its_text_is_long(tmp_path: Path) -> None:
    path = made(tmp_path, jsonl(*(said(str(n), "x" * 300_000) for n in range(9))))
    assert [len(portion.events) for portion in transcript(path).read_portions(None)] == [4, 4, 1]


def test_what_says_nothing_comes_in_portions_too(tmp_path: Path) -> None:
    path = made(tmp_path, jsonl(*({"noise": "x" * MEBIBYTE} for _ in range(9))))
    portions = list(transcript(path).read_portions(None))
    assert [len(portion.events) for portion in portions] == [0, 0, 0]
    assert portions[0].mark["line"] == 4
    assert sum(portion.skipped["silent"] for portion in portions) == 9


LINES = st.one_of(
    st.builds(said, st.sampled_from("ab-_"), st.sampled_from(["one", "two", "é\u2028"])).map(jsonl),
    st.sampled_from([b"\n", b"\r\n", b"no json\n", b"[1]\n", b"\xff\xfe\n", b"\0\0\0\n"]),
)


@st.composite
def files_and_lengths(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    data = b"".join(draw(st.lists(LINES, max_size=12)))
    data += draw(st.sampled_from([b"", json.dumps(said("a")).encode(), b'{"na']))
    lengths = draw(st.lists(st.integers(0, len(data)), max_size=5))
    return data, sorted(lengths)


@settings(deadline=None)
@given(made_up=files_and_lengths())
def test_however_reading_is_interrupted_the_outcome_is_the_same(
    made_up: tuple[bytes, list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    data, lengths = made_up
    path = made(tmp_path_factory.mktemp("talk"), data)
    whole = read(path, Talk)
    for interrupted in (read_with_breaks, read_growing):
        kept = interrupted(path, Talk, lengths)
        assert (kept.turns, kept.skipped) == (whole.turns, whole.skipped)
        assert kept.mark == whole.mark


def test_a_cut_line_waits_for_its_rest_and_is_not_counted(tmp_path: Path) -> None:
    first, second = jsonl(said("a")), jsonl(said("b"))
    for length in range(1, len(second) - 1):
        path = made(tmp_path, first + second[:length])
        cut = read(path, Talk)
        assert (len(cut.turns), cut.skipped) == (1, Counter())
        path.write_bytes(first + second)
        assert len(cut.read(transcript(path)).turns) == 2


def test_a_last_line_that_only_lacks_its_end_is_taken_and_read_again(tmp_path: Path) -> None:
    path = made(tmp_path, jsonl(said("-")) + json.dumps(said("b")).encode())
    kept = read(path, Talk)
    assert spoken(kept) == [("b", "…")]
    assert kept.mark is not None
    assert kept.mark["line"] == 1


def test_what_is_no_record_is_counted_and_passed(tmp_path: Path) -> None:
    lines = [
        b"\xef\xbb\xbf" + jsonl(said("a", "byte order mark")),
        b"\n\r\n   \n",
        b"{broken\n",
        b"[1, 2]\n42\nnull\n",
        b"[" * 100_000 + b"\n",
        b'{"name":' * 100_000 + b"\n",
        b'{"name": "b", "n": ' + b"9" * 10_000 + b"}\n",
        b"\0\0\0\0" + jsonl(said("b", "zeros")),
        b'{"name": "c", "text": "bytes \xff\xfe"}\r\n',
        b'{"name": "d", "text": "half \\ud83d and \\u0000 zero", "n": [NaN, 1e999]}\n',
        b'{"name": "e", "text": "\\ud83d\\ude00"}\n',
        b'{"name": "f", "text": "\\u001b[1;31mred\\u001b[0m [5m]"}\n',
    ]
    kept = read(made(tmp_path, b"".join(lines)), Talk)
    assert spoken(kept) == [
        ("a", "byte order mark"),
        ("b", "zeros"),
        ("c", "bytes \ufffd\ufffd"),
        ("d", "half ? and  zero"),
        ("e", "\U0001f600"),
        ("f", "red [5m]"),
    ]
    assert kept.skipped == {"broken line": 4, "wrong shape": 3}


def test_a_line_that_is_too_long_is_never_held(tmp_path: Path) -> None:
    path = made(tmp_path, jsonl(said("a")))
    with path.open("r+b") as file:
        file.seek(300 * MEBIBYTE)  # zeros without a line's end, which take no room on most disks
        file.write(b"\n" + jsonl(said("b")))
    tracemalloc.start()
    try:
        kept = read(path, Talk)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 * MEBIBYTE
    assert [author for author, _ in spoken(kept)] == ["a", "b"]
    assert kept.skipped == {"line too long": 1}


def test_a_line_of_countless_small_parts_is_not_taken_apart(tmp_path: Path) -> None:
    data = b'{"name": "a", "parts": [' + b"{}," * (2 * MEBIBYTE) + b"{}]}\n"
    assert read(made(tmp_path, data), Talk).skipped == {"line too long": 1}


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = made(tmp_path, jsonl(*(said(str(n), "x" * 20_000) for n in range(1_000))))
    tracemalloc.start()
    try:
        turns = sum(len(portion.events) for portion in transcript(path).read_portions(None))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert turns == 1_000
    assert peak < 6 * MEBIBYTE


@pytest.mark.parametrize("other", ["shorter", "another beginning", "another end"])
def test_a_file_that_is_not_the_same_any_more_is_read_from_its_start(other: str, tmp_path: Path) -> None:
    path = made(tmp_path, jsonl(*(said(str(n), "before") for n in range(99)), said("-", "before")))
    mark = read(path, Talk).mark
    data = path.read_bytes()
    rewritten = {
        "shorter": data[: len(data) // 2].rsplit(b"\n", 1)[0] + b"\n",
        "another beginning": data.replace(b"before", b"after!", 1),
        "another end": data[:-20] + data[-20:].replace(b"before", b"after!"),
    }
    path.write_bytes(rewritten[other])
    assert read(path, Talk, mark).turns == read(path, Talk).turns != {}


def test_a_reading_says_that_it_began_anew_and_that_it_ended(tmp_path: Path) -> None:
    path = made(tmp_path, jsonl(*(said(str(n)) for n in range(200))))
    first = list(transcript(path).read_portions(None))
    assert [(part.is_anew, part.is_last) for part in first] == [(False, False)] * 3 + [(False, True)]
    again = list(transcript(path).read_portions(first[1].mark))
    assert [(part.is_anew, part.is_last) for part in again] == [(False, False), (False, True)]
    path.write_bytes(jsonl(*(said(f"new {n}") for n in range(70))))
    anew = list(transcript(path).read_portions(first[1].mark))
    assert [(part.is_anew, part.is_last) for part in anew] == [(True, False), (False, True)]


@pytest.mark.parametrize("size", [0, 1, 9 * 1024])
def test_a_file_that_holds_nothing_any_more_takes_nothing_back(size: int, tmp_path: Path) -> None:
    """The size is in KiB."""
    path = made(tmp_path, jsonl(said("a"), said("b"), said("-")))
    kept = read(path, Talk)
    path.write_bytes((b"\0" * 1023 + b"\n") * size)
    assert not any(portion.is_anew for portion in transcript(path).read_portions(kept.mark))
    assert len(kept.read(transcript(path)).turns) == 2


def test_turns_that_come_late_in_a_file_written_anew_are_the_first_of_it(tmp_path: Path) -> None:
    path = made(tmp_path, jsonl(said("a"), said("b"), said("-")))
    kept = read(path, Talk)
    noise = [{"noise": "x" * MEBIBYTE} for _ in range(9)]
    path.write_bytes(jsonl(*noise, said("c"), said("-")))
    for _ in range(3):
        kept.read(transcript(path), portions=1)
    assert [author for author, _ in spoken(kept)] == ["c"]


MARKER = "<!-- everkept: do not index -->"


@pytest.mark.parametrize(
    "line",
    [
        jsonl({"name": "_", "session": "x", "deep": [{"inside": MARKER}]}),
        jsonl({"name": "a", "session": "x", "text": "words " + MARKER}),
        json.dumps({"session": "x", "deep": MARKER}).encode(),
        jsonl({"session": "x", "deep": json.dumps({"text": MARKER})}).replace(b"<", b"\\u003c"),
    ],
)
def test_a_marker_counts_in_whatever_is_skipped_too(line: bytes, tmp_path: Path) -> None:
    path = made(tmp_path, jsonl(said("a")) + line)
    assert read(path, Talk).marked == {"x"}


def test_a_marker_in_a_broken_line_is_of_the_conversation_around_it(tmp_path: Path) -> None:
    path = made(tmp_path, jsonl(said("a")) + b"{broken " + MARKER.encode() + b"\n")
    assert read(path, Talk).marked == {"talk"}


@settings(deadline=None)
@given(
    mark=st.dictionaries(
        st.sampled_from(["version", "offset", "line", "tail_size", "head", "state", "reported"]),
        st.one_of(st.just(1), st.integers(), st.none(), st.text(), st.just(True), st.just({"a": "b"})),
    )
)
def test_a_mark_that_makes_no_sense_is_none(mark: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = made(tmp_path_factory.mktemp("talk"), jsonl(said("a"), said("b")))
    assert len(read(path, Talk, mark).turns) == 2


def test_a_file_that_grows_while_it_is_read_is_read_to_its_new_end(tmp_path: Path) -> None:
    path = made(tmp_path, jsonl(*(said(str(n)) for n in range(70))))
    keys: set[str] = set()
    for count, portion in enumerate(transcript(path).read_portions(None)):
        keys.update(event.key for event in portion.events if isinstance(event, Turn))
        if count < 3:
            with path.open("ab") as file:
                file.write(jsonl(*(said(f"{count} {n}") for n in range(3_000))))
    assert len(keys) == 70 + 3 * 3_000


def test_reading_leaves_the_file_and_its_folder_as_they_are(tmp_path: Path) -> None:
    path = made(tmp_path, jsonl(said("a"), said("b")))
    path.chmod(0o444)
    before = (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino)
    read(path, Talk)
    assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_gone_or_is_none_is_unavailable(tmp_path: Path) -> None:
    gone = transcript(tmp_path / "gone.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(Unavailable):
        list(gone.read_portions(None))
    with pytest.raises(Unavailable):
        assert gone.size
    with pytest.raises(Unavailable):
        assert gone.modified
    with pytest.raises(Unavailable) as refused:
        list(transcript(tmp_path / "folder.jsonl").read_portions(None))
    assert refused.value.facts == {"path": str(tmp_path / "folder.jsonl")}


def compressed(data: bytes) -> bytes:
    return zstd.compress(data)


def test_a_compressed_file_is_read_like_a_plain_one(tmp_path: Path) -> None:
    data = jsonl(*(said(str(n), f"text {n} " * 50) for n in range(300)))
    frames = compressed(data[:9_000]) + compressed(data[9_000:])
    path = made(tmp_path, frames, "talk.jsonl.zst")
    plain = read(made(tmp_path, data), Talk)
    kept = Replay()
    while len(portions := list(transcript(path).read_portions(kept.mark))) > 1:
        kept.read(transcript(path), portions=1)
    kept.read(transcript(path))
    assert (kept.turns, kept.mark) == (plain.turns, plain.mark)
    assert portions[-1].done == path.stat().st_size


def test_a_compressed_file_that_is_another_now_is_read_from_its_start(tmp_path: Path) -> None:
    path = made(tmp_path, compressed(jsonl(said("a"), said("-"))), "talk.jsonl.zst")
    mark = read(path, Talk).mark
    path.write_bytes(compressed(jsonl(said("b"), said("-"), said("c"))))
    assert [author for author, _ in spoken(read(path, Talk, mark))] == ["b", "c"]


def test_of_a_damaged_file_is_kept_what_could_be_read(tmp_path: Path) -> None:
    data = jsonl(*(said(str(n), os.urandom(200).hex()) for n in range(2_000)))
    frames = compressed(data[:400_000]) + b"this is no frame"
    path = made(tmp_path, frames, "talk.jsonl.zst")
    kept = read(path, Talk)
    assert len(kept.turns) > 500
    assert kept.skipped == {"damaged file": 1}
    assert read(path, Talk, kept.mark).skipped == {}
    path.write_bytes(compressed(data)[:100_000])
    assert len(read(path, Talk).turns) > 50


def test_a_small_file_cannot_ask_for_much_memory(tmp_path: Path) -> None:
    bomb = compressed(b"x" * (64 * MEBIBYTE) + b"\n" + jsonl(said("a")))
    wide: dict[int, int] = {
        zstd.CompressionParameter.window_log: 28,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
    }
    endless = zstd.ZstdCompressor(options=wide)
    tracemalloc.start()
    try:
        kept = read(made(tmp_path, bomb, "bomb.jsonl.zst"), Talk)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (len(kept.turns), kept.skipped) == (1, {"line too long": 1})
    assert peak < 24 * MEBIBYTE
    asking = made(tmp_path, endless.compress(jsonl(said("a"))) + endless.flush(), "w.jsonl.zst")
    assert read(asking, Talk).skipped == {"damaged file": 1}


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (said("a"), (b"\0" * 1023 + b"\n") * 1024),
        (said("a", os.urandom(200_000).hex()), b"\0" * MEBIBYTE),  # a file that is not so small
    ],
)
def test_a_compressed_file_that_grows_without_measure_is_a_damaged_one(
    first: Any, piece: bytes, tmp_path: Path
) -> None:
    compressor = zstd.ZstdCompressor()
    parts = [compressor.compress(jsonl(first, said("-")))]
    parts += [compressor.compress(piece) for _ in range(100)]
    path = made(tmp_path, b"".join([*parts, compressor.flush()]), "bomb.jsonl.zst")
    portions = list(transcript(path).read_portions(None))
    assert portions[-1].skipped == {"damaged file": 1}
    assert portions[-1].mark["offset"] < 90 * MEBIBYTE


def test_what_lies_behind_a_damage_is_not_taken_back(tmp_path: Path) -> None:
    data = jsonl(*(said(str(n), os.urandom(200).hex()) for n in range(2_000)))
    path = made(tmp_path, compressed(data), "talk.jsonl.zst")
    kept = read(path, Talk)
    path.write_bytes(path.read_bytes()[:100_000] + b"\0" * 1_000)
    assert len(kept.read(transcript(path)).turns) == 2_000
