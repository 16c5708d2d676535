"""`everkept doctor`, `backup` and `restore`."""

import shlex
import signal
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from everkept.care.backup import RestoreOutcome, WrittenBackup, back_up, restore_project
from everkept.care.backup import restore as restored_from
from everkept.care.backup_schedule import KEPT_BACKUPS, PERIODS
from everkept.care.check_context import FIX_COMMAND, CheckContext, DoctorFinding, get_sqlite_care
from everkept.care.doctor import DoctorReport, diagnose
from everkept.cli.backup_schedule import NO_SCHEDULE, end_schedule, print_schedule, set_schedule
from everkept.cli.flags import CONNECTION_LOGS, silence_warnings
from everkept.cli.options import add_common_options, load_command_settings
from everkept.cli.render import build_console, print_item
from everkept.cli.runner import confirm, echo, print_json, report_interruption, show_progress
from everkept.core.locks import FileLock
from everkept.core.text import clip_text, format_count, format_size
from everkept.core.times import parse_time, read_clock
from everkept.engines.sqlite.archive import ArchiveManifest
from everkept.errors import EverkeptError, InvalidInput, ReadOnly
from everkept.hooks.session_end import JobQueue, get_lock_path, wake_worker
from everkept.hooks.workspace import (
    RETENTION_DAYS,
    SESSIONS_FOLDER,
    get_hooks_folder,
    prune_sessions,
    read_recent_faults,
)
from everkept.settings import read_settings

if TYPE_CHECKING:
    from everkept.engines.sqlite.care import SqliteCare

HOOKS_CHECK = "hooks"
WEEK_MICROSECONDS = 7 * 86_400 * 1_000_000
MAX_JOB_SECONDS = 600.0  # age of a job from which it counts as stuck
MAX_OLD_LEDGERS = 50


def check_hooks(context: CheckContext) -> Iterator[DoctorFinding]:
    settings = context.settings
    if not settings.hooks:
        yield DoctorFinding(HOOKS_CHECK, "ok", "Hooks are off (setting hooks).")
        return
    folder = get_hooks_folder(settings)
    if not context.is_on_disk or not folder.is_dir():
        yield DoctorFinding(HOOKS_CHECK, "ok", "No hook has run yet.")
        return
    found = [*_check_faults(context, folder), *_check_jobs(context, folder), *_check_ledgers(context, folder)]
    yield from found or [DoctorFinding(HOOKS_CHECK, "ok", "No faults and no pending jobs.")]


def _check_faults(context: CheckContext, folder: Path) -> Iterator[DoctorFinding]:
    lately = [
        fault for fault in read_recent_faults(folder) if context.clock() - _parse_time(fault.at) < WEEK_MICROSECONDS
    ]
    if lately:
        last = lately[0]
        what = (
            f"{format_count(len(lately), 'fault')} in the last week. Newest: {last.at[:16]}, "
            f"{last.event}: {clip_text(last.reason, 200)}"
        )
        yield DoctorFinding(HOOKS_CHECK, "advice", what, f"see {folder / 'faults.log'}")


def _parse_time(at: str) -> int:
    try:
        return parse_time(at)
    except ValueError:
        return 0


def _check_jobs(context: CheckContext, folder: Path) -> Iterator[DoctorFinding]:
    jobs = JobQueue(folder)
    strange = jobs.list_unreadable()
    if strange:
        shown = ", ".join(path.name for path in strange[:3]) + (", …" if len(strange) > 3 else "")
        what = f"{format_count(len(strange), 'file')} in {strange[0].parent} not readable as jobs: {shown}."
        yield DoctorFinding(HOOKS_CHECK, "advice", what, FIX_COMMAND, lambda: _remove_files(strange))
    unread = {path.name for path in strange}
    waiting = [name for name in jobs.list_older_than(MAX_JOB_SECONDS) if name not in unread]
    if waiting and not _is_worker_running(context):
        what = f"{format_count(len(waiting), 'session')} pending, and no import is running."
        yield DoctorFinding(HOOKS_CHECK, "advice", what, FIX_COMMAND, lambda: _wake_worker(context))
    failed = jobs.list_failed()
    if failed:
        why = clip_text(str(failed[-1].get("reason", "")), 120)
        what = f"{format_count(len(failed), 'session')} failed to import ({why})."
        yield DoctorFinding(HOOKS_CHECK, "advice", what, FIX_COMMAND, lambda: _retry_failed(context, jobs))


def _is_worker_running(context: CheckContext) -> bool:
    path = get_lock_path(context.settings)
    if not path.exists():
        return False
    lock = FileLock(path)
    if not lock.take():
        return True
    lock.release()
    return False


