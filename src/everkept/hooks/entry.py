"""`everkept hook EVENT`: answers one event of an assistant, and never gets in its way.

Whatever happens, the exit status is 0, nothing but the answer is printed, and it ends in time.
Only where the interpreter itself hangs, the status is 1.
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
    from everkept.hooks.events import Answer, Handler, HookEvent
    from everkept.settings import Settings

LEAVING = ("PreCompact", "SessionEnd")
PROMPT = "UserPromptSubmit"
HANDLED = ("SessionStart", PROMPT, "PostToolUse", "PostToolUseFailure", *LEAVING)
NEAR = 0.85  # from this likeness on, a name is a known one mistyped; PreToolUse is another's
MOST_INPUT = 16_000_000  # bytes
# Seconds. Nobody waits for the last two, and what they do not leave behind is lost. With what
# is added, each is less than what clients are told to give us.
LIMITS = {PROMPT: 1.5, "PreCompact": 10.0, "SessionEnd": 10.0}
LIMIT = 3.0  # for all others
LAST_WORDS = 0.5  # in addition: to end an answer that is being written, or to note a fault
LAST_RESORT = 30.0  # where not even that is possible; no machine is so busy by itself

_FLAGS = (
    "--config",
    "--data-dir",
    "--database-url",
    "--database-user",
    "--engine",
    "--log-level",
    "--path",
    "--project",
)
_SWITCHES = ("--json", "--worker")  # an answer is JSON in any case


class Call(NamedTuple):
    """What the command line says."""

    event: str
    flags: dict[str, str]
    is_worker: bool = False


def main(argv: Sequence[str]) -> NoReturn:
    """Ends the process here: nothing that is still under way holds it up or changes its status."""
    call = Call("", {})
    try:
        call = parsed(argv)
        if call.is_worker:
            from everkept.hooks.worker import main as work
            from everkept.settings import load

            work(load(call.flags))
        else:
            answer(call)
    except BaseException as error:  # noqa: BLE001
        with suppress(BaseException):
            note(call, error)
    finally:
        os._exit(0)


def parsed(argv: Sequence[str]) -> Call:
    """By hand: to load a parser takes longer than most answers. Raises InvalidInput."""
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
        raise InvalidInput(f"`everkept hook` does not know {' '.join(events)!r}.")
    return Call(events[0] if events else "", flags, is_worker="--worker" in argv)


def answer(call: Call) -> None:
    """Reads the event, lets its handler answer, and prints what that says."""
    writing = Lock()
    end_after(LAST_RESORT)
    Thread(target=_end_in_time, args=(call, writing), daemon=True).start()
    told = sys.stdin.buffer.read(MOST_INPUT + 1)
    if call.event and call.event not in HANDLED:
        _refuse_mistyped(call.event)
        return
    if len(told) > MOST_INPUT:
        raise InvalidInput(f"The hook's input has more than {MOST_INPUT} bytes.")
    from everkept.hooks.events import event_from, facts_from, name_of, prompt_of

    facts = facts_from(told)
    name = name_of(call.event, facts)
    if name not in HANDLED or (name == PROMPT and _is_idle(prompt_of(facts))):
        return
    from everkept.hooks.events import written

    said = written(name, _handled(event_from(name, facts), call))
    if said:
        with writing:
            sys.stdout.buffer.write(said)
            sys.stdout.buffer.flush()


def _is_idle(prompt: str) -> bool:
    """Return whether a prompt asks for nothing: most do, and end before settings are loaded."""
    from everkept.hooks.prompts import read

    return read(prompt) is None


def handler_of(event: str) -> "Handler | None":
    """Each event loads its own handler alone; None for those that nobody handles."""
    if event == "SessionStart":
        from everkept.hooks.session_start import session_start

        return session_start
    if event == PROMPT:
        from everkept.hooks.user_prompt import user_prompt

        return user_prompt
    if event in ("PostToolUse", "PostToolUseFailure"):
        from everkept.hooks.tool_use import tool_used

        return tool_used
    if event in LEAVING:
        from everkept.hooks.session_end import leaving

        return leaving
    return None


def _refuse_mistyped(event: str) -> None:
    """Whoever wrote it would wait for answers in vain; other events are not our business."""
    from difflib import get_close_matches

    known = {name.lower(): name for name in HANDLED}
    typed = event.lower().replace("-", "").replace("_", "")
    for near in get_close_matches(typed, known, 1, NEAR):
        raise InvalidInput(f"There is no event {event!r}.", hint=f"{known[near]} may be meant.")


def note(call: Call, cause: BaseException | str) -> None:
    """Puts a fault down, where there is a data folder."""
    from everkept.hooks.workspace import hooks_folder, record
    from everkept.settings import NO_FILE, is_inside_hook, load

    if is_inside_hook():
        return
    settings = None
    for flags in (call.flags, call.flags | {"config": NO_FILE}):  # the file may be what is wrong
        with suppress(EverkeptError):
            settings = settings or load(flags)
    folder = None if settings is None else hooks_folder(settings)
    record(folder, call.event, cause, echo="log_level" in call.flags)


def _handled(event: "HookEvent", call: Call) -> "Answer | None":
    from everkept.settings import files_folder, is_inside_hook, load
    from everkept.values import replace

    handler = handler_of(event.name)
    if handler is None or is_inside_hook():
        return None
    settings = load(call.flags, folder=event.folder)
    if not settings.hooks or files_folder(settings) is None:
        return None  # an embedded SurrealDB belongs to the one process that has it open
    session = event.session or settings.session_id or ""
    return _asked(handler, replace(event, folder=settings.path, session=session), settings)


def _asked(handler: "Handler", event: "HookEvent", settings: "Settings") -> "Answer | None":
    from everkept.core.runtime import driven
    from everkept.engines.sqlite.read_only_library import reading_room
    from everkept.hooks.events import Around
    from everkept.hooks.workspace import Ledger, hooks_folder, project_of
    from everkept.settings import files_folder

    folder = files_folder(settings)
    room = None if folder is None else reading_room(folder)
    try:
        project = None if room is None else driven(project_of(event.folder, settings, room))
    except EverkeptError:
        if event.name not in LEAVING:
            raise
        project = None  # what is left to do is noted all the same: who does it asks again
    if project is not None and project.is_off:
        return None
    ledger = Ledger(hooks_folder(settings), event.session)
    around = Around(settings, room, ledger, now=time_ns() // 1000, run=driven)
    said = handler(event, around)
    if event.name == "SessionStart" and not settings.read_only:
        _keep_house(settings, around.now)
    return said


def _keep_house(settings: "Settings", now: int) -> None:
    """Sees to what others have left; the answer counts more."""
    from everkept.hooks.session_end import wake
    from everkept.hooks.workspace import hooks_folder, sweep

    with suppress(OSError):
        sweep(hooks_folder(settings), now)
        wake(settings)


def _end_in_time(call: Call, writing: Lock) -> None:
    """Waits in a thread of its own: a read of input or of a locked file cannot be called off."""
    limit = LIMITS.get(call.event, LIMIT)
    sleep(limit)
    # Whoever has the lock first decides: an answer is written whole or not at all.
    if writing.acquire(blocking=False):
        late = f"it took longer than {limit} seconds"
        noting = Thread(target=note, args=(call, late), daemon=True)
        noting.start()
        noting.join(LAST_WORDS)
    else:
        writing.acquire(timeout=LAST_WORDS)
    os._exit(0)
