"""`everkept config` and `setup`: our settings, and the configuration of clients."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from everkept.cli.completion import complete_clients
from everkept.cli.next_steps import is_interactive, offer_connections, offer_import
from everkept.cli.options import ENGINE_SETTINGS, add_common_options, load_command_settings
from everkept.cli.remote_setup import build_remote_part, check_connection, describe_token
from everkept.cli.render import build_console, build_table
from everkept.cli.runner import echo, print_json
from everkept.clients.config_changes import AppliedChange, ConfigChange, apply_changes, plan_removal, plan_setup
from everkept.clients.config_files import (
    CLAUDE_CODE,
    CLIENTS,
    ClientEnvironment,
    ClientProgram,
    ConfigScope,
    format_backup_moment,
    get_client,
    remember_project,
)
from everkept.clients.entries import ConfigPart, ServerConfigPart, join_parts
from everkept.clients.hook_entries import HOOK_FORMATS, HooksConfigPart
from everkept.clients.own_command import (
    HOOK_VERB,
    SERVE_VERB,
    build_own_command,
    format_shell_line,
    is_in_cache,
    make_startable,
    read_launchers,
    remember_launcher,
)
from everkept.clients.remote_entries import RemoteConfigPart
from everkept.clients.survey import ClientInstallation, find_plugin, survey_clients
from everkept.core import disk
from everkept.errors import Conflict, InvalidInput, Refused
from everkept.settings import (
    AUTO,
    Settings,
    explain_settings,
    find_config_paths,
    list_warnings,
    read_client_environment,
    read_settings,
    read_upstream_environment,
)
from everkept.settings.config_file import build_template


@click.group(invoke_without_command=True)
@add_common_options
@click.pass_context
def config(context: click.Context, as_json: bool, **flags: Any) -> None:
    """Show settings and where each one comes from."""
    context.obj = flags
    if context.invoked_subcommand is not None:
        return
    rows = [{"setting": e.name, "value": e.value, "from": e.source} for e in explain_settings(flags)]
    warnings = list_warnings(read_settings(flags))
    if as_json:
        print_json({"settings": rows, "warnings": warnings})
        return
    build_console().print(build_table("settings", [row | {"value": _format_value(row["value"])} for row in rows]))
    for warning in warnings:
        echo(f"everkept: {warning}", err=True)


@config.command()
@add_common_options
@click.pass_context
def path(context: click.Context, as_json: bool, **flags: Any) -> None:
    """Print the path of the config file, whether it exists or not."""
    used, own = find_config_paths(_merge_flags(context, flags))
    file = used or _require_path(own)
    if as_json:
        print_json({"path": str(file), "exists": used is not None})
    else:
        echo(str(file))


@config.command()
@add_common_options
@click.option("--force", is_flag=True, help="Overwrite the existing file.")
@click.pass_context
def init(context: click.Context, as_json: bool, force: bool, **flags: Any) -> None:
    """Write a config file that lists every setting.

    Each setting has its default and is commented out.
    """
    used, own = find_config_paths(_merge_flags(context, flags))
    file = _require_path(own)
    _write_file(file, build_template(Settings), force=force)
    if as_json:
        print_json({"written": str(file)})
        return
    echo(f"Written: {file}")
    if used is not None and used != file:
        echo(f"{used} is no longer read. Copy the settings you need into the new file.", err=True)


def _require_path(own: Path | None) -> Path:
    if own is None:
        raise InvalidInput("Cannot find your home folder.", hint="Set HOME, or EVERKEPT_CONFIG.")
    return own


def _write_file(file: Path, text: str, *, force: bool) -> None:
    """Write a private file, because it may contain a password."""
    disk.make_folder(file.parent)
    try:
        (disk.replace if force else disk.create)(file, text.encode("utf-8"))
    except FileExistsError:
        raise Conflict(f"{file} already exists.", hint="To overwrite it, pass --force.", file=str(file)) from None


def _merge_flags(context: click.Context, flags: dict[str, Any]) -> dict[str, Any]:
    """Merge the options given before the subcommand and after it."""
    return {**context.obj, **{name: value for name, value in flags.items() if value is not None}}


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


COPIES_FOLDER = "setup-backups"  # in the data folder
_LOCAL_SOURCES = ("flag", "environment")  # sources that a client does not see by itself
# Settings of the engine that have no flag.
_UNWRITTEN_SETTINGS = (
    "deployment_mode",
    "database_password",
    "database_ca",
    "namespace",
    "database",
    "database_timeout",
)
_FORCE_HELP = "Write even if the client is not found or is already connected."
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command()
@add_common_options
@click.argument("client", required=False, metavar="[CLIENT]", shell_complete=complete_clients)
@click.option(
    "--scope",
    type=click.Choice(["user", "project"]),
    default="user",
    show_default=True,
    help="Edit the user's configuration or this project's.",
)
@click.option("--print", "is_printed", is_flag=True, help="Print the configuration and change nothing.")
@click.option("--undo", is_flag=True, help="Remove what setup wrote.")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@click.option("--force", is_flag=True, help=_FORCE_HELP)
@click.option("--hooks/--no-hooks", default=True, help="Also install hooks. Default: yes, if CLIENT runs hooks.")
@click.option("--toolsets", help="Toolsets to offer, separated by commas.")
@click.option("--read-only", is_flag=True, default=None, help="Offer only tools that change nothing.")
@click.option("--url", help="Connect to a team's server at this address instead.")
@click.option("--token-env", metavar="NAME", help="With --url: variable that has your token.")
@click.pass_context
def setup(
    context: click.Context,
    client: str | None,
    scope: ConfigScope,
    as_json: bool,
    is_printed: bool,
    undo: bool,
    yes: bool,
    force: bool,
    hooks: bool,
    url: str | None,
    token_env: str | None,
    is_offering: bool = True,
    **flags: Any,
) -> None:
    """Connect CLIENT to Everkept by editing its configuration.

    CLIENT is claude-code, claude-desktop, codex, copilot, cursor, gemini, opencode, vscode or windsurf. Without CLIENT,
    lists them, and offers each next step in a terminal. Shows the change, asks, and keeps a copy of the file. Each
    repository gets its own project unless you pass --project. With --url, checks that the server answers, and writes
    the name of the variable instead of the token.
    """
    settings = load_command_settings(**flags)
    places = build_client_environment(settings)
    if client is None:
        found = survey_clients(places)
        _print_clients(found, as_json=as_json)
        if not as_json and is_interactive():
            options = {"hooks": hooks, "yes": yes, "force": force, "scope": scope, "is_offering": False, **flags}
            offer_connections(found, lambda name: context.invoke(setup, client=name, **options))
            offer_import(flags, run=lambda: _import_history(context, flags))
        return
    chosen = get_client(client, places)
    if url is None or undo:
        if undo:
            parts = build_removal_parts(chosen, scope, settings, flags, hooks=hooks)
        elif token_env is not None:
            raise InvalidInput("--token-env applies only with --url.", hint="Pass the address with --url.")
        else:
            parts = _build_parts(chosen, scope, settings, flags, force=force, hooks=hooks)
            _warn_of_variables(flags)
    else:
        _refuse_local_options(flags)
        parts = [build_remote_part(chosen, chosen.get_file(scope), url, token_env, settings.data_dir, force=force)]
    if is_printed:
        _print_parts(chosen, parts, as_json=as_json)
    elif undo:
        _change_config(chosen, scope, parts, settings, places.project, undo=True, yes=yes, as_json=as_json)
    elif url is None and not force and (plugin := _find_plugin(chosen)) is not None:
        _print_plugin(chosen, plugin, as_json=as_json)
    else:
        if scope == "user" and not force:
            _require_installed(chosen)
        if url is None and not force:
            _require_permanent(Path(sys.prefix))
        if url is not None and not force:
            echo(check_connection(url.strip(), token_env, read_upstream_environment()), err=as_json)
        is_done = _change_config(chosen, scope, parts, settings, places.project, undo=False, yes=yes, as_json=as_json)
        if is_done and is_offering and url is None and not as_json:
            offer_import(flags, run=lambda: _import_history(context, flags))


def _import_history(context: click.Context, flags: dict[str, Any]) -> None:
    from everkept.cli.import_history import import_history

    context.invoke(import_history, files=(), sources=(), **{**flags, "as_json": False})


def build_client_environment(settings: Settings) -> ClientEnvironment:
    folder = settings.path or Path.cwd()
    return ClientEnvironment(
        read_client_environment(), Path.home(), sys.platform, folder.absolute(), _read_launchers(settings)
    )


def build_removal_parts(
    client: ClientProgram,
    scope: ConfigScope,
    settings: Settings,
    flags: dict[str, Any],
    *,
    hooks: bool = True,
    is_remote_included: bool = True,
) -> list[ConfigPart]:
    """Return our entries as `plan_removal` accepts them: of a server on this machine, or at an address."""
    parts = _build_parts(client, scope, settings, flags, force=False, hooks=hooks)
    return [*parts, RemoteConfigPart(client.get_file(scope), client)] if is_remote_included else parts


def _read_launchers(settings: Settings) -> frozenset[str]:
    known = read_launchers(settings.data_dir)
    return known | {settings.launcher} if settings.launcher else known


def _build_parts(
    client: ClientProgram, scope: ConfigScope, settings: Settings, flags: dict[str, Any], *, force: bool, hooks: bool
) -> list[ConfigPart]:
    program = build_own_command(settings.launcher, sys.executable)
    options = _build_options(settings, flags)
    follows_folder = client.workspace_variable and flags["project"] in (None, AUTO)
    path = ["--path", client.workspace_variable] if follows_folder else []
    served = ["--project", flags["project"] or AUTO, *path, *options]
    if flags["toolsets"]:
        served += ["--toolsets", flags["toolsets"]]
    if flags["read_only"]:
        served += ["--read-only"]
    if flags["project"] not in (None, AUTO):
        options = ["--project", flags["project"], *options]
    server = (*make_startable(program, sys.platform), SERVE_VERB, *served)
    _require_text(server)
    launchers = _read_launchers(settings)
    parts: list[ConfigPart] = [ServerConfigPart(client.get_file(scope), client, server, force, launchers)]
    hooks_file, form = client.get_hooks_file(scope), HOOK_FORMATS.get(client.name)
    if hooks and hooks_file is not None and form is not None:
        named = ["--client", form.client] if form.client else []

        def line(event: str) -> str:
            return format_shell_line([*program, HOOK_VERB, event, *named, *options], sys.platform)

        parts.append(HooksConfigPart(hooks_file, line, launchers, form))
    return join_parts(parts)


def _build_options(settings: Settings, flags: dict[str, Any]) -> list[str]:
    """Return the options that lead to the data of this command, if the client would use other data."""
    sources = {item.name: item.source for item in explain_settings(flags)}
    options: list[str] = []
    if sources["data_dir"].startswith(_LOCAL_SOURCES):
        options += ["--data-dir", str(settings.data_dir)]
    if sources["config"].startswith(_LOCAL_SOURCES) and settings.config is not None:
        options += ["--config", str(settings.config.absolute())]
    for name in ENGINE_SETTINGS:
        if sources[name].startswith(_LOCAL_SOURCES):
            options += [f"--{name.replace('_', '-')}", str(getattr(settings, name))]
    return options


def _refuse_local_options(flags: dict[str, Any]) -> None:
    for name in ("project", "toolsets", "read_only"):
        if flags[name]:
            raise InvalidInput(
                f"--{name.replace('_', '-')} applies only to a server on this machine.",
                hint="Omit it, or omit --url.",
                argument=name,
            )


def _warn_of_variables(flags: dict[str, Any]) -> None:
    """Warn about variables, because a client with another environment would use other data."""
    unseen = [
        item.source.removeprefix("environment ").replace("flag", "the password in")
        for item in explain_settings(flags)
        if item.name in _UNWRITTEN_SETTINGS and item.source.startswith(_LOCAL_SOURCES)
    ]
    if unseen:
        echo(
            f"everkept: a client may not see {', '.join(unseen)}. Put it into the config file. "
            "To create one, run `everkept config init`.",
            err=True,
        )


def _require_text(words: Sequence[str]) -> None:
    try:
        "".join(words).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{' '.join(words)!a} is not valid text.", hint="Move the program and its data to folders with valid names."
        ) from error


def _require_installed(client: ClientProgram) -> None:
    if not client.is_installed:
        raise Refused(
            f"{client.title} does not seem to be installed: {client.signs[0]} is missing, and it is not on the PATH.",
            hint="To write its configuration anyway, pass --force. To see it, pass --print.",
            client=client.name,
        )


def _require_permanent(prefix: Path) -> None:
    if is_in_cache(prefix):
        raise Refused(
            f"This program runs from {prefix}, which is in a cache that can be deleted. Nothing was changed.",
            hint="Install it with `uv tool install` or `pipx install`. To write its path anyway, pass --force.",
        )


def _find_plugin(client: ClientProgram) -> str | None:
    if client.name != CLAUDE_CODE or client.user_hooks_file is None:
        return None
    return find_plugin(client.user_hooks_file)


def _print_plugin(client: ClientProgram, plugin: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"client": client.name, "plugin": plugin, "changed": []})
        return
    echo(f"Nothing to change: {client.title} has the plugin {plugin}, which already connects Everkept.")
    echo("To write the configuration anyway, pass --force.")


def _print_parts(client: ClientProgram, parts: Sequence[ConfigPart], *, as_json: bool) -> None:
    if as_json:
        files = [{"file": str(part.file), "content": part.content} for part in parts]
        print_json({"client": client.name, "files": files})
        return
    for part in parts:
        echo(f"Into {part.file}:\n\n{part.content}")
    _print_next_steps(client, parts, [part.file for part in parts])


def _change_config(
    client: ClientProgram,
    scope: ConfigScope,
    parts: Sequence[ConfigPart],
    settings: Settings,
    project: Path,
    *,
    undo: bool,
    yes: bool,
    as_json: bool,
) -> bool:
    """Apply the needed changes, if the person agrees. Return whether anything was written."""
    # A copy next to a project's file would be committed along with it.
    copies = settings.data_dir / COPIES_FOLDER if scope == "project" else None
    changes = [plan_removal(part, copies) if undo else plan_setup(part) for part in parts]
    needed = [change for change in changes if change.is_needed]
    done: list[AppliedChange] = []
    if needed:
        print_changes(needed, err=as_json)
        if not _confirm(yes=yes):
            echo("Nothing was changed.", err=True)
            return False
        moment = format_backup_moment()
        if settings.launcher and not undo:
            remember_launcher(settings.data_dir, settings.launcher)
        if scope == "project" and not undo:
            remember_project(settings.data_dir, project)
        done = apply_changes(parts, moment, undo=undo, copies=copies)
    if as_json:
        print_json({"client": client.name, "scope": scope, "changed": [_build_row(each) for each in done]})
    elif not done:
        what = "Everkept is not in it" if undo else "already connected"
        echo(f"Nothing to change for {client.title}: {what}.")
    else:
        _print_result(client, scope, parts, done, undo=undo)
    return bool(done)


def print_changes(changes: Sequence[ConfigChange], *, err: bool) -> None:
    for change in changes:
        is_new = " (a new file)" if change.before is None else ""
        click.secho(f"{change.part.file}{is_new}", bold=True, err=err)
        for line in change.diff.split("\n"):
            click.secho(line, fg=_DIFF_COLOURS.get(line[:1]), err=err)
        echo(err=err)


def _confirm(*, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise Refused(
            "Nothing changed.", hint="Confirm in a terminal, pass --yes, or use --print to see the configuration."
        )
    return click.confirm("Write this change?", default=True, err=True)


def _print_result(
    client: ClientProgram, scope: ConfigScope, parts: Sequence[ConfigPart], done: Sequence[AppliedChange], *, undo: bool
) -> None:
    for each in done:
        echo(describe_change(each))
    if undo:
        echo(f"{client.title} no longer uses Everkept. Restart it to apply.")
        return
    where = ""
    if scope == "project":
        is_remote = any(isinstance(part, RemoteConfigPart) for part in parts)
        shared = "The file contains no token, so you can commit it."
        local = "The file names a program of this machine. Other people who use the file need their own."
        echo(shared if is_remote else local)
        where = " --scope project"
    _print_next_steps(client, parts, [each.file for each in done])
    echo(f"To remove it, run `everkept setup {client.name}{where} --undo`.")


def describe_change(change: AppliedChange) -> str:
    kept = f" (copy of the old file: {change.backup})" if change.backup else ""
    return f"{'Removed' if change.is_removal else 'Wrote'} {change.file}{kept}."


def _print_next_steps(client: ClientProgram, parts: Sequence[ConfigPart], files: Sequence[Path]) -> None:
    for part in parts:
        if isinstance(part, RemoteConfigPart):
            for sentence in describe_token(part):
                echo(sentence)
    echo(client.check)
    if client.hooks_check and client.user_hooks_file in files:
        echo(client.hooks_check)


def _build_row(done: AppliedChange) -> dict[str, str | None]:
    return {"file": str(done.file), "backup": str(done.backup) if done.backup else None}


def _print_clients(found: Sequence[ClientInstallation], *, as_json: bool) -> None:
    if as_json:
        print_json({"clients": [_build_client_row(name, found) for name in CLIENTS]})
        return
    rows = [
        {
            "client": each["client"],
            "installed": "yes" if each["installed"] else "no",
            "set_up": _format_state(name, found),
            "path": _shorten_home(each["file"]),
        }
        for name in CLIENTS
        for each in [_build_client_row(name, found)]
    ]
    build_console().print(build_table("clients", rows))
    echo("To connect one, run `everkept setup CLIENT`. It shows the change and asks first.")


def _shorten_home(path: str) -> str:
    home = f"{Path.home()}{os.sep}"
    return f"~{os.sep}{path.removeprefix(home)}" if path.startswith(home) else path


def _build_client_row(name: str, found: Sequence[ClientInstallation]) -> dict[str, Any]:
    of_client = [each for each in found if each.client == name]
    return {
        "client": name,
        "installed": of_client[0].is_installed,
        "set_up": any(each.is_set_up for each in of_client),
        "file": str(of_client[0].file),
        "found": [_build_found_row(each) for each in of_client if each.is_set_up or each.problem],
    }


def _build_found_row(each: ClientInstallation) -> dict[str, Any]:
    return {
        "kind": each.kind,
        "scope": each.scope,
        "file": str(each.file),
        "name": each.name or None,
        "command": list(each.words),
        "url": each.url,
        "program_is_there": each.is_program_available,
        "events": list(each.events),
        "data_dir": each.data_dir,
        "project": each.project,
        "problem": each.problem,
    }


def _format_state(name: str, found: Sequence[ClientInstallation]) -> str:
    kinds = {each.kind: each for each in found if each.client == name and each.is_set_up}
    problem = next((each.problem for each in found if each.client == name and each.problem), None)
    if problem:
        return "cannot be read"
    if "plugin" in kinds:
        return "by the plugin"
    if "remote" in kinds:
        return f"yes, {kinds['remote'].url}"
    if any(not each.is_program_available for each in kinds.values()):
        return "yes, but its program is missing"
    if "server" not in kinds:
        return "only the hooks" if kinds else "no"
    return "yes, with hooks" if "hooks" in kinds else "yes"
