"""Files of others: how each is read, a valid sample, and the errors that its reader may raise."""

import json
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import numpy as np

from data_folders import backed_up, filled
from editor_actors import conversation, opened, put
from everkept.clients import jsonc, toml_text
from everkept.clients.config_changes import plan_removal, plan_setup
from everkept.clients.config_files import ClientEnvironment, UnexpectedShape, get_client
from everkept.clients.entries import ServerConfigPart
from everkept.clients.hook_entries import HooksConfigPart
from everkept.clients.own_command import read_launchers
from everkept.clients.remote_entries import RemoteConfigPart
from everkept.clients.survey import survey_clients
from everkept.core.json_text import NotJson
from everkept.core.times import read_clock
from everkept.embedders.model_folder import FolderEmbedder, load_tokenizer, read_layout
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.archive import extract_databases, open_backup
from everkept.errors import EverkeptError, MarkerMismatch
from everkept.exchange.export_format import format_line
from everkept.exchange.importer import import_export
from everkept.families.bank.bank_backups import decode_manifest
from everkept.families.bank.core_files import build_digest
from everkept.families.bank.graph.graph_events import parse_log
from everkept.families.bank.markdown_sections import (
    append_block,
    close_blocks,
    insert_at_top,
    list_items,
    list_sections,
    replace_list,
)
from everkept.families.bank.mode_rules import build_file_names, read_rules
from everkept.families.bank.section_records import build_indexed_text, list_line_ranges
from everkept.families.graph.server_memory import parse_lines
from everkept.families.history.code_outlines import outline_code
from everkept.files.lease_lock import parse_claim
from everkept.first_answers import CachedAnswers, ClientAnswers, encode_answers, read_answers
from everkept.hooks.session_recap import read_recent_utterances
from everkept.settings import read_settings
from everkept.transcripts.claude_code import ClaudeCodeFormat
from everkept.transcripts.codex import CodexFormat
from everkept.transcripts.cursor_agents import CursorFormat, parse_text
from everkept.transcripts.cursor_editor import list_composers
from everkept.transcripts.documents import DocumentTranscript, LineTranscript, MakeFormat, PlainFormat
from everkept.transcripts.gemini import GeminiFormat, GeminiProjects, parse_object
from everkept.transcripts.turns import parse_patch
from foreign_sources import FOREIGN_SOURCES
from memory_bank import bank_in
from onnx_models import encode_constant, encode_network, write_model
from parser_bench import DEEP, LONG_NUMBER, Bench, Parser, Read, decode, encode, in_text
from records import entity, link, memory, note
from transcript_replay import SAMPLES, Replay

# Transcripts.


def read_lines(make_format: MakeFormat) -> Read:
    def read(bench: Bench, data: bytes) -> None:
        path = bench.write(data, "transcript.jsonl")
        _check_replay(Replay().read(LineTranscript(path, "test", make_format)))

    return read


def _check_replay(known: Replay) -> None:
    for turn in known.turns.values():
        repr(turn).encode("utf-8")
        assert all((turn.key, turn.session, turn.author))
    json.dumps(known.mark)


def read_cursor_text(bench: Bench, data: bytes) -> None:
    path = bench.write(data, "old.txt")
    _check_replay(Replay().read(DocumentTranscript(path, "cursor", parse_text)))


def read_gemini_object(bench: Bench, data: bytes) -> None:
    path = bench.write(data, "old.json")
    read = partial(parse_object, projects=GeminiProjects(SAMPLES))
    _check_replay(Replay().read(DocumentTranscript(path, "gemini", read)))


def read_editor_database(bench: Bench, data: bytes) -> None:
    for transcript in list_composers(bench.write(data, "state.vscdb")):
        _check_replay(Replay().read(transcript))


def read_editor_row(bench: Bench, data: bytes) -> None:
    """The database is in order, and what the editor wrote into it is not."""
    path = bench.make_folder() / "state.vscdb"
    connection = opened(path)
    lines = data.split(b"\n")
    keys = list(_EDITOR_ROWS)
    put(connection, {key: lines[number] for number, key in enumerate(keys) if number < len(lines)})
    connection.close()
    for transcript in list_composers(path):
        _check_replay(Replay().read(transcript))


