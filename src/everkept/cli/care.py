"""`everkept doctor`, `backup` and `restore`: what is wrong here, and everything in one file."""

import shlex
import signal
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from everkept.care.archive import ArchiveManifest
from everkept.care.backup import RestoreOutcome, WrittenBackup, back_up, restore_project
from everkept.care.backup import restore as restored_from
from everkept.care.check_context import FIX_COMMAND, CheckContext, DoctorFinding, get_sqlite_care
from everkept.care.doctor import DoctorReport, diagnose
from everkept.cli.options import add_common_options, load_command_settings
from everkept.cli.render import build_console
from everkept.cli.runner import print_json, report_interruption, show_progress
from everkept.core.locks import FileLock
from everkept.core.text import clip_text, format_count
from everkept.core.times import parse_time, read_clock
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
MAX_JOB_SECONDS = 600.0  # seconds after which a job should have been worked off
MAX_OLD_LEDGERS = 50


def check_hooks(context: CheckContext) -> Iterator[DoctorFinding]:
    settings = context.settings
    if not settings.hooks:
        yield DoctorFinding(HOOKS_CHECK, "ok", "They are switched off (hooks).")
        return
    folder = get_hooks_folder(settings)
    if not context.is_on_disk or not folder.is_dir():
        yield DoctorFinding(HOOKS_CHECK, "ok", "None has left anything yet.")
        return
    found = [*_check_faults(context, folder), *_check_jobs(context, folder), *_check_ledgers(context, folder)]
    yield from found or [DoctorFinding(HOOKS_CHECK, "ok", "Nothing failed, and nothing waits.")]


def _check_faults(context: CheckContext, folder: Path) -> Iterator[DoctorFinding]:
    lately = [
        fault for fault in read_recent_faults(folder) if context.clock() - _parse_time(fault.at) < WEEK_MICROSECONDS
    ]
    if lately:
        last = lately[0]
        what = (
            f"{format_count(len(lately), 'fault')} in the last week; the newest at {last.at[:16]}, "
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
        what = f"{format_count(len(strange), 'file')} in {strange[0].parent} can be no job: {shown}."
        yield DoctorFinding(HOOKS_CHECK, "advice", what, FIX_COMMAND, lambda: _remove_files(strange))
    unread = {path.name for path in strange}
    waiting = [name for name in jobs.list_older_than(MAX_JOB_SECONDS) if name not in unread]
    if waiting and not _is_worker_running(context):
        what = f"{format_count(len(waiting), 'session')} wait to be taken in, and nobody is at it."
        yield DoctorFinding(HOOKS_CHECK, "advice", what, FIX_COMMAND, lambda: _wake_worker(context))
    failed = jobs.list_failed()
    if failed:
        why = clip_text(str(failed[-1].get("reason", "")), 120)
        what = f"{format_count(len(failed), 'session')} could not be taken in ({why})."
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
    return "started the one that takes them in" if wake_worker(context.settings) else "one is at it now"


def _remove_files(files: Sequence[Path]) -> str:
    for path in files:
        path.unlink(missing_ok=True)
    return f"removed {format_count(len(files), 'file')}"


def _retry_failed(context: CheckContext, jobs: JobQueue) -> str:
    """Whatever kept them from being taken in may be gone."""
    again, removed = jobs.retry_failed()
    wake_worker(context.settings)
    did = [f"gave {format_count(again, 'session')} another try"] if again else []
    did += [f"removed {format_count(removed, 'file')} that no job can be read from"] if removed else []
    return " and ".join(did) or "nothing was left to do"


def _check_ledgers(context: CheckContext, folder: Path) -> Iterator[DoctorFinding]:
    before = context.clock() / 1e6 - RETENTION_DAYS * 86_400
    old = [path for path in (folder / SESSIONS_FOLDER).glob("*.txt") if path.stat().st_mtime < before]
    if len(old) > MAX_OLD_LEDGERS:
        what = f"{format_count(len(old), 'file')} of sessions of long ago are kept."
        mend = lambda: f"removed {prune_sessions(folder, context.clock())}"  # noqa: E731
        yield DoctorFinding(HOOKS_CHECK, "advice", what, FIX_COMMAND, mend)


SEVERITY_SIGNS = {"ok": ("ok     ", "green"), "advice": ("advice ", "yellow"), "problem": ("problem", "red")}


@click.command()
@add_common_options
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
            "All projects are looked at together.", hint="Leave --project out.", argument="--project", value=project
        )
    context = _build_context(flags, full=full)
    if fix and context.settings.read_only:
        raise ReadOnly("--fix writes, and only reading is allowed here.")
    diagnosis = diagnose(context, [(HOOKS_CHECK, check_hooks)], fix=fix)
    print_json(_describe_report(diagnosis)) if as_json else _print_report(diagnosis, fix=fix)
    sys.exit(0 if diagnosis.is_healthy else 1)


