"""`everkept config` and `setup`: our settings, and the configuration of the clients."""

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.table import Table
from rich.text import Text

from everkept.cli.options import OF_THE_ENGINE, common, settings_from
from everkept.cli.render import console, table_of
from everkept.cli.runner import print_json
from everkept.clients.changes import Change, Done, made, planned, undone
from everkept.clients.config_files import CLIENTS, Client, Places, Scope, client_named
from everkept.clients.entries import (
    HooksPart,
    Part,
    ServerPart,
    Surveyed,
    installed_plugin,
    surveyed,
)
from everkept.clients.programs import (
    HOOK,
    SERVE,
    known_launchers,
    own_program,
    remember_launcher,
    shell_line,
    startable,
)
from everkept.core import disk
from everkept.errors import Conflict, InvalidInput, Refused
from everkept.settings import (
    AUTO,
    Settings,
    client_environment,
    config_paths,
    explained,
    load,
    warnings_of,
)
from everkept.settings.config_file import template


@click.group(invoke_without_command=True)
@common
@click.pass_context
def config(context: click.Context, as_json: bool, **flags: Any) -> None:
    """Show each setting, its value and where that comes from."""
    context.obj = flags
    if context.invoked_subcommand is not None:
        return
    rows = [{"setting": e.name, "value": e.value, "from": e.source} for e in explained(flags)]
    warnings = warnings_of(load(flags))
    if as_json:
        print_json({"settings": rows, "warnings": warnings})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("setting", no_wrap=True)
    for column in ("value", "from"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_plain(row[column])) for column in ("setting", "value", "from")))
    console().print(table)
    for warning in warnings:
        click.echo(f"everkept: {warning}", err=True)


@config.command()
@common
@click.pass_context
def path(context: click.Context, as_json: bool, **flags: Any) -> None:
    """Print where the config file is, or where it would be."""
    used, own = config_paths(_merged(context, flags))
    file = used or _known(own)
    if as_json:
        print_json({"path": str(file), "exists": used is not None})
    else:
        click.echo(str(file))


@config.command()
@common
@click.option("--force", is_flag=True, help="Overwrite the file that is there.")
@click.pass_context
def init(context: click.Context, as_json: bool, force: bool, **flags: Any) -> None:
    """Write a config file with every setting and its default, commented out."""
    used, own = config_paths(_merged(context, flags))
    file = _known(own)
    _write(file, template(Settings), force=force)
    if as_json:
        print_json({"written": str(file)})
        return
    click.echo(f"Written: {file}")
    if used is not None and used != file:
        click.echo(f"{used} is not read any more: take over what it says.", err=True)


def _known(own: Path | None) -> Path:
    if own is None:
        raise InvalidInput("No home folder is known.", hint="Set HOME, or EVERKEPT_CONFIG.")
    return own


def _write(file: Path, text: str, *, force: bool) -> None:
    """Write it for its owner only: the file may come to hold a password."""
    disk.make_folder(file.parent)
    try:
        (disk.replace if force else disk.create)(file, text.encode("utf-8"))
    except FileExistsError:
        raise Conflict(
            f"{file} is there already.", hint="--force overwrites it.", file=str(file)
        ) from None


def _merged(context: click.Context, flags: dict[str, Any]) -> dict[str, Any]:
    """Options count wherever they stand: before the subcommand or after it."""
    return {**context.obj, **{name: value for name, value in flags.items() if value is not None}}


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


