"""First answers of a server over stdio, saved by its last start.

A client first asks for the handshake and the list of tools, and waits for both while the program loads. They depend
only on the arguments, variables and files that `build_path` and the saved answers name. So a server returns those of
its last start before it loads anything. `transports/stdio.py` compares them with the real ones afterwards.

The client waits for each import here: `json`, `typing` and `hashlib` would double the time.
"""

from __future__ import annotations

import os
import stat
import sys
from _blake2 import blake2b  # `hashlib` loads OpenSSL
from _json import encode_basestring, make_scanner  # `json` loads `re`

from everkept import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from threading import Thread
    from typing import Any

FORMAT = 2
FILE_PREFIX = "first-answers-"
MAX_FILES = 32  # one for each working folder of a client
MAX_LINE_BYTES = 1 << 16  # of the first requests, which have a few hundred
SWITCH_SECONDS = 0.0005  # head start of the program's loading when a request has come

# Environment variables that decide what is listed. `SESSION_VARIABLES` may differ for each session.
VARIABLE_PREFIXES = ("EVERKEPT_", "MEMORY_")
VARIABLES = ("APPDATA", "CLAUDE_PROJECT_DIR", "HOME", "LOCALAPPDATA", "USERPROFILE", "XDG_CONFIG_HOME")
SESSION_VARIABLES = ("EVERKEPT_SESSION_ID", "MEMORY_SESSION_ID")
PASSWORD_VARIABLE = "EVERKEPT_DATABASE_PASSWORD"

INITIALIZED = "notifications/initialized"
GATEWAY_CLIENT = "everkept-gateway"  # as in `core/mcp.py`; gets a longer list than other clients
PACKAGE_FOLDER = os.path.dirname(__file__)


VIEW_EXTENSION = "io.modelcontextprotocol/ui"
VIEW_TYPE = "text/html;profile=mcp-app"  # as in `views/pages.py`


class ClientAnswers:
    """Saved answers to one kind of client: the handshake after its version, and the list of tools."""

    __slots__ = ("handshake", "tools")

    def __init__(self, handshake: bytes, tools: bytes) -> None:
        self.handshake = handshake
        self.tools = tools


class CachedAnswers:
    """Saved answers of a server to clients, and to clients that draw views in a chat.

    `flags` are the parsed arguments, or None if they are not saved.
    """

    __slots__ = ("flags", "plain", "versions", "with_views")

    def __init__(
        self, versions: list[str], plain: ClientAnswers, with_views: ClientAnswers, flags: dict[str, Any] | None = None
    ) -> None:
        self.versions = versions
        self.plain = plain
        self.with_views = with_views
        self.flags = flags

    def get_answers(self, *, draws_views: bool) -> ClientAnswers:
        return self.with_views if draws_views else self.plain