def _build_context(flags: Mapping[str, Any], *, full: bool) -> CheckContext:
    """Settings that cannot be used are a finding, and the rest is looked at without them."""
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
        sign, colour = ("mended ", "green") if each.is_done else ("failed ", "red")
        out.print(Text.assemble((sign, colour), f" {each.check}: {each.what} → {each.did}"))
    for finding in diagnosis.findings:
        sign, colour = SEVERITY_SIGNS[finding.severity]
        out.print(Text.assemble((sign, colour), f" {finding.check}: {finding.what}"))
        if finding.command:
            out.print(Text(f"         {finding.command}", style="dim"))
    out.print(_format_summary(diagnosis.findings, fix=fix))


def _format_summary(findings: list[DoctorFinding], *, fix: bool) -> str:
    problems = [finding for finding in findings if finding.severity == "problem"]
    mendable = [finding for finding in findings if finding.mend is not None]
    said = f"{format_count(len(problems), 'problem')}." if problems else "No problem."
    if mendable and not fix:
        said += f" --fix mends {len(mendable)} of these findings."
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
        "mended": [
            {"check": each.check, "what": each.what, "did": each.did, "done": each.is_done} for each in diagnosis.mended
        ],
    }


NOT_INCLUDED = "Not in it: the files of memory banks, the configuration, and what hooks noted."

DECISIONS_KEPT = (
    "Tokens are those of now, with accounts and grants; what is switched off or left out of past "
    "conversations stays so."
)
DECISIONS_LOST = (
    "Which tokens were revoked, and what was switched off or left out since, could not be read: "
    "see `everkept token list` and `everkept status`."
)


@click.command()
@add_common_options
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace FILE where it exists.")
@click.option("--with-damaged", is_flag=True, help="Take a damaged database in as it is.")
def backup(as_json: bool, project: str | None, file: Path, force: bool, with_damaged: bool, **flags: Any) -> None:
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
    care, file = get_sqlite_care(load_command_settings(**flags)), file.expanduser().absolute()
    before = _read_stamp(file)

    def left() -> str:
        if (after := _read_stamp(file)) != before:
            return f"{file} is written, and whole."
        return f"{file} {'was not written' if after is None else 'is as it was'}."

    with report_interruption(left), _handle_terminate(), show_progress("Backing up") as progress:
        made = back_up(care, file, read_clock, progress, force=force, with_damaged=with_damaged)
    print_json(_describe_backup(made)) if as_json else _print_backup(made)


