"""`everkept doctor`, `backup` and `restore`: what is wrong here, and everything in one file."""

import signal
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from everkept.care.archive import Manifest
from everkept.care.backup import Backup, Restored, back_up, restore_project
from everkept.care.backup import restore as restored_from
from everkept.care.doctor import Diagnosis, diagnose
from everkept.care.findings import DOCTOR_FIX, Finding, Patient, care_of
from everkept.cli.options import common, settings_from
from everkept.cli.render import console
from everkept.cli.runner import bar, print_json, told_if_interrupted
from everkept.core.locks import FileLock
from everkept.core.text import clipped, counted
from everkept.core.times import now, parsed
from everkept.errors import EverkeptError, InvalidInput, ReadOnly
from everkept.hooks.session_end import Jobs, lock_path, wake
from everkept.hooks.workspace import FOLDER, KEPT_DAYS, hooks_folder, prune, recent
from everkept.settings import load

if TYPE_CHECKING:
    from everkept.engines.sqlite.care import SqliteCare

CHECK = "hooks"
WEEK = 7 * 86_400 * 1_000_000  # microseconds
PATIENCE = 600.0  # seconds after which a job should have been worked off
MANY_LEDGERS = 50


def check_hooks(patient: Patient) -> Iterator[Finding]:
    settings = patient.settings
    if not settings.hooks:
        yield Finding(CHECK, "ok", "They are switched off (hooks).")
        return
    folder = hooks_folder(settings)
    if not patient.is_on_disk or not folder.is_dir():
        yield Finding(CHECK, "ok", "None has left anything yet.")
        return
    found = [*_faults(patient, folder), *_jobs(patient, folder), *_ledgers(patient, folder)]
    yield from found or [Finding(CHECK, "ok", "Nothing failed, and nothing waits.")]


def _faults(patient: Patient, folder: Path) -> Iterator[Finding]:
    lately = [fault for fault in recent(folder) if patient.clock() - _parse_time(fault.at) < WEEK]
    if lately:
        last = lately[0]
        what = (
            f"{counted(len(lately), 'fault')} in the last week; the newest at {last.at[:16]}, "
            f"{last.event}: {clipped(last.reason, 200)}"
        )
        yield Finding(CHECK, "advice", what, f"see {folder / 'faults.log'}")


def _parse_time(at: str) -> int:
    try:
        return parsed(at)
    except ValueError:
        return 0


def _jobs(patient: Patient, folder: Path) -> Iterator[Finding]:
    jobs = Jobs(folder)
    strange = jobs.unreadable()
    if strange:
        shown = ", ".join(path.name for path in strange[:3]) + (", …" if len(strange) > 3 else "")
        what = f"{counted(len(strange), 'file')} in {strange[0].parent} can be no job: {shown}."
        yield Finding(CHECK, "advice", what, DOCTOR_FIX, lambda: _removed(strange))
    unread = {path.name for path in strange}
    waiting = [name for name in jobs.waiting_for(PATIENCE) if name not in unread]
    if waiting and not _is_at_work(patient):
        what = f"{counted(len(waiting), 'session')} wait to be taken in, and nobody is at it."
        yield Finding(CHECK, "advice", what, DOCTOR_FIX, lambda: _woken(patient))
    failed = jobs.set_aside()
    if failed:
        why = clipped(str(failed[-1].get("reason", "")), 120)
        what = f"{counted(len(failed), 'session')} could not be taken in ({why})."
        yield Finding(CHECK, "advice", what, DOCTOR_FIX, lambda: _tried_again(patient, jobs))


def _is_at_work(patient: Patient) -> bool:
    path = lock_path(patient.settings)
    if not path.exists():
        return False
    lock = FileLock(path)
    if not lock.take():
        return True
    lock.release()
    return False


def _woken(patient: Patient) -> str:
    return "started the one that takes them in" if wake(patient.settings) else "one is at it now"


def _removed(files: Sequence[Path]) -> str:
    for path in files:
        path.unlink(missing_ok=True)
    return f"removed {counted(len(files), 'file')}"


def _tried_again(patient: Patient, jobs: Jobs) -> str:
    """Whatever kept them from being taken in may be gone."""
    again, removed = jobs.try_again()
    wake(patient.settings)
    did = [f"gave {counted(again, 'session')} another try"] if again else []
    did += [f"removed {counted(removed, 'file')} that no job can be read from"] if removed else []
    return " and ".join(did) or "nothing was left to do"


def _ledgers(patient: Patient, folder: Path) -> Iterator[Finding]:
    before = patient.clock() / 1e6 - KEPT_DAYS * 86_400
    old = [path for path in (folder / FOLDER).glob("*.txt") if path.stat().st_mtime < before]
    if len(old) > MANY_LEDGERS:
        what = f"{counted(len(old), 'file')} of sessions of long ago are kept."
        mend = lambda: f"removed {prune(folder, patient.clock())}"  # noqa: E731
        yield Finding(CHECK, "advice", what, DOCTOR_FIX, mend)


SIGNS = {"ok": ("ok     ", "green"), "advice": ("advice ", "yellow"), "problem": ("problem", "red")}