_EDITOR_ROWS = conversation(
    "c1",
    {"type": 1, "text": "Why?", "bubbleId": "b0"},
    {
        "type": 2,
        "text": "```py\nx = 1\n```",
        "codeBlocks": [{"uri": {"path": "/a.py"}, "content": "x", "languageId": "python"}],
        "toolFormerData": {"name": "edit", "rawArgs": '{"file": "/a.py"}', "status": "error"},
        "timingInfo": {"clientStartTime": 1_772_449_200_000},
    },
)


def _encode_editor_database() -> bytes:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)")  # pyright: ignore[reportUnknownMemberType]
    put(connection, _EDITOR_ROWS)
    return bytes(connection.serialize("main"))


def _sample(name: str) -> tuple[bytes, ...]:
    return ((SAMPLES / name).read_bytes(),)


_PLAIN = encode(
    {"session": "s", "author": "user", "timestamp": "2026-03-02T10:00:00Z", "text": "Why?"},
    {"session": "s", "author": "assistant", "timestamp": 1772445605, "text": "So.", "title": "T", "project": "/a"},
)
_PATCH = b"*** Begin Patch\n*** Update File: a.py\n@@ def f\n-x = 1\n+x = 2\n*** Add File: b.py\n+y\n*** End Patch\n"
TRANSCRIPTS: Mapping[str, Parser] = {
    "transcript of claude code": Parser(read_lines(ClaudeCodeFormat), _sample("claude_code_session.jsonl")),
    "transcript of codex": Parser(read_lines(CodexFormat), _sample("codex_rollout.jsonl")),
    "transcript of cursor": Parser(read_lines(CursorFormat), _sample("cursor_agent_transcript.jsonl")),
    "older transcript of cursor": Parser(read_cursor_text, (b"user:\nWhy?\n\nassistant:\n```py\nx\n```\nSo.\n",)),
    "database of cursor": Parser(read_editor_database, (_encode_editor_database(),), (EverkeptError,)),
    "rows of cursor": Parser(read_editor_row, (encode(*_EDITOR_ROWS.values()),), (EverkeptError,)),
    "transcript of gemini": Parser(
        read_lines(partial(GeminiFormat, projects=GeminiProjects(SAMPLES))), _sample("gemini_session.jsonl")
    ),
    "older transcript of gemini": Parser(read_gemini_object, _sample("gemini_session_legacy.json")),
    "transcript in plain lines": Parser(read_lines(PlainFormat), (_PLAIN,)),
    "tail of a transcript": Parser(
        lambda bench, data: read_recent_utterances(bench.write(data), "11111111-2222"),
        (*_sample("claude_code_session.jsonl"), *_sample("codex_rollout.jsonl")),
    ),
    "patch": Parser(in_text(parse_patch), (_PATCH,)),
    "code": Parser(
        lambda _, data: [outline_code(decode(data), language) for language in ("python", "typescript", None)],
        (b"class A(B):\n    def f(self):\n        return g(x)\n", b"export const f = (a: number) => g(a)\n", _PATCH),
    ),
}


# Files of a memory bank.


def read_markdown(_: Bench, data: bytes) -> None:
    text = decode(data)
    list_sections(text)
    list_items(text)
    insert_at_top(text, ["Tasks"], "- new")
    append_block(close_blocks(text), "## More")
    replace_list(text, ["Tasks", "Current Tasks"], ["one", "two"])
    texts: dict[str, str] = dict.fromkeys(
        ("active-context.md", "progress.md", "decision-log.md", "system-patterns.md"), text
    )
    build_digest(texts, most_progress=3, most_decisions=3, with_patterns=True)
    build_indexed_text("notes.md", data, mask=True)
    list_line_ranges("notes.md", data)


def read_bank_rules(bench: Bench, data: bytes) -> None:
    home = bench.write(data, build_file_names("debug")[0]).parent
    bench.run(_read_rules(home))


async def _read_rules(home: Path) -> None:
    async with bank_in(home) as banking:
        await read_rules(banking.bank, "debug")