@click.command()
@add_common_options
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Put it in place of the data that is there.")
@click.option(
    "--safety-copy",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Where to keep what is there. Default: beside the data folder.",
)
@click.option("--with-access", is_flag=True, help="Restore the tokens, accounts and grants of the backup too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
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
    """Bring back what `everkept backup` wrote into FILE.

    FILE is checked before anything is changed. Where there is data already, --replace is needed,
    and a backup of that is made first; tokens, and what is switched off or left out of past
    conversations, stay as they are. Servers may go on running. With --project NAME one project is
    added to what is there, under a name that is free.
    """
    settings = load_command_settings(**flags)
    care = get_sqlite_care(settings)
    if settings.read_only:
        raise ReadOnly("This command writes, and only reading is allowed here.")
    file = file.expanduser().absolute()
    left = f"{care.folder} is whole: as it was, unless all was done already."
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
    """Another one for another file; None where there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _refuse_to_replace(replace: bool, safety_copy: Path | None, with_access: bool) -> None:
    if replace or safety_copy is not None or with_access:
        option = "--replace" if replace else "--with-access" if with_access else "--safety-copy"
        raise InvalidInput(
            f"{option} has no place beside --project: one project is added, and nothing replaced.",
            hint=f"Leave {option} out; `everkept delete-project NAME` before it frees the name.",
            argument=option,
        )


def _restore_project(care: "SqliteCare", file: Path, project: str, *, as_json: bool) -> None:
    added = restore_project(care, file, project, read_clock)
    if as_json:
        print_json({"project": added.name, "off": added.is_off})
        return
    click.echo(f'Project "{project}" is back, as "{added.name}".')
    if added.is_off:
        click.echo(f'It is switched off; `everkept on --project "{added.name}"` ends that.')


def _confirm_restore(manifest: ArchiveManifest, safety: Path, folder: Path, *, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError("This replaces what is stored: say --yes where nobody can be asked.")
    click.echo(f"The backup of {_format_time(manifest)} holds {_format_contents(manifest)}.", err=True)
    click.echo(f"What is there now goes into {safety}.", err=True)
    return click.confirm(f"Replace everything in {folder}?", err=True)


def _print_backup(made: WrittenBackup) -> None:
    size = f"{made.size / 1_000_000:,.1f} MB"
    click.echo(f"Wrote {made.file} ({size}): {_format_contents(made.manifest)}. It was read again.")
    click.echo(NOT_INCLUDED)
    for name in made.manifest.damaged:
        click.echo(f"{name} is damaged, and in it as it is.", err=True)


def _print_restore(outcome: RestoreOutcome, folder: Path, file: Path, *, as_json: bool, with_access: bool) -> None:
    manifest, safety = outcome.manifest, outcome.safety
    if as_json:
        told = {"created_at": manifest.created_at, "rows": _count_rows(manifest)}
        kept = {"safety_copy": str(safety) if safety else None, "left": list(outcome.left)}
        decided = {"off": list(outcome.off), "decisions_lost": outcome.decisions_lost}
        omitted = {"omitted": outcome.omitted._asdict()}
        print_json({"data_dir": str(folder), **told, **kept, **decided, **omitted})
        return
    click.echo(f"{folder} is as it was at {_format_time(manifest)}: {_format_contents(manifest)}.")
    if safety:
        click.echo(f"What was there before is in {safety}; `everkept restore` brings it back.")
        if not with_access:
            click.echo(DECISIONS_LOST if outcome.decisions_lost else DECISIONS_KEPT)
    if with_access:
        click.echo("Tokens, accounts and grants are those of the backup. To list them, run `everkept token list`.")
    elif any(outcome.omitted):
        tokens, accounts = outcome.omitted
        counts = f"{format_count(tokens, 'token')} and {format_count(accounts, 'account')}"
        click.echo(f"Not restored: {counts} of the backup, with the grants and private data of these accounts.")
        click.echo(f"If you trust the backup, run `everkept restore {shlex.quote(str(file))} --replace --with-access`.")
    if outcome.off:
        click.echo(f"Switched off: {', '.join(outcome.off)}.")
    for name in outcome.left:
        click.echo(f"{name} is in use, and can be removed when its window is closed.", err=True)


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
    """A request to end is obeyed as Ctrl-C is: nothing half-made is left."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