COPIES = "setup-backups"  # in the data folder
_HERE = ("flag", "environment")  # what a client would not see by itself
# Of the engine, and without a flag.
_NOT_WRITTEN = (
    "deployment_mode",
    "database_password",
    "database_ca",
    "namespace",
    "database",
    "database_timeout",
)
_FORCE = "Although the client seems not to be here, has the plugin, or another `everkept`."
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command()
@common
@click.argument("client", required=False, metavar="[CLIENT]")
@click.option(
    "--scope",
    type=click.Choice(["user", "project"]),
    default="user",
    show_default=True,
    help="In the user's configuration, or in that of the project in this folder.",
)
@click.option("--print", "is_printed", is_flag=True, help="Print what to paste, change nothing.")
@click.option("--undo", is_flag=True, help="Take out again what was written.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help=_FORCE)
@click.option("--hooks/--no-hooks", default=True, help="Claude Code: with its hooks.")
@click.option("--toolsets", help="Families of tools that the client is offered.")
@click.option("--read-only", is_flag=True, default=None, help="Offer only tools that read.")
def setup(
    client: str | None,
    scope: Scope,
    as_json: bool,
    is_printed: bool,
    undo: bool,
    yes: bool,
    force: bool,
    hooks: bool,
    **flags: Any,
) -> None:
    """Write the configuration of a CLIENT so that it starts Everkept.

    The clients are claude-code, claude-desktop, codex, cursor, gemini, vscode and windsurf;
    without one they are listed. The change is shown, and a copy of the file is kept beside it;
    that of a project's file, in the data folder. A project is chosen by the client's working
    folder unless --project names one.
    """
    settings = settings_from(**flags)
    folder = settings.path or Path.cwd()
    places = Places(
        client_environment(), Path.home(), sys.platform, folder.absolute(), _launchers(settings)
    )
    if client is None:
        _list(surveyed(places), as_json=as_json)
        return
    chosen = client_named(client, places)
    parts = _parts(chosen, scope, settings, flags, force=force, hooks=hooks)
    if not undo:
        _tell_of_variables(flags)
    if is_printed:
        _print(chosen, parts, as_json=as_json)
    elif undo:
        _change(chosen, scope, parts, settings, undo=True, yes=yes, as_json=as_json)
    elif not force and (plugin := _plugin(chosen)) is not None:
        _tell_of_plugin(chosen, plugin, as_json=as_json)
    else:
        if scope == "user" and not force:
            _require_installed(chosen)
        _change(chosen, scope, parts, settings, undo=False, yes=yes, as_json=as_json)


def _launchers(settings: Settings) -> frozenset[str]:
    known = known_launchers(settings.data_dir)
    return known | {settings.launcher} if settings.launcher else known


def _parts(
    client: Client,
    scope: Scope,
    settings: Settings,
    flags: dict[str, Any],
    *,
    force: bool,
    hooks: bool,
) -> list[Part]:
    program = own_program(settings.launcher, sys.argv[0], sys.executable)
    options = _options(settings, flags)
    served = ["--project", flags["project"] or AUTO, *options]
    if flags["toolsets"]:
        served += ["--toolsets", flags["toolsets"]]
    if flags["read_only"]:
        served += ["--read-only"]
    if flags["project"] not in (None, AUTO):
        options = ["--project", flags["project"], *options]
    server = (*startable(program, sys.platform), SERVE, *served)
    _require_text(server)
    launchers = _launchers(settings)
    parts: list[Part] = [ServerPart(client.file(scope), client, server, force, launchers)]
    hooks_file = client.hooks_file(scope)
    if hooks and hooks_file is not None:

        def line(event: str) -> str:
            return shell_line([*program, HOOK, event, *options], sys.platform)

        parts.append(HooksPart(hooks_file, line, launchers))
    return parts


def _options(settings: Settings, flags: dict[str, Any]) -> list[str]:
    """What leads to the data that this command sees, where the client would look elsewhere."""
    sources = {item.name: item.source for item in explained(flags)}
    options: list[str] = []
    if sources["data_dir"].startswith(_HERE):
        options += ["--data-dir", str(settings.data_dir)]
    if sources["config"].startswith(_HERE) and settings.config is not None:
        options += ["--config", str(settings.config.absolute())]
    for name in OF_THE_ENGINE:
        if sources[name].startswith(_HERE):
            options += [f"--{name.replace('_', '-')}", str(getattr(settings, name))]
    return options


def _tell_of_variables(flags: dict[str, Any]) -> None:
    """A client that is started elsewhere does not see them, and would look into other data."""
    unseen = [
        item.source.removeprefix("environment ")
        for item in explained(flags)
        if item.name in _NOT_WRITTEN and item.source.startswith("environment")
    ]
    if unseen:
        click.echo(
            f"everkept: a client may not see {', '.join(unseen)}: write that into the config "
            "file, which `everkept config init` makes.",
            err=True,
        )


def _require_text(words: Sequence[str]) -> None:
    try:
        "".join(words).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{' '.join(words)!a} cannot be written into a file of text.",
            hint="Move the program and its data to folders whose names are text.",
        ) from error


def _require_installed(client: Client) -> None:
    if not client.is_installed:
        raise Refused(
            f"{client.title} seems not to be installed: there is no {client.signs[0]}.",
            hint="--force writes its configuration all the same; --print shows what to paste.",
            client=client.name,
        )


def _plugin(client: Client) -> str | None:
    return installed_plugin(client.user_hooks_file) if client.user_hooks_file else None


def _tell_of_plugin(client: Client, plugin: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"client": client.name, "plugin": plugin, "changed": []})
        return
    click.echo(f"Nothing to change: {client.title} has the plugin {plugin}, which brings it all.")
    click.echo("--force writes the configuration beside it.")