class ServerStart:
    """Start of one server: the requests that were answered, and the input after them."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.kept = None if path is None else read_answers(path)
        self.flags: dict[str, Any] | None = None  # for the next start
        self.answered: list[dict[str, Any]] = []
        self.rest = b""
        self.draws_views = False  # whether the client can
        self.is_initialized = False  # whether the client has said so

    @classmethod
    def from_arguments(cls, arguments: Iterable[str], environment: Mapping[str, str]) -> ServerStart:
        try:
            folder = os.getcwd()
        except OSError:  # it was deleted
            return cls(None)
        # A person at a terminal gets an explanation.
        return cls(None if os.isatty(0) else build_path(arguments, environment, folder))

    def greet(self, load: Callable[[], object]) -> None:
        """Return saved answers while `load` runs in a thread. Return when the server takes over."""
        if self.kept is None:
            return
        loader = _Loader(load)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            self._greet(self.kept, loader)
        except OSError:  # the client is gone, and the server will notice it too
            return
        finally:
            loader.join()
            sys.setswitchinterval(interval)

    def _greet(self, kept: CachedAnswers, loader: _Loader) -> None:
        while len(self.answered) < 2:
            line, end, later = self.rest.partition(b"\n")
            if end:
                said = self._answer(kept, line)
                if said is None:
                    return
                self.rest = later
                _write(said)
            elif len(self.rest) > MAX_LINE_BYTES or not loader.wait_for_input():
                return
            elif data := os.read(0, MAX_LINE_BYTES):
                self.rest += data
            else:
                return

    def _answer(self, kept: CachedAnswers, line: bytes) -> bytes | None:
        """Return the answer, empty for a notification, or None if only the real server can answer."""
        message = _parse(line)
        if not _is_object(message):
            return None
        method: Any = message.get("method")
        params: Any = message.get("params") or {}
        if not _is_object(params) or "_meta" in params:  # as in the protocol revision without a handshake
            return None
        if "id" not in message:
            self.is_initialized = method == INITIALIZED and bool(self.answered)
            return b"" if self.is_initialized else None
        number = _encode_id(message["id"])
        if number is None:
            return None
        if method == "initialize" and not self.answered:
            asked: Any = params.get("protocolVersion")
            client: Any = params.get("clientInfo")
            if not isinstance(asked, str) or (_is_object(client) and client.get("name") == GATEWAY_CLIENT):
                return None
            version = asked if asked in kept.versions else kept.versions[-1]
            self.draws_views = can_draw_views(params.get("capabilities"))
            handshake = kept.get_answers(draws_views=self.draws_views).handshake
            result = b'{"protocolVersion":"%b",%b' % (version.encode(), handshake)
        elif method == "tools/list" and self.answered and params.get("cursor") is None:
            result = kept.get_answers(draws_views=self.draws_views).tools
        else:
            return None
        self.answered.append(message)
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (number, result)


def can_draw_views(capabilities: Any) -> bool:
    """Return whether a client said that it can draw our pages in a chat."""
    for key in ("extensions", VIEW_EXTENSION):
        capabilities = capabilities.get(key) if _is_object(capabilities) else None
    types = capabilities.get("mimeTypes") if _is_object(capabilities) else None
    return isinstance(types, list) and VIEW_TYPE in types


def build_path(arguments: Iterable[str], environment: Mapping[str, str], folder: str) -> str | None:
    """Return the path of the saved answers for such a start, or None without a cache folder."""
    cache = find_cache_folder(environment)
    if cache is None:
        return None
    variables = (
        f"{name}={value}"
        for name, value in sorted(environment.items())
        if (name.startswith(VARIABLE_PREFIXES) or name in VARIABLES)
        and name not in SESSION_VARIABLES
        and name != PASSWORD_VARIABLE
    )
    known = (__version__, str(FORMAT), PACKAGE_FOLDER, sys.version, folder, *arguments, "", *variables)
    return os.path.join(cache, FILE_PREFIX + _compute_digest("\0".join(known).encode("utf-8", "surrogatepass")))


def find_cache_folder(environment: Mapping[str, str]) -> str | None:
    """Return our cache folder, as platformdirs names it."""
    named = environment.get("XDG_CACHE_HOME", "").strip()
    home, local = environment.get("HOME"), environment.get("LOCALAPPDATA")
    if named:
        folder = os.path.join(named, "everkept")
    elif sys.platform == "win32":
        folder = local and os.path.join(local, "everkept", "Cache")
    elif sys.platform == "darwin":
        folder = home and os.path.join(home, "Library", "Caches", "everkept")
    else:
        folder = home and os.path.join(home, ".cache", "everkept")
    return folder if folder and os.path.isabs(folder) else None


def read_answers(path: str) -> CachedAnswers | None:
    """Return the saved answers if they are complete, ours, and still valid."""
    try:
        with open(path, "rb") as file:
            if not _is_private(os.fstat(file.fileno())):
                return None
            digest, _, content = file.read().partition(b"\n")
    except OSError:
        return None
    if digest != _compute_digest(content).encode():
        return None
    facts, *answers = content.split(b"\n")
    known = _parse(facts)
    if any(read_file_state(name) != state for name, state in known["files"].items()):
        return None
    plain, with_views = ClientAnswers(*answers[:2]), ClientAnswers(*answers[2:])
    return CachedAnswers(known["versions"], plain, with_views, known["flags"])


def encode_answers(kept: CachedAnswers, files: Iterable[str]) -> bytes:
    """Encode answers for `read_answers`, with the files on which they depend."""
    import json

    names = (name.removeprefix(PACKAGE_FOLDER + os.sep) for name in files)
    files = {name: read_file_state(name) for name in names}
    facts = {"versions": kept.versions, "flags": kept.flags, "files": files}
    answers = (text for each in (kept.plain, kept.with_views) for text in (each.handshake, each.tools))
    content = b"\n".join((json.dumps(facts).encode(), *answers))
    return _compute_digest(content).encode() + b"\n" + content


def read_file_state(name: str) -> list[int] | None:
    """Return a value that changes with a file's content. For a folder, only whether it exists.

    A relative name is a file of the package.
    """
    try:
        found = os.stat(os.path.join(PACKAGE_FOLDER, name))
    except (OSError, ValueError):
        return None
    return [] if stat.S_ISDIR(found.st_mode) else [found.st_mtime_ns, found.st_size]


def prune(folder: str) -> None:
    """Delete the oldest files, such as those of older versions and of killed writers."""
    with os.scandir(folder) as entries:
        ours = [(each.stat().st_mtime, each.path) for each in entries if each.name.startswith(FILE_PREFIX)]
    for _, path in sorted(ours, reverse=True)[MAX_FILES - 1 :]:
        os.unlink(path)


def _is_private(found: os.stat_result) -> bool:
    """Return whether only the owner can have written it, because an assistant reads it."""
    if sys.platform == "win32":
        return True
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


class _Loader:
    """Loads the program in a thread while there is nothing to read."""

    def __init__(self, load: Callable[[], object]) -> None:
        self._load = load
        self._thread: Thread | None = None
        self._loaded = self._ends = -1  # a pipe that closes when the thread ends

    def wait_for_input(self) -> bool:
        """Wait for input. Return False if the program finishes loading first."""
        if sys.platform == "win32":  # it cannot wait for a pipe and something else
            self._start()
            return True
        import select

        if not select.select((0,), (), (), 0)[0]:
            self._start()
        waited = (0,) if self._thread is None else (0, self._loaded)
        return 0 in select.select(waited, (), ())[0]

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            os.close(self._loaded)

    def _start(self) -> None:
        if self._thread is None:
            from threading import Thread

            self._loaded, self._ends = os.pipe()
            self._thread = Thread(target=self._run, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            self._load()
        except BaseException:  # noqa: BLE001 - the main thread meets it again, and reports it
            pass
        finally:
            os.close(self._ends)


def _write(data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(1, left) :]
        except BlockingIOError:
            import select

            select.select((), (1,), ())


def _parse(line: bytes) -> Any:
    """Return the value of one line, or None if it is not plain JSON."""
    try:
        text = line.decode()
        value, end = _scan(text, 0)
    except (ValueError, StopIteration, RecursionError):
        return None
    return None if text[end:].strip(" \t\r") else value


class _JsonDefaults:
    """The defaults of `json`."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_int = int
    parse_float = parse_constant = float


_scan = make_scanner(_JsonDefaults())  # pyright: ignore[reportArgumentType]


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _encode_id(value: object) -> bytes | None:
    if type(value) is int:
        return b"%d" % value
    try:
        return encode_basestring(value).encode() if isinstance(value, str) else None
    except UnicodeEncodeError:
        return None


def _compute_digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