_MARKDOWN = (
    b"# Active Context\n\n## Current Tasks\n\n- [ ] one\n- [x] two\n  more\n\n```py\n# no heading\n```\n"
    b"<!-- note -->\n## Next Steps\n1. first\n2. second\n\nTitle\n=====\n> quote\n",
    b"# Progress\n\n## Update History\n\n- [2026-02-01 10:00:00] [Unknown User] - Added: x\n\n"
    b"# Decision Log\n## Choose SQLite\n- **Date:** 2026-02-01 10:00:00 AM\n- **Context:** c\n- **Decision:** d\n",
)
_RULES = b"""mode: debug
instructions:
  general: [Look twice., "And \\u0041gain"]
  umb:
    trigger: '^(Update Memory Bank|UMB)$'
    instructions:
      - One
    override_file_restrictions: true
  memory_bank:
    files_to_read: [active-context.md]
"""
_TIME = "2026-02-01T10:00:00.000Z"
_GRAPH = encode(
    {"type": "memory_bank_graph", "source": "memory-bank-mcp", "version": "1"},
    {"type": "entity_upsert", "ts": _TIME, "entity": {"id": "e_1", "name": "Ada", "entityType": "person", "attrs": {}}},
    {"type": "observation_add", "ts": _TIME, "observation": {"id": "o_1", "entityId": "e_1", "text": "writes"}},
    {"type": "relation_add", "ts": _TIME, "relation": {"id": "r_1", "from": "e_1", "to": "e_1", "relationType": "is"}},
    {"type": "entity_delete", "ts": _TIME, "entityId": "e_1"},
)
_BACKUP_MANIFEST = encode(
    {"format": 1, "bank": "/b", "createdAt": _TIME, "files": {"a.md": {"size": 1, "sha256": "0" * 64}}}
)
_CLAIM = encode({"machine": "host/1", "pid": 7, "token": "0123456789abcdef0123456789abcdef", "until": 1})
BANK: Mapping[str, Parser] = {
    "bank's markdown": Parser(read_markdown, _MARKDOWN),
    "bank's rules": Parser(read_bank_rules, (_RULES,)),
    "bank's graph": Parser(lambda _, data: parse_log(data), (_GRAPH,), (MarkerMismatch,)),
    "bank's backup": Parser(
        lambda _, data: decode_manifest(data),
        (_BACKUP_MANIFEST,),
        (ValueError,),
        (_BACKUP_MANIFEST.replace(b'"size": 1', b'"size": Infinity'),),
    ),
    "bank's lock": Parser(
        lambda _, data: parse_claim("lock", data, 1), (_CLAIM,), broke=(DEEP, _CLAIM.replace(b"1}", b"1e999}"))
    ),
}


# Exports, backups and imports.

_EXPORT: Mapping[str, bytes] = {
    "everkept.json": encode({"what": "everkept export", "format": 1, "files": ["README.md"]}),
    "projects/shop/project.json": encode({"name": "shop", "description": "d", "folders": ["/work/shop"]}),
    "projects/shop/records.jsonl": "\n".join(
        format_line(record)
        for record in (
            entity("Ada", facets={"a": [1]}, tags=("x",)),
            entity("Bob"),
            note("Ada", "writes"),
            memory("tea", tags=("red",), session="s", position=1, importance=0.5),
        )
    ).encode(),
    "projects/shop/links.jsonl": format_line(link("Ada", "knows", "Bob")).encode(),
    "accounts/ada/account.json": encode({"id": "acc_1"}),
}


def read_exported(path: str) -> Parser:
    """An export in which one file is not as it was written."""

    def read(bench: Bench, data: bytes) -> None:
        folder = bench.folder / "export"
        for name, content in _EXPORT.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data if name == path else content)
        bench.run(import_export(MemoryLibrary(), folder, read_clock, _ignore_progress))

    return Parser(read, (_EXPORT[path],), (EverkeptError,), (DEEP,))


def read_backup(bench: Bench, data: bytes) -> None:
    file = bench.write(data, "copy.zip")
    with open_backup(file) as (archive, manifest):
        extract_databases(archive, file, manifest, bench.make_folder())


def read_backup_manifest(bench: Bench, data: bytes) -> None:
    path = bench.folder / "manifest.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", data)
        archive.writestr("_meta.db", b"x")
    with open_backup(path):
        pass


def _write_backup() -> bytes:
    with TemporaryDirectory() as folder:
        filled(Path(folder, "data"), "shop")
        backed_up(Path(folder, "data"), Path(folder, "copy.zip"))
        return Path(folder, "copy.zip").read_bytes()


