"""Entry point of `everkept hook EVENT`, which answers one event of an assistant.

Whatever happens, the exit status is 0, only the answer is printed, and the process ends in time. The status is 1 only
if the interpreter itself hangs.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock, Thread
from time import sleep, time_ns
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from everkept.errors import EverkeptError, InvalidInput
from everkept.hooks.unhandled import end_after

if TYPE_CHECKING:  # paths and settings take longer to load than most prompts take to read
    from pathlib import Path

    from everkept.hooks.events import Handler, HookAnswer, HookEvent
    from everkept.settings import Settings

END_EVENTS = ("PreCompact", "SessionEnd")
PROMPT_EVENT = "UserPromptSubmit"
CLAUDE_CODE = "claude-code"
HANDLED_EVENTS = ("SessionStart", PROMPT_EVENT, "PostToolUse", "PostToolUseFailure", *END_EVENTS)
MIN_NAME_SIMILARITY = 0.85  # a name this similar to a handled event is a typo; PreToolUse is below it
MAX_INPUT_BYTES = 16_000_000
# In seconds. The client does not wait for the last two events, and a job they fail to write is lost. With
# FINISH_SECONDS added, each stays below the timeout that the clients' configuration gives the hook.
EVENT_SECONDS = {PROMPT_EVENT: 1.5, "PreCompact": 10.0, "SessionEnd": 10.0}
DEFAULT_SECONDS = 3.0  # for all other events
FINISH_SECONDS = 0.5  # in addition: to finish writing an answer, or to log a fault
KILL_SECONDS = 30.0  # if not even that is possible; longer than any busy machine needs

_FLAGS = (
    *("--client", "--config", "--data-dir", "--database-url", "--database-user"),
    *("--engine", "--log-level", "--path", "--project"),
)
_SWITCHES = ("--json", "--worker")  # the answer is always JSON


class HookCall(NamedTuple):
    """Parsed command line of a hook."""

    event: str
    flags: dict[str, str]
    is_worker: bool = False
    client: str = ""  # the assistant if it is not Claude Code


def main(argv: Sequence[str]) -> NoReturn:
    """Run the hook and end the process, so that no unfinished work delays the end or changes the status."""
    call = HookCall("", {})
    try:
        call = parse_arguments(argv)
        if call.is_worker:
            from everkept.hooks.worker import main as work
            from everkept.settings import read_settings

            work(read_settings(call.flags))
        else:
            answer_event(call)
    except BaseException as error:  # noqa: BLE001
        with suppress(BaseException):
            FaultLog(call).write(error)
    finally:
        os._exit(0)


def parse_arguments(argv: Sequence[str]) -> HookCall:
    """Parse the command line by hand, because loading a parser takes longer than most answers."""
    events: list[str] = []
    flags: dict[str, str] = {}
    rest = iter(argv)
    for word in rest:
        name, sign, value = word.partition("=")
        if name in _FLAGS:
            flags[name[2:].replace("-", "_")] = value if sign else next(rest, "")
        elif word not in _SWITCHES:
            events.append(word)
    if len(events) > 1 or any(event.startswith("-") for event in events):
        raise InvalidInput(f"Unknown arguments: {' '.join(events)!r}.", hint="Pass one event to `everkept hook`.")
    event, client = events[0] if events else "", flags.pop("client", CLAUDE_CODE)
    if client == CLAUDE_CODE:
        return HookCall(event, flags, is_worker="--worker" in argv)
    from everkept.hooks.assistants import get_assistant

    return HookCall(get_assistant(client).events.get(event, event), flags, client=client)


def answer_event(call: HookCall) -> None:
    """Read the event, call its handler, and print the answer."""
    writing = Lock()
    end_after(KILL_SECONDS)
    Thread(target=_enforce_time_limit, args=(call, writing), daemon=True).start()
    told = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    if call.event and call.event not in HANDLED_EVENTS:
        _refuse_mistyped(call.event)
        return
    if len(told) > MAX_INPUT_BYTES:
        raise InvalidInput(f"The hook's input must be at most {MAX_INPUT_BYTES:,} bytes.")
    from everkept.hooks.events import build_event, format_answer, get_event_name, get_prompt, is_foreign, parse_input

    facts = parse_input(told)
    if call.client or is_foreign(facts):
        from everkept.hooks.assistants import detect_client, rename_facts

        call = call._replace(client=call.client or detect_client(facts))
        facts = rename_facts(call.client, facts)
    name = get_event_name(call.event, facts)
    if name not in HANDLED_EVENTS or (name == PROMPT_EVENT and _is_idle(get_prompt(facts))):
        return
    answer = _handle_event(build_event(name, facts), call)
    if call.client:
        from everkept.hooks.assistants import format_for

        said = format_for(call.client, name, answer)
    else:
        said = format_answer(name, answer)
    if said:
        with writing:
            sys.stdout.buffer.write(said)
            sys.stdout.buffer.flush()


def _is_idle(prompt: str) -> bool:
    """Return whether a prompt asks for nothing. Most prompts do, and end before settings are loaded."""
    from everkept.hooks.prompts import parse_prompt

    return parse_prompt(prompt) is None


def load_handler(event: str) -> "Handler | None":
    """Import and return only this event's handler, or None for an event without one."""
    if event == "SessionStart":
        from everkept.hooks.session_start import handle_session_start

        return handle_session_start
    if event == PROMPT_EVENT:
        from everkept.hooks.user_prompt import handle_user_prompt

        return handle_user_prompt
    if event in ("PostToolUse", "PostToolUseFailure"):
        from everkept.hooks.tool_use import handle_tool_use

        return handle_tool_use
    if event in END_EVENTS:
        from everkept.hooks.session_end import handle_session_end

        return handle_session_end
    return None