def _wake_worker(context: CheckContext) -> str:
    return "started the import" if wake_worker(context.settings) else "the import is running"


def _remove_files(files: Sequence[Path]) -> str:
    for path in files:
        path.unlink(missing_ok=True)
    return f"removed {format_count(len(files), 'file')}"


def _retry_failed(context: CheckContext, jobs: JobQueue) -> str:
    """Retry failed jobs, because the cause may be gone."""
    again, removed = jobs.retry_failed()
    wake_worker(context.settings)
    did = [f"retried {format_count(again, 'session')}"] if again else []
    did += [f"removed {format_count(removed, 'file')} not readable as jobs"] if removed else []
    return " and ".join(did) or "nothing left to do"


def _check_ledgers(context: CheckContext, folder: Path) -> Iterator[DoctorFinding]:
    before = context.clock() / 1e6 - RETENTION_DAYS * 86_400
    old = [path for path in (folder / SESSIONS_FOLDER).glob("*.txt") if path.stat().st_mtime < before]
    if len(old) > MAX_OLD_LEDGERS:
        what = f"{format_count(len(old), 'file')} of old sessions can be deleted."
        mend = lambda: f"removed {prune_sessions(folder, context.clock())}"  # noqa: E731
        yield DoctorFinding(HOOKS_CHECK, "advice", what, FIX_COMMAND, mend)


SEVERITY_SIGNS = {"ok": ("ok     ", "green"), "advice": ("advice ", "yellow"), "problem": ("problem", "red")}


@click.command()
@add_common_options
@click.option("--gateway-config", metavar="FILE", help="Gateway config file, or `none`.")
@click.option("--fix", is_flag=True, help="Fix the problems that can be fixed safely.")
@click.option("--full", is_flag=True, help="Check every page of every database (slower).")
def doctor(as_json: bool, project: str | None, fix: bool, full: bool, **flags: Any) -> None:
    """Find problems, and fix them with --fix.

    Checks data, model, settings, hooks, gateway and clients. Each finding names its fix. Changes nothing unless you
    pass --fix, and --fix never deletes stored data. To recover a damaged database, use `everkept restore`. Exits with 0
    if no problem is left, otherwise 1.
    """
    if project is not None:
        raise InvalidInput(
            "The doctor checks all projects.", hint="Omit --project.", argument="--project", value=project
        )
    context = _build_context(flags, full=full)
    if fix and context.settings.read_only:
        raise ReadOnly("--fix writes, but the setting read_only is on.")
    with silence_warnings(context.settings, CONNECTION_LOGS):
        diagnosis = diagnose(context, [(HOOKS_CHECK, check_hooks)], fix=fix)
    print_json(_describe_report(diagnosis)) if as_json else _print_report(diagnosis, fix=fix)
    sys.exit(0 if diagnosis.is_healthy else 1)


def _build_context(flags: Mapping[str, Any], *, full: bool) -> CheckContext:
    """Build the context. Unusable settings are a finding, and the other checks run without them."""
    try:
        return CheckContext(load_command_settings(**flags), read_clock, full)
    except EverkeptError as error:
        fault = error
    kept = {name: flags[name] for name in ("data_dir", "log_level") if flags.get(name)}
    try:
        return CheckContext(read_settings({**kept, "config": "none"}), read_clock, full, fault)
    except EverkeptError:
        return CheckContext(read_settings({**kept, "config": "none"}, {}), read_clock, full, fault)


def _print_report(diagnosis: DoctorReport, *, fix: bool) -> None:
    out = build_console()
    for each in diagnosis.mended:
        sign, colour = ("fixed  ", "green") if each.is_done else ("failed ", "red")
        print_item(out, f"{each.check}: {each.what} → {each.did}", Text(f"{sign} ", style=colour))
    for finding in diagnosis.findings:
        sign, colour = SEVERITY_SIGNS[finding.severity]
        print_item(out, f"{finding.check}: {finding.what}", Text(f"{sign} ", style=colour))
        if finding.command:
            out.print(Text(f"         {finding.command}", style="dim"))
    out.print(_format_summary(diagnosis.findings, fix=fix))


def _format_summary(findings: list[DoctorFinding], *, fix: bool) -> str:
    problems = [finding for finding in findings if finding.severity == "problem"]
    mendable = [finding for finding in findings if finding.mend is not None]
    said = f"{format_count(len(problems), 'problem')}." if problems else "No problems."
    if mendable and not fix:
        said += f" Fix {format_count(len(mendable), 'finding')} with --fix."
    return said


def _describe_report(diagnosis: DoctorReport) -> dict[str, Any]:
    return {
        "ok": diagnosis.is_healthy,
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
        "fixed": [
            {"check": each.check, "what": each.what, "did": each.did, "done": each.is_done} for each in diagnosis.mended
        ],
    }