_COPIED = {
    "name": "_meta.db",
    "project": None,
    "status": None,
    "sha256": "0" * 64,
    "size": 1,
    "schema_version": 1,
    "newest_change": 0,
    "rows": {"a": 1},
}
_MANIFEST = encode({"format": 1, "version": "1", "created_at": "x", "databases": [_COPIED], "damaged": []})
_SERVER_MEMORY = encode(
    {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["writes"]},
    {"type": "relation", "from": "Ada", "to": "Bob", "relationType": "knows"},
)
_BACKUP = _write_backup()
EXCHANGE: Mapping[str, Parser] = {
    **{f"export's {path}": read_exported(path) for path in _EXPORT},
    "backup": Parser(read_backup, (_BACKUP,), (EverkeptError,), (_BACKUP[-365:],)),
    "backup's manifest": Parser(
        read_backup_manifest,
        (_MANIFEST,),
        (EverkeptError,),
        (DEEP, _MANIFEST.replace(b"1", b"1e999", 1), _MANIFEST.replace(b'"_meta.db"', b"1e999")),
    ),
    "file of another memory server": Parser(
        in_text(lambda text: list(parse_lines(text.splitlines()))), (_SERVER_MEMORY,), (EverkeptError,)
    ),
}


# Configuration of clients, and ours.


def read_client_file(client: str, name: str) -> Parser:
    """Our entry in a file of a client: added, found and removed, or the file is left as it is."""

    def read(bench: Bench, data: bytes) -> None:
        places = ClientEnvironment({}, bench.folder / "home", "linux", bench.folder / "home" / "project")
        program = get_client(client, places)
        program.user_file.parent.mkdir(parents=True, exist_ok=True)
        program.user_file.write_bytes(data)
        survey_clients(places)
        part = ServerConfigPart(program.user_file, program, ("/opt/everkept", "serve"))
        hooks = HooksConfigPart(program.user_file, lambda event: f"/opt/everkept hook {event}")
        remote = RemoteConfigPart(program.user_file, program, "https://memory.example/mcp", "EVERKEPT_TOKEN")
        for plan in (plan_setup, plan_removal):
            for each in (part, hooks, remote):
                with suppress(EverkeptError):
                    assert plan(each).diff is not None

    return Parser(read, ((CLIENT_SAMPLES / name).read_bytes(),), broke=(DEEP, b"a = " + LONG_NUMBER))


def read_hook_file(bench: Bench, data: bytes) -> None:
    places = ClientEnvironment({}, bench.folder / "home", "linux", bench.folder / "home" / "project")
    file = bench.folder / "home" / ".claude" / "settings.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    for each in (file, file.parent / "plugins" / "installed_plugins.json"):
        each.parent.mkdir(exist_ok=True)
        each.write_bytes(data)
    survey_clients(places)
    with suppress(EverkeptError):
        plan_setup(HooksConfigPart(file, lambda event: f"/opt/everkept hook {event}"))


def edit_text(editor: Any) -> Read:
    def read(_: Bench, data: bytes) -> None:
        text = decode(data)
        changed = editor.with_value(text, ("mcpServers", "everkept"), {"command": "x", "args": ["y"]})
        editor.remove_value(changed, ("mcpServers", "everkept"))

    return read


_OUR_HOOKS = encode(
    {
        "hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "/opt/everkept hook SessionStart"}]}]},
        "enabledPlugins": {"everkept@here": True},
        "plugins": {"everkept@here": [{"scope": "user"}]},
    }
)
_JSONC = b'// a\n{ "mcpServers": { /* b */ "other": {"command": "x",}, }, "n": [1, 2.5e3, "\\u00e9"], }\n'
_CONFIG = b"""---
engine: surreal  # ours
database_url: "ws://127.0.0.1:9"
log_level: 'info'
---
# Notes

```yaml
data_dir: ~/data
```
"""
CLIENT_SAMPLES = Path(__file__).parents[1] / "clients" / "samples"
CONFIGURATION: Mapping[str, Parser] = {
    "configuration of claude code": read_client_file("claude-code", "claude-code.json"),
    "configuration of codex": read_client_file("codex", "codex.toml"),
    "configuration of vscode": read_client_file("vscode", "vscode.json"),
    "hooks of claude code": Parser(
        read_hook_file, ((CLIENT_SAMPLES / "claude-settings.json").read_bytes(), _OUR_HOOKS)
    ),
    "json with comments": Parser(edit_text(jsonc), (_JSONC,), (NotJson, UnexpectedShape)),
    "toml": Parser(
        edit_text(toml_text), ((CLIENT_SAMPLES / "codex.toml").read_bytes(),), (toml_text.NotToml, UnexpectedShape)
    ),
    "list of launchers": Parser(
        lambda bench, data: read_launchers(bench.write(data, "setup-launchers.json").parent),
        (b'["/a", "/b"]',),
        broke=(DEEP,),
    ),
    "settings file": Parser(
        lambda bench, data: read_settings({"config": bench.write(data, "everkept.md"), "data_dir": bench.folder}, {}),
        (_CONFIG,),
        (EverkeptError,),
    ),
    "saved first answers": Parser(
        lambda bench, data: read_answers(str(bench.write(data))),
        (encode_answers(CachedAnswers(["1"], ClientAnswers(b"{}", b"{}"), ClientAnswers(b"{}", b"{}")), []),),
    ),
}