def _refuse_mistyped(event: str) -> None:
    """Raise InvalidInput for a mistyped event name, which would never get answers. Ignore other unknown events."""
    from difflib import get_close_matches

    known = {name.lower(): name for name in HANDLED_EVENTS}
    typed = event.lower().replace("-", "").replace("_", "")
    for near in get_close_matches(typed, known, 1, MIN_NAME_SIMILARITY):
        raise InvalidInput(f"Event {event!r} does not exist.", hint=f"Use {known[near]}.")


class FaultLog:
    """The log of the hooks for one call, if there is a data folder. `find` takes long on a busy machine."""

    def __init__(self, call: HookCall) -> None:
        self._call = call
        self._folder: Path | None = None
        self._is_known = False

    def find(self) -> None:
        """Find the folder, and load most of what a line needs."""
        from everkept.hooks.workspace import get_hooks_folder
        from everkept.settings import NO_FILE, is_inside_hook, read_settings

        settings, flags = None, self._call.flags
        for tried in () if is_inside_hook() else (flags, flags | {"config": NO_FILE}):  # the file may be the cause
            with suppress(EverkeptError):
                settings = settings or read_settings(tried)
        self._folder = None if settings is None else get_hooks_folder(settings)
        self._is_known = True

    def write(self, cause: BaseException | str) -> None:
        from everkept.hooks.workspace import record_fault
        from everkept.settings import is_inside_hook

        if is_inside_hook():
            return
        if not self._is_known:
            self.find()
        record_fault(self._folder, self._call.event, cause, echo="log_level" in self._call.flags)


def _handle_event(event: "HookEvent", call: HookCall) -> "HookAnswer | None":
    from everkept.settings import find_files_folder, is_inside_hook, read_settings
    from everkept.values import replace

    handler = load_handler(event.name)
    if handler is None or is_inside_hook():
        return None
    settings = read_settings(call.flags, folder=event.folder)
    if not settings.hooks or find_files_folder(settings) is None:
        return None  # an embedded SurrealDB is open in one process only
    session = event.session or settings.session_id or ""
    return _run_handler(handler, replace(event, folder=settings.path, session=session), settings, call.client)


def _run_handler(handler: "Handler", event: "HookEvent", settings: "Settings", client: str) -> "HookAnswer | None":
    from everkept.core.runtime import run_without_loop
    from everkept.engines.sqlite.read_only_library import open_read_only_library
    from everkept.hooks.events import HookContext
    from everkept.hooks.workspace import SessionLedger, find_project, get_hooks_folder
    from everkept.settings import find_files_folder

    folder = find_files_folder(settings)
    room = None if folder is None else open_read_only_library(folder)
    try:
        project = None if room is None else run_without_loop(find_project(event.folder, settings, room))
    except EverkeptError:
        if event.name not in END_EVENTS:
            raise
        project = None  # the job is written anyway, and the worker checks the project again
    if project is not None and project.is_off:
        return None
    if client and _is_answered(event, settings, client):
        return None
    ledger = SessionLedger(get_hooks_folder(settings), event.session)
    around = HookContext(settings, room, ledger, now=time_ns() // 1000, run=run_without_loop)
    said = handler(event, around)
    if event.name == "SessionStart" and not settings.read_only:
        _run_maintenance(settings, around.now)
    return said


def _is_answered(event: "HookEvent", settings: "Settings", client: str) -> bool:
    """Return whether another hook answers this moment, because the client also runs the hooks of Claude Code."""
    from everkept.hooks.assistants import get_assistant
    from everkept.hooks.workspace import SessionMoments, compute_mark, get_hooks_folder

    if not get_assistant(client).can_run_twice:
        return False
    # With its outcome, because the same command can run again soon.
    outcome = event.tool_response, event.error
    told = (event.name, event.source, event.prompt, event.tool, event.tool_input, outcome, event.reason)
    moments = SessionMoments(get_hooks_folder(settings), event.session)
    return not moments.claim(compute_mark(repr(told)), time_ns() // 1000)


def _run_maintenance(settings: "Settings", now: int) -> None:
    """Prune old files and wake the worker for leftover jobs. Ignore failures, because the answer matters more."""
    from everkept.hooks.session_end import wake_worker
    from everkept.hooks.workspace import get_hooks_folder, prune_daily

    with suppress(OSError):
        prune_daily(get_hooks_folder(settings), now)
        wake_worker(settings)


def find_time_limit(event: str, client: str) -> float:
    """Return the seconds that a hook may take."""
    limit = EVENT_SECONDS.get(event, DEFAULT_SECONDS)
    if not client:
        return limit
    from everkept.hooks.assistants import get_assistant

    return get_assistant(client).time_limits.get(event, limit)


def _enforce_time_limit(call: HookCall, writing: Lock) -> None:
    """End the process when its time is up. A blocked read of input or of a locked file cannot be canceled."""
    limit, log = find_time_limit(call.event, call.client), FaultLog(call)
    sleep(limit / 2)
    # A hook this slow may need the log. In a thread, because the config file may be on a disk that hangs.
    Thread(target=log.find, daemon=True).start()
    sleep(limit / 2)
    # The first thread to take the lock decides, so an answer is written whole or not at all.
    if writing.acquire(blocking=False):
        late = f"it took longer than {limit} s"
        noting = Thread(target=log.write, args=(late,), daemon=True)
        noting.start()
        noting.join(FINISH_SECONDS)
    else:
        writing.acquire(timeout=FINISH_SECONDS)
    os._exit(0)