NOT_INCLUDED = "Not included: memory bank files, configuration and hook state."

DECISIONS_KEPT = "Current tokens, accounts and grants are kept. So are projects that are off and excluded folders."
DECISIONS_LOST = (
    "Cannot read which tokens were revoked, or which projects were turned off or excluded, since the backup. "
    "Check `everkept token list` and `everkept status`."
)


@click.command()
@add_common_options
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--with-damaged", is_flag=True, help="Include damaged databases without repairing them.")
@click.option("--schedule", type=click.Choice([*PERIODS, NO_SCHEDULE]), help="Back up regularly. `off` ends it.")
@click.option("--keep", type=click.IntRange(min=1), help=f"With --schedule: backups to keep. Default: {KEPT_BACKUPS}.")
def backup(
    as_json: bool,
    project: str | None,
    file: Path | None,
    force: bool,
    with_damaged: bool,
    schedule: str | None,
    keep: int | None,
    **flags: Any,
) -> None:
    """Save all data to FILE, a zip archive. Servers can keep running.

    Includes all projects, user memories, past conversations and tokens, as of one moment, and verifies the archive.
    Does not include memory bank files or your configuration. With --schedule, FILE is a folder, by default one next to
    the data folder.
    """
    if project is not None:
        raise InvalidInput(
            "A backup contains all projects.",
            hint="Omit --project. To restore one project, run `everkept restore FILE --project NAME`.",
            argument="--project",
            value=project,
        )
    settings = load_command_settings(**flags)
    care, file = get_sqlite_care(settings), None if file is None else file.expanduser().absolute()
    if schedule is not None:
        _refuse_with_schedule(force, with_damaged)
        told = end_schedule(settings) if schedule == NO_SCHEDULE else set_schedule(settings, schedule, keep, file)
        print_json(told) if as_json else print_schedule(told)
        return
    if file is None or keep is not None:
        raise InvalidInput(
            "Specify the file to write." if file is None else "--keep needs --schedule.",
            hint="For regular backups, pass --schedule daily.",
            argument="FILE" if file is None else "--keep",
        )
    before = _read_stamp(file)

    def left() -> str:
        if (after := _read_stamp(file)) != before:
            return f"{file} is complete."
        return f"{file} {'was not written' if after is None else 'is unchanged'}."

    with report_interruption(left), _handle_terminate(), show_progress("Backing up") as progress:
        made = back_up(care, file, read_clock, progress, force=force, with_damaged=with_damaged)
    print_json(_describe_backup(made)) if as_json else _print_backup(made)


@click.command()
@add_common_options
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Replace the existing data.")
@click.option(
    "--safety-copy",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Where to save the existing data first. Default: next to the data folder.",
)
@click.option("--with-access", is_flag=True, help="Also restore tokens, accounts and grants from the backup.")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
def restore(
    as_json: bool,
    project: str | None,
    file: Path,
    replace: bool,
    safety_copy: Path | None,
    with_access: bool,
    yes: bool,
    **flags: Any,
) -> None:
    """Restore data from FILE, written by `everkept backup`.

    Verifies FILE before changing anything. If data already exists, pass --replace (a safety copy is saved first) or
    --project NAME to add one project. Keeps current tokens, turned-off projects and history exclusions. Servers can
    keep running.
    """
    settings = load_command_settings(**flags)
    care = get_sqlite_care(settings)
    if settings.read_only:
        raise ReadOnly("This command writes, but the setting read_only is on.")
    file = file.expanduser().absolute()
    left = f"{care.folder} is intact: unchanged, or completely restored."
    with report_interruption(lambda: left), _handle_terminate():
        if project is not None:
            _refuse_to_replace(replace, safety_copy, with_access)
            _restore_project(care, file, project, as_json=as_json)
            return

        def ask(manifest: ArchiveManifest, safety: Path | None) -> bool:
            return safety is None or _confirm_restore(manifest, safety, care.folder, yes=yes)

        with show_progress("Restoring") as progress:
            outcome = restored_from(
                care,
                file,
                read_clock,
                progress,
                ask,
                replace=replace,
                safety=safety_copy.expanduser().absolute() if safety_copy else None,
                with_access=with_access,
            )
    if outcome is not None:
        _print_restore(outcome, care.folder, file, as_json=as_json, with_access=with_access)


