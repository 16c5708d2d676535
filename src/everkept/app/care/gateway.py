"""The gateway's file: whether it can be used, and who else may read or change it."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.app.care.findings import DOCTOR_FIX, Finding, Patient
from everkept.app.care.place import OTHERS, WRITTEN_BY_OTHERS
from everkept.core.care import Severity
from everkept.core.text import counted
from everkept.errors import InvalidInput
from everkept.settings import GATEWAY, chosen_toolsets

if TYPE_CHECKING:  # hardly anybody has a gateway
    from everkept.app.gateway.file import Loaded

CHECK = "gateway"
GATEWAY_CHECK = "everkept gateway check"
READ_BY_OTHERS = 0o044
WRITTEN_BY_EVERYBODY = 0o002


def check_gateway(patient: Patient) -> Iterator[Finding]:
    """No server is started."""
    path = patient.settings.gateway_config
    if path is None:
        return
    from everkept.app.gateway.file import load, state

    loaded = None
    try:
        loaded = load(path)
        _refuse_names_of_ours(patient, path, loaded)
    except InvalidInput as error:
        yield Finding(CHECK, "problem", error.message, error.hint or GATEWAY_CHECK)
    else:
        yield _told(patient, path, loaded)
    # On Windows a file of the user's has an access list of its own.
    if os.name != "nt" and state(path) is not None:
        yield from _changed_by_others(path)
        yield from _read_by_others(path, loaded)


def _refuse_names_of_ours(patient: Patient, path: Path, loaded: "Loaded") -> None:
    from everkept.app.gateway.beside import names_beside
    from everkept.app.gateway.clashes import refuse_clashes

    refuse_clashes(path, loaded.config, names_beside(patient.settings))


def _told(patient: Patient, path: Path, loaded: "Loaded") -> Finding:
    config = loaded.config
    what = f"{path}: {counted(len(config.upstreams), 'server')}, "
    what += f"{counted(len(config.tools), 'tool')} of its own."
    if GATEWAY not in chosen_toolsets(patient.settings):
        return Finding(
            CHECK,
            "advice",
            f"{what} They are not offered: the setting `toolsets` does not name `{GATEWAY}`.",
            f"add {GATEWAY} to toolsets (now {patient.settings.toolsets})",
        )
    if loaded.warnings:
        more = len(loaded.warnings) - 1
        rest = f" And {more} more." if more else ""
        return Finding(CHECK, "advice", f"{path}, {loaded.warnings[0]}{rest}", GATEWAY_CHECK)
    return Finding(CHECK, "ok", what)


def _changed_by_others(path: Path) -> Iterator[Finding]:
    """Whoever changes the file chooses which programs are started in the user's name."""
    owner = path.stat().st_uid
    if owner not in (os.geteuid(), 0):
        what = f"{path} belongs to another user (number {owner}), who can change what it starts."
        yield Finding(CHECK, "problem", what, f"change its owner: chown {os.geteuid()} {path}")
    if _mode(path) & WRITTEN_BY_OTHERS:
        what = f"Others may change {path}, which says what programs are started in your name."
        mend = _taking(path, WRITTEN_BY_OTHERS)
        yield Finding(CHECK, _severity(path), what, DOCTOR_FIX, mend)
    folder = path.resolve().parent
    if _mode(folder) & WRITTEN_BY_OTHERS and not _mode(folder) & stat.S_ISVTX:
        what = f"Others may put another file in the place of {path}."
        yield Finding(CHECK, _severity(folder), what, f"chmod go-w {folder}")


def _read_by_others(path: Path, loaded: "Loaded | None") -> Iterator[Finding]:
    """Of a file that cannot be used nobody knows what is a secret in it."""
    if loaded is None or not _mode(path) & READ_BY_OTHERS:
        return
    from everkept.app.gateway.overview import plain_secrets

    found = [
        f"{name} of {upstream.name}"
        for upstream in loaded.config.upstreams.values()
        for name in plain_secrets(upstream.reach)
    ]
    if found:
        what = f"Others may read {path}, and it holds what looks like a secret: {', '.join(found)}."
        yield Finding(CHECK, "problem", what, DOCTOR_FIX, _taking(path, OTHERS))


def _severity(path: Path) -> Severity:
    """On many systems everybody is alone in a group of the same name."""
    return "problem" if _mode(path) & WRITTEN_BY_EVERYBODY else "advice"


def _taking(path: Path, rights: int) -> Callable[[], str]:
    def mend() -> str:
        path.chmod(_mode(path) & ~rights)
        return f"took the rights of others from {path}"

    return mend


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
