"""The first answers of a server, kept from its last start: real servers on pipes."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from everkept.core.mcp import GATEWAY_CLIENT
from everkept.first_answers import (
    FILE_PREFIX,
    MAX_FILES,
    CachedAnswers,
    ClientAnswers,
    ServerStart,
    build_path,
    find_cache_folder,
    read_answers,
)
from everkept.settings.sources import OTHER_VARIABLES
from everkept.transports.stdio import save_answers
from server_processes import HANG, INITIALIZE, META, StdioServer, command, environment, stdio_server

MODERN_LIST = {"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {"_meta": META}}
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
PING = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
LAST = {"jsonrpc": "2.0", "id": "last", "method": "ping"}
CALL = {
    "jsonrpc": "2.0",
    "id": "four",
    "method": "tools/call",
    "params": {"name": "get_current_project", "arguments": {}},
}

# What Python itself has loaded, and what a start may load before its first answers.
BARE = "import sys; print(*sys.modules, file=sys.stderr)"
GREET = """
import os, sys
os.dup2(os.open(sys.argv.pop(1), os.O_RDONLY), 0)  # nothing has to be waited for
from everkept.first_answers import ServerStart
ServerStart.from_arguments(sys.argv[2:], os.environ).greet(lambda: None)
print(*sys.modules, file=sys.stderr)
"""
WHOLE = """
import sys
from everkept.__main__ import main
main()
print(*sys.modules, file=sys.stderr)
"""
OURS = {"__future__", "_blake2", "_json", "everkept", "everkept.first_answers", "select"}


def lines(*messages: Any) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


class Place:
    """Where servers keep their answers, and how they are started."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.cache = folder / "cache"
        self.variables = {"XDG_CACHE_HOME": str(self.cache)}

    def exchange(self, sent: bytes, *options: object) -> list[bytes]:
        """All that a server answers to this input, which ends when all of it is answered."""
        with stdio_server(self.data, *options, **self.variables) as server:
            sending = threading.Thread(target=server.write, args=(sent + b"\n" + lines(LAST),))
            sending.start()
            waited = {LAST["id"]} | ({CALL["id"]} if lines(CALL)[:-1] in sent else set())
            answers: list[bytes] = []
            while waited:
                answers.append(server.receive_line())
                waited.discard(json.loads(answers[-1]).get("id"))
            sending.join()
            assert server.close_input() == 0
        return [line for line in answers if json.loads(line).get("id") != LAST["id"]]

    def run(self, words: list[str], sent: bytes) -> tuple[bytes, bytes]:
        ended = subprocess.run(
            words, input=sent, capture_output=True, env=environment() | self.variables, timeout=HANG, check=True
        )
        return ended.stdout, ended.stderr

    @property
    def files(self) -> list[Path]:
        return sorted(self.cache.glob("everkept/*"))

    @property
    def file(self) -> Path:
        [path] = self.files
        return path

    def content(self) -> CachedAnswers:
        kept = read_answers(str(self.file))
        assert kept is not None
        return kept

    def change(self, **changes: Any) -> None:
        """Keeps other answers, as an older server would have left them."""
        kept = self.content()
        tools = json.loads(kept.plain.tools) | changes
        save_answers(
            self.file,
            CachedAnswers(
                kept.versions, ClientAnswers(kept.plain.handshake, json.dumps(tools).encode()), kept.with_views
            ),
            [],
        )

    def start(self) -> Any:
        return stdio_server(self.data, **self.variables)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def kept(place: Place) -> Place:
    """After a first start."""
    place.exchange(lines(HELLO, INITIALIZED, LIST))
    assert place.content()
    return place


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The same, for tests that leave it as it is."""
    place = Place(tmp_path_factory.mktemp("unchanged"))
    place.exchange(lines(HELLO, INITIALIZED, LIST))
    return place


def modules(said: bytes) -> set[str]:
    return set(said.decode().split())


def test_a_second_start_answers_the_same_before_the_program_is_loaded(place: Place, tmp_path: Path) -> None:
    sent = lines(HELLO, INITIALIZED, LIST)
    first = place.exchange(sent)
    arguments = command("serve", "--data-dir", place.data)[3:]
    (tmp_path / "sent").write_bytes(sent)
    words = [sys.executable, "-c", GREET, str(tmp_path / "sent"), *arguments]
    second, loaded = place.run(words, b"")
    assert second.splitlines() == first
    _, bare = place.run([sys.executable, "-c", BARE], b"")
    assert modules(loaded) - modules(bare) == OURS


@pytest.mark.parametrize(
    "sent",
    [
        lines(HELLO, INITIALIZED, LIST, CALL, PING, LIST | {"id": 6}),
        lines(HELLO, INITIALIZED, LIST, LIST | {"id": 6}).replace(b"\n", b"\r\n"),
        lines(LIST, HELLO),
        lines(CALL, HELLO, LIST),
        lines(INITIALIZED, HELLO, LIST),
        lines(HELLO, HELLO | {"id": 6}, LIST),
        lines(HELLO, [LIST, PING]),
        lines(HELLO, LIST | {"params": {"cursor": "x"}}),
        lines(HELLO, LIST | {"params": []}, LIST | {"params": [1]}),
        lines(HELLO, MODERN_LIST, LIST),
        lines(HELLO | {"params": {}}, LIST),
        lines(HELLO | {"params": INITIALIZE | {"protocolVersion": "2024-11-05"}}),
        lines(HELLO | {"params": INITIALIZE | {"protocolVersion": "1999-01-01"}}),
        lines(HELLO | {"id": 'a "quoted" é'}, LIST | {"id": "\ud800"}, LIST | {"id": 10**30}),
        lines(HELLO | {"id": 1.5}, LIST | {"id": True}, LIST | {"id": None}, LIST),
        b"not json\n" + lines(HELLO, LIST),
        lines(HELLO) + b"\xff\xfe\n\n12\n" + lines(LIST),
        b"[" * 100_000 + b"\n" + lines(HELLO, LIST),
        lines(HELLO, LIST) + b"x" * 200_000 + b"\n" + lines(PING),
    ],
)
def test_a_client_sees_what_it_sees_without_kept_answers(unchanged: Place, place: Place, sent: bytes) -> None:
    assert sorted(unchanged.exchange(sent)) == sorted(place.exchange(sent))
    assert unchanged.content()


@pytest.mark.parametrize(
    ("sent", "ids"),
    [
        (b"", []),
        (lines(HELLO), [1]),
        (lines(HELLO, INITIALIZED, LIST)[:-1], [1, 2]),
        (lines(HELLO, INITIALIZED) + b'{"jsonrpc": "2.0", "id": 2, "meth', [1, None]),
    ],
)
def test_input_that_ends_early_is_answered_as_far_as_it_goes(
    unchanged: Place, sent: bytes, ids: list[int | None]
) -> None:
    answers, _ = unchanged.run(command("serve", "--data-dir", unchanged.data), sent)
    assert [json.loads(line)["id"] for line in answers.splitlines()] == ids


def test_requests_that_come_one_by_one_are_answered_by_both(kept: Place) -> None:
    with kept.start() as server:
        assert server.ask(1, "initialize", **INITIALIZE)["id"] == 1
        server.write(lines(INITIALIZED, LIST)[:60])
        server.write(lines(INITIALIZED, LIST)[60:])
        assert server.receive()["result"] == json.loads(kept.content().plain.tools)
        assert server.call("get_current_project")
        assert server.ask(9, "tools/list")["result"] == json.loads(kept.content().plain.tools)
        assert server.close_input() == 0


def test_who_the_client_is_reaches_the_server(kept: Place) -> None:
    """The name of a client is in the log of what it changes."""
    with kept.start() as server:
        server.ask(1, "initialize", **INITIALIZE)
        server.ask(2, "tools/list")
        server.call("create_project", name="shop")
        server.call("create_entities", entities=[{"name": "a", "entityType": "b"}])
        assert server.close_input() == 0
    words = command("log", "--data-dir", kept.data, "--project", "shop", "--json")
    assert b'"test 1"' in kept.run(words, b"")[0]


def test_a_second_start_needs_no_command_line(kept: Place) -> None:
    words = [sys.executable, "-c", WHOLE, *command("serve", "--data-dir", kept.data)[3:]]
    _, loaded = kept.run(words, lines(HELLO, INITIALIZED, LIST, CALL))
    assert "everkept.families.graph.toolset" in modules(loaded)
    assert "click" not in modules(loaded)


def test_a_gateway_gets_the_whole_schemas_and_leaves_the_kept_list(kept: Place) -> None:
    before = kept.content().plain.tools
    client = {"clientInfo": {"name": GATEWAY_CLIENT, "version": "1"}}
    hello = HELLO | {"params": INITIALIZE | client}
    for _ in range(2):
        listed = json.loads(kept.exchange(lines(hello, INITIALIZED, LIST))[1])["result"]["tools"]
        assert all(tool["inputSchema"]["additionalProperties"] is False for tool in listed)
    assert kept.content().plain.tools == before


def test_a_person_at_a_terminal_is_told_what_to_do(kept: Place) -> None:
    controller, terminal = os.openpty()
    ended = subprocess.run(
        command("serve", "--data-dir", kept.data),
        stdin=terminal,
        capture_output=True,
        env=environment() | kept.variables,
        timeout=HANG,
        check=True,
    )
    os.close(controller)
    os.close(terminal)
    assert b" setup\n" in ended.stdout
    assert b"claude mcp add" in ended.stdout


def test_arguments_mean_the_same_to_a_second_start(place: Place, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    options = ("--path", tmp_path / "here", "--read-only", "-d", "--toolsets", "graph")
    sent = lines(HELLO, LIST, CALL, CALL | {"id": 5, "params": {"name": "create_entities"}})
    first = place.exchange(sent, *options)
    assert place.content().flags is not None
    assert sorted(place.exchange(sent, *options)) == sorted(first)
    (tmp_path / "here").rmdir()
    assert read_answers(str(place.file)) is None


def test_options_without_a_command_start_the_server_with_the_same_kept_answers(place: Place) -> None:
    options = ("--mode", "code", "--username", "Ada")
    first = place.exchange(lines(HELLO, LIST), *options)
    again, _ = place.run(command("--data-dir", place.data, *options), lines(HELLO, LIST))
    assert again.splitlines() == first
    assert place.content()
    launcher = "run.cmd" if sys.platform == "win32" else "run"
    said, _ = place.run([str(Path(__file__).parents[1] / launcher), "--transport", "http", "--help"], b"")
    assert b"everkept serve" in said


def test_the_options_of_the_program_itself_stay(place: Place) -> None:
    assert place.run(command("--version"), b"")[0].startswith(b"everkept, version")
    for name in ("--help", "-h"):
        assert b"Memories" in place.run(command(name), b"")[0]


def test_an_address_that_may_hold_a_password_is_not_written_down(place: Place) -> None:
    place.variables["EVERKEPT_DATABASE_PASSWORD"] = "swordfish"
    options = ("--database-url", "postgresql://127.0.0.1:1/tuna", "--database-user", "me")
    place.exchange(lines(HELLO, LIST), *options)
    assert place.content().flags is None
    assert len(place.exchange(lines(HELLO, LIST), *options)) == 2
    written = place.file.read_bytes()
    assert not any(secret in written for secret in (b"swordfish", b"tuna"))


def ask_until_changed(server: StdioServer) -> tuple[Any, Any]:
    """The first list, and the second after the client was told that it changed."""
    server.ask(1, "initialize", **INITIALIZE)
    first = server.ask(2, "tools/list")["result"]
    assert server.receive() == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}}
    return first, server.ask(3, "tools/list")["result"]


def test_a_list_that_has_changed_is_corrected_and_kept(kept: Place) -> None:
    real = kept.content()
    kept.change(tools=[])
    with kept.start() as server:
        first, second = ask_until_changed(server)
    assert first == {"tools": []}
    assert second == json.loads(real.plain.tools)
    assert kept.content().plain.tools == real.plain.tools


def test_a_second_list_is_the_real_one_although_nothing_was_compared_yet(kept: Place) -> None:
    real = kept.content()
    kept.change(tools=[])
    said = [json.loads(line) for line in kept.exchange(lines(HELLO, LIST, LIST | {"id": 6}))]
    answers = {answer["id"]: answer["result"] for answer in said if "id" in answer}
    assert answers[2] == {"tools": []}
    assert answers[6] == json.loads(real.plain.tools)


def test_a_list_that_is_asked_for_late_is_compared_too(kept: Place) -> None:
    kept.change(tools=[])
    with kept.start() as server:
        server.ask(1, "initialize", **INITIALIZE)
        server.call("get_current_project")  # the whole server answers from now on
        assert server.ask(2, "tools/list")["result"] == {"tools": []}
        assert server.receive()["method"] == "notifications/tools/list_changed"
        assert server.ask(3, "tools/list")["result"] == json.loads(kept.content().plain.tools)


def test_a_handshake_that_has_changed_is_kept(kept: Place) -> None:
    real = kept.content()
    save_answers(
        kept.file,
        CachedAnswers(
            real.versions, ClientAnswers(real.plain.handshake[:-1] + b',"x":1}', b'{"tools":[]}'), real.with_views
        ),
        [],
    )
    with kept.start() as server:
        ask_until_changed(server)
    assert kept.content().plain.handshake == real.plain.handshake


def test_changed_settings_are_answered_at_once(place: Place, tmp_path: Path) -> None:
    config = tmp_path / "config.md"
    place.variables["EVERKEPT_CONFIG"] = str(config)
    counts: list[int] = []
    for toolsets in ("memories", "graph", "graph", "memories, graph"):
        config.write_text(f"---\ntoolsets: {toolsets}\n---\n", "utf-8")
        _, listed = place.exchange(lines(HELLO, LIST))
        counts.append(len(json.loads(listed)["result"]["tools"]))
    assert counts[1] == counts[2]
    assert counts[3] == counts[0] + counts[1]
    assert place.file  # of the same start, each time renewed


def test_a_gateway_is_not_kept(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps({"upstream": {"command": "x"}, "tools": []}), "utf-8")
    place.exchange(lines(HELLO, LIST), "--toolsets", "graph,gateway", "--gateway-config", path)
    assert place.files == []


def test_a_gateway_that_has_come_is_answered_at_once(place: Place, tmp_path: Path) -> None:
    home = tmp_path / "home"
    place.variables |= {name: str(home) for name in ("HOME", "USERPROFILE", "LOCALAPPDATA")}
    place.variables |= {"EVERKEPT_CONFIG": "", "XDG_CONFIG_HOME": str(home)}
    place.exchange(lines(HELLO, LIST))
    assert place.content()
    (home / "everkept").mkdir(parents=True)
    file = {"upstream": {"command": "x"}, "tools": []}
    (home / "everkept" / "tools.json").write_text(json.dumps(file), "utf-8")
    assert read_answers(str(place.file)) is None


@pytest.mark.parametrize("damage", [b"", b"\n", b"x\n{}\n{}\n{}", b"\0" * 60_000])
def test_a_damaged_file_is_passed_over_and_replaced(kept: Place, damage: bytes) -> None:
    real = kept.content()
    kept.file.write_bytes(damage)
    _, listed = kept.exchange(lines(HELLO, LIST))
    assert json.loads(listed)["result"] == json.loads(real.plain.tools)
    assert kept.content().plain.tools == real.plain.tools


@pytest.mark.skipif(sys.platform == "win32", reason="folders of a user are private there")
def test_only_the_owner_can_write_what_is_answered(kept: Place) -> None:
    assert stat.S_IMODE(kept.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.file.parent.stat().st_mode) == 0o700
    kept.file.chmod(0o620)
    assert read_answers(str(kept.file)) is None


def test_without_a_folder_to_keep_them_in_a_server_works(place: Place) -> None:
    place.cache.write_text("a file", "utf-8")
    assert len(place.exchange(lines(HELLO, LIST))) == 2
    assert len(place.exchange(lines(HELLO, LIST))) == 2
    assert place.cache.read_text("utf-8") == "a file"


def test_servers_that_start_together_keep_one_whole_file(place: Place) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(place.exchange, [lines(HELLO, LIST)] * 4))
    assert all(answer == answers[0] for answer in answers)
    assert place.content().plain.tools in answers[0][1]


DIE = """
import os, signal, sys
from pathlib import Path
from everkept.first_answers import CachedAnswers, ClientAnswers
from everkept.transports.stdio import save_answers
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
save_answers(Path(sys.argv[1]), CachedAnswers(["1"], ClientAnswers(b"{}", b"{}"), ClientAnswers(b"{}", b"{}")), [])
"""


def test_a_server_that_is_killed_while_it_keeps_them_leaves_the_older_ones(kept: Place) -> None:
    real = kept.content()
    path = str(kept.file)
    died = subprocess.run([sys.executable, "-c", DIE, path], env=environment(), check=False)
    assert died.returncode == -signal.SIGKILL
    again = read_answers(path)
    assert again is not None
    assert (again.plain.handshake, again.plain.tools) == (real.plain.handshake, real.plain.tools)
    assert len(kept.exchange(lines(HELLO, LIST))) == 2


def test_old_files_and_no_others_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "another").touch()
    for number in range(2 * MAX_FILES):
        path = tmp_path / f"{FILE_PREFIX}{number}"
        save_answers(path, CachedAnswers(["1"], ClientAnswers(b"{}", b"{}"), ClientAnswers(b"{}", b"{}")), [])
        os.utime(path, (number, number))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"another", *(f"{FILE_PREFIX}{n}" for n in range(MAX_FILES, 2 * MAX_FILES))}


def test_a_file_that_they_depend_on_is_looked_at(tmp_path: Path) -> None:
    path, file, missing = str(tmp_path / "kept"), tmp_path / "a", tmp_path / "b"
    file.write_text("1", "utf-8")
    answers = CachedAnswers(["1"], ClientAnswers(b"{}", b"{}"), ClientAnswers(b"{}", b"{}"))

    def keep_again() -> None:
        save_answers(Path(path), answers, [str(file), str(missing), str(tmp_path), "language/words.py"])
        assert read_answers(path) is not None

    keep_again()
    file.write_text("22", "utf-8")
    assert read_answers(path) is None
    keep_again()
    missing.touch()
    assert read_answers(path) is None
    keep_again()
    file.unlink()
    assert read_answers(path) is None


def test_what_decides_about_tools_decides_which_answers_are_read(tmp_path: Path) -> None:
    home = {"XDG_CACHE_HOME": str(tmp_path), "HOME": "/home"}
    usual = build_path([], home, "/here")
    assert usual == build_path([], home, "/here")
    assert usual == build_path([], home | {"LANG": "C"}, "/here")
    assert usual != build_path(["--read-only"], home, "/here")
    assert usual != build_path([], home, "/there")
    assert build_path(["a", "b"], home, "/here") != build_path(["ab"], home, "/here")
    session = {"MEMORY_SESSION_ID", "CLAUDE_CODE_SESSION_ID"}
    for name in OTHER_VARIABLES | {"EVERKEPT_TOOLSETS", "MEMORY_CONFIG_PATH", "XDG_CONFIG_HOME"}:
        is_other = build_path([], home | {name: "x"}, "/here") != usual
        assert is_other == (name not in session), name


def test_without_a_home_folder_nothing_is_kept() -> None:
    assert find_cache_folder({}) is None
    assert find_cache_folder({"XDG_CACHE_HOME": "relative"}) is None
    assert ServerStart.from_arguments([], {}).path is None