def _read_stamp(file: Path) -> tuple[int, int] | None:
    """Return a value that differs between files, or None if the file does not exist."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _refuse_with_schedule(force: bool, with_damaged: bool) -> None:
    if force or with_damaged:
        option = "--force" if force else "--with-damaged"
        raise InvalidInput(
            f"{option} cannot be combined with --schedule, whose backups each have their own name.",
            hint=f"Omit {option}.",
            argument=option,
        )


def _refuse_to_replace(replace: bool, safety_copy: Path | None, with_access: bool) -> None:
    if replace or safety_copy is not None or with_access:
        option = "--replace" if replace else "--with-access" if with_access else "--safety-copy"
        raise InvalidInput(
            f"{option} cannot be combined with --project, which adds one project and replaces nothing.",
            hint=f"Omit {option}. To free the name first, run `everkept delete-project NAME`.",
            argument=option,
        )


def _restore_project(care: "SqliteCare", file: Path, project: str, *, as_json: bool) -> None:
    added = restore_project(care, file, project, read_clock)
    if as_json:
        print_json({"project": added.name, "off": added.is_off})
        return
    echo(f'Restored project "{project}" as "{added.name}".')
    if added.is_off:
        echo(f'It is off. To turn it on, run `everkept on --project "{added.name}"`.')


def _confirm_restore(manifest: ArchiveManifest, safety: Path, folder: Path, *, yes: bool) -> bool:
    if not yes and sys.stdin.isatty():
        echo(f"The backup of {_format_time(manifest)} contains {_format_contents(manifest)}.", err=True)
        echo(f"The existing data will be saved to {safety}.", err=True)
    question = f"Replace all data in {folder} with this backup?"
    return confirm(question, yes=yes, refusal="This replaces all stored data.")


def _print_backup(made: WrittenBackup) -> None:
    echo(f"Saved {made.file} ({format_size(made.size)}): {_format_contents(made.manifest)}. Verified.")
    echo(NOT_INCLUDED)
    for name in made.manifest.damaged:
        echo(f"{name} is damaged. The backup contains it unchanged.", err=True)


def _print_restore(outcome: RestoreOutcome, folder: Path, file: Path, *, as_json: bool, with_access: bool) -> None:
    manifest, safety = outcome.manifest, outcome.safety
    if as_json:
        told = {"created_at": manifest.created_at, "rows": _count_rows(manifest)}
        kept = {"safety_copy": str(safety) if safety else None, "left": list(outcome.left)}
        decided = {"off": list(outcome.off), "decisions_lost": outcome.decisions_lost}
        omitted = {"omitted": outcome.omitted._asdict()}
        print_json({"data_dir": str(folder), **told, **kept, **decided, **omitted})
        return
    echo(f"Restored {folder} to its state of {_format_time(manifest)}: {_format_contents(manifest)}.")
    if safety:
        command = f"everkept restore {shlex.quote(str(safety))} --replace"
        echo(f"The previous data is in {safety}. To go back to it, run `{command}`.")
        if not with_access:
            echo(DECISIONS_LOST if outcome.decisions_lost else DECISIONS_KEPT)
    if with_access:
        echo("Restored tokens, accounts and grants too. To list the tokens, run `everkept token list`.")
    elif any(outcome.omitted):
        tokens, accounts, grants = outcome.omitted
        counts = f"{format_count(tokens, 'token')}, {format_count(accounts, 'account')}"
        echo(f"Not restored: {counts} and {format_count(grants, 'grant')} of the backup.")
        echo("The private data of accounts that do not exist here is not restored either.")
        echo(f"If you trust the backup, run `everkept restore {shlex.quote(str(file))} --replace --with-access`.")
    if outcome.off:
        echo(f"Memory is off for: {', '.join(outcome.off)}.")
    for name in outcome.left:
        echo(f"{name} is in use. Delete it after closing the program that uses it.", err=True)


def _describe_backup(made: WrittenBackup) -> dict[str, Any]:
    manifest = made.manifest
    return {
        "file": str(made.file),
        "bytes": made.size,
        "created_at": manifest.created_at,
        "projects": manifest.project_names,
        "rows": _count_rows(manifest),
        "damaged": list(manifest.damaged),
    }


def _format_time(manifest: ArchiveManifest) -> str:
    return f"{manifest.created_at[:16].replace('T', ' ')} UTC"


def _format_contents(manifest: ArchiveManifest) -> str:
    rows = _count_rows(manifest)
    parts = [
        format_count(len(manifest.project_names), "project"),
        format_count(rows["records"], "record"),
        format_count(rows["links"], "link"),
        format_count(rows["changes"], "change"),
    ]
    return ", ".join(parts)


def _count_rows(manifest: ArchiveManifest) -> dict[str, int]:
    return {
        table: sum(copied.rows.get(table, 0) for copied in manifest.databases)
        for table in ("records", "links", "changes", "vectors")
    }


@contextmanager
def _handle_terminate() -> Generator[None, None, None]:
    """Handle a request to end like Ctrl-C, so that nothing half-done remains."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
