"""Data of other memory programs: how each source reads it, a valid sample, and the errors that it may raise."""

import json
import pickle
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assistant_exports import build_chat, build_node, build_tree, write_zip
from everkept.core.transcripts import Transcript
from everkept.errors import EverkeptError
from everkept.exchange.foreign import ForeignSource
from everkept.exchange.sources import SOURCES
from everkept.exchange.sources.mem0 import read_pickled_value
from foreign_stores import unpack_rival
from parser_bench import DEEP, Bench, Parser, Read, encode
from transcript_replay import Replay

_HOME = "---\ntitle: Shop\neverkept: {}\neverkept-id: x1\ntype: note\ntags: [a, b]\nproject: shop\n---\n"
_NOTE = "# Head\n- [port] 8443 #api ^b1\n- uses [[Orders DB|x]] (hard)\n```py\nx\n```\n%% links %%\n- uses [[Other]]\n"


def read_source(source: ForeignSource, name: str) -> Read:
    """Read a file of this name, and all of its conversations."""

    def read(bench: Bench, data: bytes) -> None:
        path = bench.write(data, name)
        try:
            for item in source.read(path, Counter()):
                repr(item).encode("utf-8")
        finally:
            if source.list_transcripts is not None:
                for transcript in source.list_transcripts(path):
                    _replay(transcript)

    return read


def _replay(transcript: Transcript) -> None:
    for turn in Replay().read(transcript).turns.values():
        assert all((turn.key, turn.session, turn.author))


def _read_file(rival: str, name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return (unpack_rival(rival, Path(folder)) / name).read_bytes()


def _write_archive(files: Mapping[str, Any]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return write_zip(Path(folder) / "export.zip", files).read_bytes()


def _write_history() -> bytes:
    """Return a small history of mem0, in which most bytes matter."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE history (memory_id TEXT, new_memory TEXT, event TEXT, created_at TEXT)")
    database.execute("INSERT INTO history VALUES ('m', 'Use tabs', 'ADD', '2026-03-01T00:00:00Z')")
    return database.serialize()


_POINT = {"id": "p", "payload": {"data": "Use tabs", "n": [1, (2.5, None, True)], "user_id": "ada"}}
_TREE = build_tree(
    "g1",
    "Logins",
    build_node("u1", "root", "user", "How?"),
    build_node("b1", "u1", "assistant", "Likes tea", recipient="bio"),
    build_node("a1", "b1", "assistant", "Like this."),
)
_OBSERVED = {
    "exportedAt": "x",
    "observations": [{"id": 1, "memory_session_id": "s", "type": "decision", "title": "T", "facts": '["f"]'}],
    "sessions": [{"content_session_id": "c", "memory_session_id": "s"}],
}
_REMEMBERED = {"conversations_memory": "# A\n- b\n- c", "project_memories": {"p": "d"}}
_RESULTS = {"results": [{"id": "1", "memory": "Use tabs", "metadata": {"a": 1}, "expiration_date": "2999-01-01"}]}
_SUMMARY = b"thread_id: t\nupdated_at: 2026-03-02T10:00:00Z\ncwd: /work/shop\n\nText\n"
_NOTES = (_NOTE.encode(), (_HOME.format("entity") + _NOTE).encode(), (_HOME.format("memory") + _NOTE).encode())

_SERVICE = "mcp-memory-service"
_SAMPLES: Mapping[str, tuple[str, str, tuple[bytes, ...]]] = {
    "database of mcp-memory-service": (
        "mcp-memory-service",
        "a.db",
        (_read_file("mcp-memory-service", "sqlite_vec.db"),),
    ),
    "export of mcp-memory-service": (
        "mcp-memory-service",
        "a.json",
        (_read_file("mcp-memory-service", "export.json"),),
    ),
    "database of claude-mem": ("claude-mem", "a.db", (_read_file("claude-mem", "claude-mem.db"),)),
    "export of claude-mem": ("claude-mem", "a.json", (encode(_OBSERVED),)),
    "history of mem0": ("mem0", "history.db", (_write_history(),)),
    "vectors of mem0": ("mem0", "storage.sqlite", (_read_file("mem0", "qdrant/collection/mem0/storage.sqlite"),)),
    "memories of mem0": ("mem0", "a.json", (encode(_RESULTS),)),
    "note of a vault": ("obsidian", "a.md", _NOTES),
    "note of basic-memory": ("basic-memory", "a.md", _NOTES),
    "file of a memory folder": ("memory-folder", "MEMORY.md", (*_NOTES, _SUMMARY)),
    "conversations of chatgpt": ("chatgpt", "a.json", (encode([_TREE]),)),
    "archive of chatgpt": ("chatgpt", "a.zip", (_write_archive({"conversations.json": [_TREE]}),)),
    "conversations of claude.ai": ("claude-ai", "a.json", (encode([build_chat()]), encode(_REMEMBERED))),
}


def _build_parser(program: str, name: str, samples: tuple[bytes, ...]) -> Parser:
    return Parser(read_source(SOURCES[program], name), samples, (EverkeptError,))


FOREIGN_SOURCES: Mapping[str, Parser] = {
    **{title: _build_parser(*sample) for title, sample in _SAMPLES.items()},
    "pickled value": Parser(
        lambda _, data: json.dumps(read_pickled_value(data), default=repr),
        (pickle.dumps(_POINT), pickle.dumps(_POINT, protocol=2)),
        (ValueError,),
        (b"\x80\x04]\x94h\x00a.", b"\x80\x04r\xff\xff\xff\x7f.", DEEP.replace(b"[", b"]"), b"\x80\x02}(K\x01e."),
    ),
}