def _print(client: Client, parts: Sequence[Part], *, as_json: bool) -> None:
    if as_json:
        files = [{"file": str(part.file), "content": part.content} for part in parts]
        print_json({"client": client.name, "files": files})
        return
    for part in parts:
        click.echo(f"Into {part.file}:\n\n{part.content}")
    click.echo(client.check)


def _change(
    client: Client,
    scope: Scope,
    parts: Sequence[Part],
    settings: Settings,
    *,
    undo: bool,
    yes: bool,
    as_json: bool,
) -> None:
    # Beside a project's file a copy would be committed along with it, and what it holds.
    copies = settings.data_dir / COPIES if scope == "project" else None
    changes = [undone(part, copies) if undo else planned(part) for part in parts]
    needed = [change for change in changes if change.is_needed]
    done: list[Done] = []
    if needed:
        _show(needed, err=as_json)
        if not _agreed(yes=yes):
            click.echo("Nothing was changed.", err=True)
            return
        moment = datetime.now().strftime("%Y%m%d-%H%M%S")
        if settings.launcher and not undo:
            remember_launcher(settings.data_dir, settings.launcher)
        done = made(parts, moment, undo=undo, copies=copies)
    if as_json:
        print_json(
            {"client": client.name, "scope": scope, "changed": [_row(each) for each in done]}
        )
    elif not done:
        what = "there is nothing of ours" if undo else "it is set up"
        click.echo(f"Nothing to change for {client.title}: {what}.")
    else:
        _tell(client, scope, done, undo=undo)


def _show(changes: Sequence[Change], *, err: bool) -> None:
    for change in changes:
        is_new = " (a new file)" if change.before is None else ""
        click.secho(f"{change.part.file}{is_new}", bold=True, err=err)
        for line in change.diff.split("\n"):
            click.secho(line, fg=_COLOURS.get(line[:1]), err=err)
        click.echo(err=err)


def _agreed(*, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError(
            "Nothing was changed: say --yes where nobody can be asked, or --print to see what "
            "to paste."
        )
    return click.confirm("Write this?", default=True, err=True)


def _tell(client: Client, scope: Scope, done: Sequence[Done], *, undo: bool) -> None:
    for each in done:
        kept = f"; as it was: {each.backup}" if each.backup else ""
        click.echo(f"Written: {each.file}{kept}")
    if undo:
        click.echo(f"{client.title} does not start Everkept any more, from its next start on.")
        return
    where = ""
    if scope == "project":
        click.echo("It names a program of this machine: whoever shares the file needs their own.")
        where = " --scope project"
    click.echo(client.check)
    click.echo(f"`everkept setup {client.name}{where} --undo` takes it back.")


def _row(done: Done) -> dict[str, str | None]:
    return {"file": str(done.file), "backup": str(done.backup) if done.backup else None}


def _list(found: Sequence[Surveyed], *, as_json: bool) -> None:
    if as_json:
        print_json({"clients": [_client_row(name, found) for name in CLIENTS]})
        return
    rows = [
        {
            "client": each["client"],
            "installed": "yes" if each["installed"] else "no",
            "set_up": _in_words(name, found),
            "path": each["file"],
        }
        for name in CLIENTS
        for each in [_client_row(name, found)]
    ]
    console().print(table_of("clients", rows))
    click.echo("`everkept setup CLIENT` shows the change, and asks before it writes.")


def _client_row(name: str, found: Sequence[Surveyed]) -> dict[str, Any]:
    of_client = [each for each in found if each.client == name]
    return {
        "client": name,
        "installed": of_client[0].is_installed,
        "set_up": any(each.is_set_up for each in of_client),
        "file": str(of_client[0].file),
        "found": [_found_row(each) for each in of_client if each.is_set_up or each.problem],
    }


def _found_row(each: Surveyed) -> dict[str, Any]:
    return {
        "kind": each.kind,
        "scope": each.scope,
        "file": str(each.file),
        "name": each.name or None,
        "command": list(each.words),
        "program_is_there": each.program_is_there,
        "events": list(each.events),
        "data_dir": each.data_dir,
        "project": each.project,
        "problem": each.problem,
    }


def _in_words(name: str, found: Sequence[Surveyed]) -> str:
    kinds = {each.kind: each for each in found if each.client == name and each.is_set_up}
    problem = next((each.problem for each in found if each.client == name and each.problem), None)
    if problem:
        return "cannot be read"
    if "plugin" in kinds:
        return "by the plugin"
    if any(not each.program_is_there for each in kinds.values()):
        return "yes, but its program is gone"
    if "server" not in kinds:
        return "only the hooks" if kinds else "no"
    return "yes, with hooks" if "hooks" in kinds else "yes"
