"""Which program is to be started, where, and with which environment."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from recollect.core.upstreams import Launch
from recollect.errors import UpstreamUnavailable
from recollect.upstreams.variables import filled

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


@dataclass(frozen=True, slots=True)
class Program:
    """Everything that the system wants to know of it."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str | None


def program(upstream: str, launch: Launch, environment: Mapping[str, str]) -> Program:
    """Raises UpstreamUnavailable where the program, its folder or a variable is not there."""
    given = _environment(upstream, launch, environment)
    if launch.cwd is not None and not Path(launch.cwd).is_dir():
        raise UpstreamUnavailable(
            upstream,
            f"cannot be started: there is no folder {launch.cwd}.",
            hint="Make it, or correct `cwd`.",
        )
    executable = _executable(upstream, launch, given)
    return Program((executable, *launch.args), given, launch.cwd)


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


def _executable(upstream: str, launch: Launch, environment: Mapping[str, str]) -> str:
    wanted = launch.command
    has_folder = Path(wanted).name != wanted
    # With a folder in its name it lies where the program will be, not where we are.
    place = str(Path(launch.cwd or "", wanted)) if has_folder else wanted
    found = shutil.which(place, path=environment.get("PATH", os.defpath))
    if found is not None:
        return str(Path(found).absolute())
    if has_folder and Path(place).is_file():
        raise UpstreamUnavailable(
            upstream,
            f"cannot be started: {wanted} is no program that may be run.",
            hint="Give the program that runs it as `command`, and it in `args`.",
        )
    looked = "" if has_folder else " in the folders of PATH"
    raise UpstreamUnavailable(
        upstream,
        f"cannot be started: there is no program {wanted}{looked}.",
        hint="Install it, or give its whole path as `command`.",
    )