# Models.


def read_model_config(bench: Bench, data: bytes) -> None:
    """All small files of a model are these bytes."""
    folder = bench.folder / "model"
    if not folder.exists():
        write_model(folder)
    for name in ("config", "modules", "sentence_bert_config", "tokenizer_config", "1_Pooling/config"):
        path = folder / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    embedder = FolderEmbedder(folder)
    assert embedder.name
    assert embedder.fault is None or embedder.fault.hint
    read_layout(folder)


def read_network(bench: Bench, data: bytes) -> None:
    """A model whose small files are in order, and whose network is these bytes."""
    folder = bench.folder / "network"
    if not folder.exists():
        write_model(folder)
    (folder / "model.onnx").write_bytes(data)
    vectors = bench.run(FolderEmbedder(folder, threads=1).embed(["dog", "invoice"]))
    assert np.isfinite(vectors).all()


def _list_networks() -> tuple[bytes, ...]:
    """Networks with one dimension, so that many of their bytes are structure."""
    table = np.random.default_rng(1).normal(size=(999, 1)).astype("<f4")
    plain = encode_network(table, ["input_ids"])
    return plain, encode_network(table, ["input_ids", "attention_mask", "token_type_ids"], pooled=True)


_MODEL_CONFIG = {
    "_name_or_path": "someone/mini",
    "model_type": "bert",
    "hidden_size": 48,
    "pad_token_id": 0,
    "max_position_embeddings": 512,
    "max_seq_length": 256,
    "model_max_length": 512,
    "pooling_mode_mean_tokens": True,
    "pooling_mode": "mean",
}
_MODULES = [{"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]


def _ignore_progress(*_: object) -> None:
    pass


def _list_tokenizers() -> tuple[bytes, ...]:
    with TemporaryDirectory() as folder:
        groups = (("dog", "hund"),)
        folders = [write_model(Path(folder, kind), kind=kind, groups=groups) for kind in ("wordpiece", "unigram")]
        return tuple((each / "tokenizer.json").read_bytes() for each in folders)


def _list_odd_tokenizers() -> tuple[bytes, ...]:
    whole = json.loads(_list_tokenizers()[0])
    model = {"model": whole["model"] | {"vocab": {"[UNK]": 0, "a": "1"}}}
    odd: tuple[dict[str, Any], ...] = (
        model,
        {"added_tokens": [1]},
        {"added_tokens": True},
        {"post_processor": {"single": [1]}},
        {"post_processor": whole["post_processor"] | {"special_tokens": {}}},
    )
    bert: dict[str, Any] = {"post_processor": {"type": "BertProcessing", "cls": 1, "sep": {}}}
    return tuple(encode(whole | each) for each in (*odd, bert))


MODELS: Mapping[str, Parser] = {
    "model's settings": Parser(
        read_model_config,
        (encode(_MODEL_CONFIG), encode(_MODULES)),
        (EverkeptError,),
        (encode(_MODEL_CONFIG | {"model_type": []}),),
    ),
    "model's network": Parser(
        read_network, _list_networks(), (EverkeptError,), (b"", b"\x08\x07", encode_constant([1, 1, 10**12]))
    ),
    "model's tokenizer": Parser(
        lambda bench, data: load_tokenizer(bench.write(data, "tokenizer.json")),
        _list_tokenizers(),
        (EverkeptError,),
        _list_odd_tokenizers(),
    ),
}


FILES: Mapping[str, Parser] = {**TRANSCRIPTS, **BANK, **EXCHANGE, **FOREIGN_SOURCES, **CONFIGURATION, **MODELS}