@click.command()
@common
@click.option("--gateway-config", metavar="FILE", help="Gateway: its file, or `none`.")
@click.option("--fix", is_flag=True, help="Mend what can be mended safely.")
@click.option("--full", is_flag=True, help="Check every page of every database; takes longer.")
def doctor(as_json: bool, project: str | None, fix: bool, full: bool, **flags: Any) -> None:
    """Look for what is wrong: data, model, settings, hooks, gateway, clients.

    Each finding comes with what mends it. Nothing is changed without --fix, and that never removes
    what was stored: a damaged database is brought back with `everkept restore`. Exit status 0
    where no problem is left, 1 else.
    """
    if project is not None:
        raise InvalidInput(
            "All projects are looked at together.",
            hint="Leave --project out.",
            argument="--project",
            value=project,
        )
    patient = _patient(flags, full=full)
    if fix and patient.settings.read_only:
        raise ReadOnly("--fix writes, and only reading is allowed here.")
    diagnosis = diagnose(patient, [(CHECK, check_hooks)], fix=fix)
    print_json(_describe_diagnosis(diagnosis)) if as_json else _show(diagnosis, fix=fix)
    sys.exit(0 if diagnosis.is_well else 1)


def _patient(flags: Mapping[str, Any], *, full: bool) -> Patient:
    """Settings that cannot be used are a finding, and the rest is looked at without them."""
    try:
        return Patient(settings_from(**flags), now, full)
    except EverkeptError as error:
        fault = error
    kept = {name: flags[name] for name in ("data_dir", "log_level") if flags.get(name)}
    try:
        return Patient(load({**kept, "config": "none"}), now, full, fault)
    except EverkeptError:
        return Patient(load({**kept, "config": "none"}, {}), now, full, fault)


def _show(diagnosis: Diagnosis, *, fix: bool) -> None:
    out = console()
    for each in diagnosis.mended:
        sign, colour = ("mended ", "green") if each.is_done else ("failed ", "red")
        out.print(Text.assemble((sign, colour), f" {each.check}: {each.what} → {each.did}"))
    for finding in diagnosis.findings:
        sign, colour = SIGNS[finding.severity]
        out.print(Text.assemble((sign, colour), f" {finding.check}: {finding.what}"))
        if finding.command:
            out.print(Text(f"         {finding.command}", style="dim"))
    out.print(_sum(diagnosis.findings, fix=fix))


def _sum(findings: list[Finding], *, fix: bool) -> str:
    problems = [finding for finding in findings if finding.severity == "problem"]
    mendable = [finding for finding in findings if finding.mend is not None]
    said = f"{counted(len(problems), 'problem')}." if problems else "No problem."
    if mendable and not fix:
        said += f" --fix mends {len(mendable)} of these findings."
    return said


def _describe_diagnosis(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "ok": diagnosis.is_well,
        "findings": [
            {
                "check": finding.check,
                "severity": finding.severity,
                "what": finding.what,
                "command": finding.command,
                "fixable": finding.mend is not None,
            }
            for finding in diagnosis.findings
        ],
        "mended": [
            {"check": each.check, "what": each.what, "did": each.did, "done": each.is_done}
            for each in diagnosis.mended
        ],
    }


NOT_IN_IT = "Not in it: the files of memory banks, the configuration, and what hooks noted."

DECISIONS_KEPT = (
    "Tokens are those of now, with accounts and grants; what is switched off or left out of past "
    "conversations stays so."
)
DECISIONS_LOST = (
    "Which tokens were revoked, and what was switched off or left out since, could not be read: "
    "see `everkept token list` and `everkept status`."
)


@click.command()
@common
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace FILE where it exists.")
@click.option("--with-damaged", is_flag=True, help="Take a damaged database in as it is.")
def backup(
    as_json: bool,
    project: str | None,
    file: Path,
    force: bool,
    with_damaged: bool,
    **flags: Any,
) -> None:
    """Write everything that is stored into FILE, a zip, while servers go on writing.

    All projects, your own memories, past conversations, tokens and settings of projects, as they
    are at one moment. What is written is checked before the command ends. The files of memory
    banks are not in it, nor is the configuration.
    """
    if project is not None:
        raise InvalidInput(
            "A backup has all projects.",
            hint="`everkept restore FILE --project NAME` takes one out of it.",
            argument="--project",
            value=project,
        )
    care, file = care_of(settings_from(**flags)), file.expanduser().absolute()
    before = _stamp(file)

    def left() -> str:
        if (after := _stamp(file)) != before:
            return f"{file} is written, and whole."
        return f"{file} {'was not written' if after is None else 'is as it was'}."

    with told_if_interrupted(left), _ended_by_terminate(), bar("Backing up") as progress:
        made = back_up(
            care,
            file,
            now,
            progress,
            force=force,
            with_damaged=with_damaged,
        )
    print_json(_describe_backup(made)) if as_json else _tell_of_backup(made)


