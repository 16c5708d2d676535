"""Readers of files that a stranger may have made: endless, huge, or no files at all."""

import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE = 120  # seconds until a reader counts as blocked

# Walks all readers, in one process with limited memory. Prints those that raise what no caller expects.
WALK = r'''
import asyncio, os, sys, zipfile
from functools import partial
from pathlib import Path

place, kind = Path(sys.argv[1]), sys.argv[2]
try:
    import resource
    resource.setrlimit(resource.RLIMIT_DATA, (512 << 20, 512 << 20))
except ImportError:  # Windows
    pass

from everkept.app.app import App
from everkept.app.gateway_file import load
from everkept.care.backup import restore
from everkept.clients.config_files import read_config_file
from everkept.core.disk import read_tail
from everkept.core.projects import find_workspace_root
from everkept.core.sessions import Session
from everkept.core.times import read_clock
from everkept.engines.sqlite.care import SqliteCare
from everkept.errors import EverkeptError
from everkept.exchange.export_format import read_export, read_manifest
from everkept.exchange.server_memory_import import import_server_memory, read_server_file
from everkept.files.resolver import FileStoreResolver
from everkept.hooks.session_recap import MAX_TAIL_BYTES
from everkept.hooks.session_start import read_open_tasks
from everkept.peers.peer_file import PeerFile
from everkept.settings import read_settings
from everkept.transcripts.discovery import MachineTranscripts
from everkept.transcripts.source_programs import SOURCES, ClientFolders

LARGE = 1 << 30


def make(path, size=LARGE):
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "large":
        with path.open("wb") as file:
            file.truncate(size)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return path


def read_transcripts(folder, names, source):
    for name in names:
        # These are read in pieces, to the end.
        make(folder / name, LARGE >> 4 if name.endswith(".jsonl") else LARGE)
    homes = ClientFolders(*[folder] * len(ClientFolders.__annotations__))
    for transcript in MachineTranscripts(homes).find_transcripts([source]):
        try:
            for portion in transcript.read_portions(None):
                pass
        except (EverkeptError, OSError):
            pass


async def call_bank(folder):
    settings = read_settings(
        {"data_dir": place / "bank-data", "path": folder, "toolsets": "bank", "embedding_model": "none"}, {}
    )
    app = App(settings)
    calls = [
        ("read_memory_bank_file", {"filename": "active-context.md"}),
        ("write_memory_bank_file", {"filename": "active-context.md", "content": "x"}),
        ("search_memory_bank", {"query": "zeros"}),
        ("get_memory_bank_status", {}),
        ("list_memory_bank_files", {}),
        ("get_context_digest", {}),
        ("get_context_bundle", {}),
        ("graph_search", {"query": "zeros"}),
        ("create_backup", {}),
    ]
    known = {tool.name for tool in app.tools}
    assert known >= {name for name, _ in calls}, sorted(known)
    for name, arguments in calls:
        await app.call(Session(), name, arguments)
    await app.close()


def in_bank(name):
    folder = place / f"bank {name.replace('/', ' ')}"
    (folder / "memory-bank").mkdir(parents=True)
    for core in ("product-context.md", "progress.md", "decision-log.md", "system-patterns.md"):
        (folder / "memory-bank" / core).write_text("# Text\n", encoding="utf-8")
    make(folder / "memory-bank" / name)
    asyncio.run(call_bank(folder))


def import_memory():
    async def run():
        app = App(read_settings({"data_dir": place / "data", "embedding_model": "none"}, {}))
        try:
            _, store = await app.library.open((await app.library.create("shop", "")).name)
            parsed = read_server_file(make(place / "memory.jsonl"))
            await import_server_memory(parsed, store, read_clock, lambda *_: None)
        finally:
            await app.close()

    asyncio.run(run())


def forge_zip():
    """A zip whose list of names claims to be as long as the file."""
    path = make(place / "listing.zip")
    if kind == "large":
        with path.open("r+b") as file:
            file.seek(LARGE - 22)
            file.write(b"PK\5\6" + bytes(8) + (LARGE - 22).to_bytes(4, "little") + bytes(6))
    return path


def restore_from(path):
    restore(SqliteCare(place / "restored"), path, read_clock, lambda *_: None, lambda *_: True)


def export(name):
    folder = place / f"export {name.replace('/', ' ')}"
    (folder / "projects" / "shop").mkdir(parents=True)
    (folder / "projects" / "shop" / "project.json").write_text('{"name": "shop"}', encoding="utf-8")
    make(folder / name) if not (folder / name).exists() else make(folder / "other.json")
    for read in (read_manifest, read_export):
        try:
            found = read(folder)
            for section in found if isinstance(found, (list, tuple)) else []:
                for reader in (section.read_record_chunks, section.read_link_chunks):
                    for _ in reader(100):
                        pass
        except (EverkeptError, OSError):
            pass


def tree():
    make(place / "tree" / ".git")
    return find_workspace_root(place / "tree")


readers = {
    "git file": tree,
    "tail of a transcript": lambda: read_tail(make(place / "tail.jsonl"), MAX_TAIL_BYTES),
    "tasks of a bank": lambda: read_open_tasks(make(place / "tasks" / "active-context.md").parent),
    "config": lambda: read_settings({"config": make(place / "config.md")}, {}),
    "client config": lambda: read_config_file(make(place / "client.json")),
    "gateway": lambda: load(make(place / "tools.json")),
    "peers": lambda: PeerFile(make(place / "peers" / "peers.json").parent).read_peers(),
    "backup": lambda: restore_from(make(place / "backup.zip")),
    "list of a backup": lambda: restore_from(forge_zip()),
    "server memory": import_memory,
    "export manifest": lambda: export("everkept.json"),
    "export records": lambda: export("projects/shop/records.jsonl"),
    "claude": lambda: read_transcripts(place / "claude", ["projects/a/one.jsonl"], "claude-code"),
    "codex": lambda: read_transcripts(place / "codex", ["sessions/one.jsonl", "sessions/two.jsonl.zst"], "codex"),
    "gemini": lambda: read_transcripts(place / "gemini", ["tmp/a/chats/one.json", "projects.json"], "gemini"),
    "cursor": lambda: read_transcripts(
        place / "cursor", ["projects/a/agent-transcripts/one.txt", "globalStorage/state.vscdb"], "cursor"
    ),
    "bank file": lambda: in_bank("active-context.md"),
    "bank graph": lambda: in_bank("graph/graph.jsonl"),
    "bank mode": lambda: in_bank(".clinerules-code"),
}
for name, read in readers.items():
    print("reading", name, flush=True)
    try:
        read()
    except (EverkeptError, OSError):
        pass
    except BaseException as error:
        import traceback
        traceback.print_exc(limit=-3)
        print("FAULT", name, type(error).__name__, flush=True)
'''


@pytest.mark.parametrize("kind", ["large", "pipe", "endless"])
def test_every_reader_refuses_what_it_cannot_read_with_little_memory(tmp_path: Path, kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WALK, str(tmp_path), kind],
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "FAULT" not in done.stdout, done.stderr + done.stdout
