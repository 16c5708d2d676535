"""The program that is started for a server: which, where, and with which environment."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from everkept.core.upstreams import Launch
from everkept.errors import UpstreamUnavailable
from everkept.upstreams.link import filled
from everkept.values import Value

# What the official clients let a server inherit: enough to run, and no secrets.
INHERITED = (
    (
        "APPDATA",
        "HOMEDRIVE",
        "HOMEPATH",
        "LOCALAPPDATA",
        "PATH",
        "PATHEXT",
        "PROCESSOR_ARCHITECTURE",
        "SYSTEMDRIVE",
        "SYSTEMROOT",
        "TEMP",
        "USERNAME",
        "USERPROFILE",
    )
    if sys.platform == "win32"
    else ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
)

_ROOT = Path(sys.executable).anchor
_HINT_FOR_LINE = (
    "`command` is the program alone: what follows its name belongs into `args`, one by one."
)
_PATHEXT = ".COM;.EXE;.BAT;.CMD"


class Program(Value):
    """Everything that the system wants to know of it."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str


def program(upstream: str, launch: Launch, environment: Mapping[str, str]) -> Program:
    """Raises UpstreamUnavailable where the program, its folder or a variable is not there."""
    given = _environment(upstream, launch, environment)
    folder = Path(launch.cwd or _home(environment))
    if not (folder.is_absolute() and folder.is_dir()):
        raise UpstreamUnavailable(
            upstream,
            f"cannot be started: there is no folder {folder}.",
            hint="Make it, or correct `cwd`.",
            retry_possible=False,
        )
    executable = _executable(upstream, launch.command, folder, given)
    return Program((executable, *launch.args), given, str(folder))


def _home(environment: Mapping[str, str]) -> str:
    home = Path(environment.get("USERPROFILE" if sys.platform == "win32" else "HOME", ""))
    return str(home) if home.is_absolute() and home.is_dir() else _ROOT


def _environment(upstream: str, launch: Launch, environment: Mapping[str, str]) -> dict[str, str]:
    inherited = {
        name: environment[name]
        for name in INHERITED
        # A function of a shell is code that the next shell would run.
        if name in environment and not environment[name].startswith("()")
    }
    named = filled(launch.env, environment, upstream)
    if sys.platform == "win32":  # `Path` and `PATH` are one
        named = {name.upper(): value for name, value in named.items()}
    return inherited | named


def _executable(upstream: str, wanted: str, folder: Path, environment: Mapping[str, str]) -> str:
    has_folder = Path(wanted).name != wanted
    # With a folder in its name it lies where the program will be, not where we are.
    places = [folder] if has_folder else _folders(environment)
    if found := _runnable(places, wanted, environment):
        return found
    if has_folder and (folder / wanted).is_file():
        raise UpstreamUnavailable(
            upstream,
            f"cannot be started: {wanted} is no program that may be run.",
            hint="Give the program that runs it as `command`, and it in `args`.",
            retry_possible=False,
        )
    looked = "" if has_folder else " in the folders of PATH"
    raise UpstreamUnavailable(
        upstream,
        f"cannot be started: there is no program {_named(wanted)}{looked}.",
        hint=_HINT_FOR_LINE
        if " " in wanted
        else "Install it, or give its whole path as `command`.",
        retry_possible=False,
    )


def _named(wanted: str) -> str:
    """What was given as a program; a whole line may hold a key."""
    from everkept.core.secrets import masked

    return f'"{masked(wanted)[0]}"' if " " in wanted else wanted


def _folders(environment: Mapping[str, str]) -> list[Path]:
    """Those of PATH. Windows, and every relative entry, would have it looked for where we are,
    and that may be a stranger's folder."""
    entries = environment.get("PATH", os.defpath).split(os.pathsep)
    return [Path(entry) for entry in entries if Path(entry).is_absolute()]


def _runnable(places: list[Path], name: str, environment: Mapping[str, str]) -> str | None:
    for place in places:
        for ending in _endings(name, environment):
            path = place / (name + ending)
            if path.is_file() and os.access(path, os.X_OK):
                return str(path)
    return None


def _endings(name: str, environment: Mapping[str, str]) -> list[str]:
    """What is put after a name: on Windows a program is known by how its file's name ends."""
    if sys.platform != "win32":
        return [""]
    known = [e for e in environment.get("PATHEXT", _PATHEXT).split(";") if e.startswith(".")]
    return [""] if name.lower().endswith(tuple(e.lower() for e in known)) else known