@click.command()
@common
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Put it in place of the data that is there.")
@click.option(
    "--safety-copy",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Where to keep what is there. Default: beside the data folder.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def restore(
    as_json: bool,
    project: str | None,
    file: Path,
    replace: bool,
    safety_copy: Path | None,
    yes: bool,
    **flags: Any,
) -> None:
    """Bring back what `everkept backup` wrote into FILE.

    FILE is checked before anything is changed. Where there is data already, --replace is needed,
    and a backup of that is made first; tokens, and what is switched off or left out of past
    conversations, stay as they are. Servers may go on running. With --project NAME one project is
    added to what is there, under a name that is free.
    """
    settings = settings_from(**flags)
    care = care_of(settings)
    if settings.read_only:
        raise ReadOnly("This command writes, and only reading is allowed here.")
    file = file.expanduser().absolute()
    left = f"{care.folder} is whole: as it was, unless all was done already."
    with told_if_interrupted(lambda: left), _ended_by_terminate():
        if project is not None:
            _refuse_to_replace(replace, safety_copy)
            _restore_one(care, file, project, as_json=as_json)
            return

        def ask(manifest: Manifest, safety: Path | None) -> bool:
            return safety is None or _is_wanted(manifest, safety, care.folder, yes=yes)

        with bar("Restoring") as progress:
            outcome = restored_from(
                care,
                file,
                now,
                progress,
                ask,
                replace=replace,
                safety=safety_copy.expanduser().absolute() if safety_copy else None,
            )
    if outcome is not None:
        _tell_of_restore(outcome, care.folder, as_json=as_json)


def _stamp(file: Path) -> tuple[int, int] | None:
    """Another one for another file; None where there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _refuse_to_replace(replace: bool, safety_copy: Path | None) -> None:
    if replace or safety_copy is not None:
        option = "--replace" if replace else "--safety-copy"
        raise InvalidInput(
            f"{option} has no place beside --project: one project is added, and nothing replaced.",
            hint=f"Leave {option} out; `everkept delete-project NAME` before it frees the name.",
            argument=option,
        )


def _restore_one(care: "SqliteCare", file: Path, project: str, *, as_json: bool) -> None:
    added = restore_project(care, file, project, now)
    if as_json:
        print_json({"project": added.name, "off": added.is_off})
        return
    click.echo(f'Project "{project}" is back, as "{added.name}".')
    if added.is_off:
        click.echo(f'It is switched off; `everkept on --project "{added.name}"` ends that.')


def _is_wanted(manifest: Manifest, safety: Path, folder: Path, *, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError("This replaces what is stored: say --yes where nobody can be asked.")
    click.echo(f"The backup of {_moment(manifest)} holds {_contents(manifest)}.", err=True)
    click.echo(f"What is there now goes into {safety}.", err=True)
    return click.confirm(f"Replace everything in {folder}?", err=True)


def _tell_of_backup(made: Backup) -> None:
    size = f"{made.size / 1_000_000:,.1f} MB"
    click.echo(f"Wrote {made.file} ({size}): {_contents(made.manifest)}. It was read again.")
    click.echo(NOT_IN_IT)
    for name in made.manifest.damaged:
        click.echo(f"{name} is damaged, and in it as it is.", err=True)


def _tell_of_restore(outcome: Restored, folder: Path, *, as_json: bool) -> None:
    manifest, safety = outcome.manifest, outcome.safety
    if as_json:
        told = {"created_at": manifest.created_at, "rows": _rows(manifest)}
        kept = {"safety_copy": str(safety) if safety else None, "left": list(outcome.left)}
        decided = {"off": list(outcome.off), "decisions_lost": outcome.decisions_lost}
        print_json({"data_dir": str(folder), **told, **kept, **decided})
        return
    click.echo(f"{folder} is as it was at {_moment(manifest)}: {_contents(manifest)}.")
    if safety:
        click.echo(f"What was there before is in {safety}; `everkept restore` brings it back.")
        click.echo(DECISIONS_LOST if outcome.decisions_lost else DECISIONS_KEPT)
    if outcome.off:
        click.echo(f"Switched off: {', '.join(outcome.off)}.")
    for name in outcome.left:
        click.echo(f"{name} is in use, and can be removed when its window is closed.", err=True)


def _describe_backup(made: Backup) -> dict[str, Any]:
    manifest = made.manifest
    return {
        "file": str(made.file),
        "bytes": made.size,
        "created_at": manifest.created_at,
        "projects": manifest.project_names,
        "rows": _rows(manifest),
        "damaged": list(manifest.damaged),
    }


def _moment(manifest: Manifest) -> str:
    return f"{manifest.created_at[:16].replace('T', ' ')} UTC"


def _contents(manifest: Manifest) -> str:
    rows = _rows(manifest)
    parts = [
        counted(len(manifest.project_names), "project"),
        counted(rows["records"], "record"),
        counted(rows["links"], "link"),
        counted(rows["changes"], "change"),
    ]
    return ", ".join(parts)


def _rows(manifest: Manifest) -> dict[str, int]:
    return {
        table: sum(copied.rows.get(table, 0) for copied in manifest.databases)
        for table in ("records", "links", "changes", "vectors")
    }


@contextmanager
def _ended_by_terminate() -> Generator[None, None, None]:
    """A request to end is obeyed as Ctrl-C is: nothing half-made is left."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
