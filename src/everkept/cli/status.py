"""`everkept status`: what is stored and where, its growth, what is pending, and faults."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from everkept.app.app import App
from everkept.app.engines import StrandedWrites, find_standby, find_stranded_writes
from everkept.app.gateway_file import GatewayOverview, list_own_names, read_overview
from everkept.app.overview import read_team
from everkept.care.database_server import list_kept_copies
from everkept.cli.backup_schedule import describe_backups, format_backups
from everkept.cli.flags import CONNECTION_LOGS, silence_warnings
from everkept.cli.options import add_common_options
from everkept.cli.render import TableView, build_console, draw_bars, print_pairs
from everkept.cli.runner import print_json, read_session, require_project, run_with_app
from everkept.core.library import Condition
from everkept.core.mcp import ToolUsage
from everkept.core.sessions import Session
from everkept.core.text import clip_text, format_count, format_size
from everkept.core.times import format_ago, format_iso, parse_time, read_clock
from everkept.errors import Refused
from everkept.families.graph.model import TrashedView
from everkept.hooks.session_end import JobQueue
from everkept.hooks.workspace import get_hooks_folder, read_recent_faults
from everkept.jobs.memory_access import MemoryPair
from everkept.settings import get_title, list_limits, read_settings
from everkept.tools.schema import to_json

Row = Mapping[str, Any]

CHART_LINES = 4  # lines of a chart
MAX_TRASHED = 5  # names of deleted projects
MAX_PROJECTS = 15  # rows; the rest is summed up
PROJECT_NUMBERS = ("memories", "entities", "conversations", "size")
CALL_NUMBERS = ("calls", "errors", "mean ms", "longest ms", "last called")
MAX_TOOLS = 15  # of the gateway
MAX_SHOWN_CHARACTERS = 72  # of the memories that were recalled most
FOLDER_NOTES = {"standby/": " (replica and journal)"}


@click.command()
@add_common_options
@click.option("--gateway-config", metavar="FILE", help="Gateway config file, or `none`.")
def status(as_json: bool, **flags: Any) -> None:
    """Show what is stored, how it grows, and pending writes."""

    async def work(app: App) -> dict[str, Any]:
        await require_project(app, flags)
        session = await read_session(app)
        whole: dict[str, Any] = to_json(await app.overview_reader.read_overview())
        hooks = {"hooks": _describe_hooks(app), "data_dir": str(app.settings.data_dir)}
        if app.settings.engine == "sqlite":
            hooks["backups"] = describe_backups(app.settings)
        seen = await read_overview(app.settings.gateway_config, app.library, list_own_names(read_settings(flags)))
        gateway = {"gateway": _describe_gateway(seen)} if seen else {}
        left = [to_json(each) for each in await find_stranded_writes(app.settings)]
        beside: dict[str, Any] = {"left_elsewhere": left} if left else {}
        if others := await read_team(app.accounts, app.guarded, app.settings.data_dir):
            beside["team"] = to_json(others) | {"limits": list_limits(app.settings)}
        trash = [to_json(TrashedView.from_trashed(each)) for each in await app.project_changes.list_trash()]
        beside |= {"trash": trash} if trash else {}
        return {**await _read_project_status(app, session), **whole, **gateway, **beside, **hooks}

    with silence_warnings(read_settings(flags), CONNECTION_LOGS):
        told = run_with_app(work, makes_nothing=True, **flags)
    if as_json:
        print_json(told)
    else:
        _print_status(build_console(), told)


async def _read_project_status(app: App, session: Session) -> dict[str, Any]:
    """Return the status of the command's project; little if it is off or archived."""
    project = await app.memory_access.find_project(session)
    name = {"project": project.name if project else "(created at the first write)"}
    try:
        told = (await app.call(session, "get_memory_status", {})).facts
        similar = await app.memory_access.find_similar(session)
    except Refused as error:
        off = {"off_since": format_iso(project.off_since)} if project and project.off_since else {}
        connection = {"connection": _describe_connection(app.library.condition)}
        return {**name, **_describe_replica(app), **connection, **off, "problem": str(error)}
    pairs = {"similar": [_describe_pair(pair) for pair in similar]} if similar else {}
    return {**name, **_describe_replica(app), **told, **pairs}


def _describe_replica(app: App) -> dict[str, Any]:
    """Describe the replica of a database that may be unreachable."""
    standby = find_standby(app.settings)
    kept = [str(path) for path in list_kept_copies(standby)] if standby else []
    never = {"never_reached": True} if app.library.condition.never_reached else {}
    return {**({"copies_kept": kept} if kept else {}), **never}


def _describe_connection(condition: Condition) -> dict[str, Any]:
    """Describe the connection in the form of the memory status, which is not available here."""
    is_away = condition.since is not None and not condition.is_catching_up
    told = {
        "status": condition.status,
        "engine": condition.engine,
        "mode": condition.mode,
        "version": condition.version,
        "path": condition.place,
        "since": format_iso(condition.since or 0) if is_away else None,
        "reason": condition.reason,
        "waiting_writes": condition.waiting,
        "writes_set_aside": condition.set_aside,
    }
    return {name: value for name, value in told.items() if value}


def _describe_hooks(app: App) -> dict[str, Any]:
    folder = get_hooks_folder(app.settings)
    jobs = JobQueue(folder)
    faults = read_recent_faults(folder, 1)
    return {
        "enabled": app.settings.hooks,
        "waiting": len(jobs.list_names()),
        "failed": len(jobs.list_failed()),
        **({"last_fault": faults[0]._asdict()} if faults else {}),
    }


def _describe_gateway(seen: GatewayOverview) -> dict[str, Any]:
    return {
        "config": str(seen.config) if seen.config else None,
        **({"fault": seen.fault} if seen.fault else {}),
        "upstreams": to_json(seen.upstreams),
        "tools": [_describe_usage(usage) for usage in seen.tools],
        **({"earlier": [_describe_usage(usage) for usage in seen.earlier]} if seen.earlier else {}),
    }


def _describe_usage(usage: ToolUsage) -> dict[str, Any]:
    return {
        "tool": usage.tool,
        "calls": usage.calls,
        "errors": usage.errors,
        "mean_ms": round(usage.mean_ms, 1),
        "longest_ms": round(usage.longest_ms, 1),
        "last_at": format_iso(usage.last_at) if usage.calls else None,
    }


def _describe_pair(pair: MemoryPair) -> dict[str, Any]:
    return {
        "score": round(pair.score, 3),
        "first": {"id": pair.first.id, "content": clip_text(pair.first.text, 200)},
        "second": {"id": pair.second.id, "content": clip_text(pair.second.text, 200)},
    }


def _print_status(out: Console, told: Row) -> None:
    _print_head(out, told)
    _print_projects(out, told)
    _print_growth(out, told["weeks"])
    if told["recalled"]:
        _print_heading(out, "Recalled most")
        for each in cast(Sequence[Row], told["recalled"]):
            said = clip_text(str(each["content"]), MAX_SHOWN_CHARACTERS)
            out.print(_assemble_text(f"{each['times']:>5,}x  {said}  ", (f"({each['project']})", "dim")))
    if told.get("similar"):
        _print_heading(out, "Similar memories")
        print_pairs(out, told["similar"])
    if told.get("gateway"):
        _print_gateway(out, told["gateway"])
    _print_state(out, told)


def _print_head(out: Console, told: Row) -> None:
    totals: Row = told["totals"]
    kept = ", ".join(
        (
            format_count(totals["memories"], "memory", "memories"),
            format_count(totals["entities"], "entity", "entities"),
            format_count(totals["conversations"], "conversation"),
        )
    )
    places = format_count(totals["projects"], "project") + (" and elsewhere" * bool(told["elsewhere"]))
    out.print(_assemble_text((kept, "bold"), f" in {places}{_format_disk_space(told)}."))
    types = [f"{name} {count:,}" for name, count in told["types"].items()]
    if totals["automatic"]:
        types.append(_format_automatic(told))
    if types:
        out.print(_assemble_text(("Memories: " + ", ".join(types), "dim")))
    if "problem" in told:
        since = f" (since {format_ago(parse_time(told['off_since']), read_clock())})" if "off_since" in told else ""
        out.print(_assemble_text((f"{told['problem']}{since}", "yellow")))


def _format_disk_space(told: Row) -> str:
    """Format the size of the data: of a server, or of the replica while that is unreachable."""
    totals: Row = told["totals"]
    taken: int = totals["size_bytes"]
    if "here_bytes" not in totals:
        return f", {format_size(taken)} on disk"
    where = "in the replica" if told["connection"].get("since") else "in the database"
    return f", {format_size(taken)} {where}" if taken else ""


def _format_automatic(told: Row) -> str:
    rows = cast(Sequence[Row], told["projects"])
    here = [row for row in rows if row["name"] == told["project"]]
    own = "".join(f", {row.get('automatic') or 0:,} in {row['name']}" for row in here)
    total: int = told["totals"]["automatic"]
    return f"{total:,} of them automatic{own} (`everkept list --automatic`)"


def _print_projects(out: Console, told: Row) -> None:
    here = told["project"]
    rows = sorted(cast(Sequence[Row], told["projects"]), key=lambda row: row["name"] != here)
    user: Row = told["user"]
    lines = [_build_line({**user, "name": "(yours, for all projects)"}, "")]
    if (accounts := cast(Row, told["accounts"]))["accounts"]:
        lines.append(_build_line(_build_accounts_row(accounts), "theirs alone"))
    lines += [_build_line(row, "here" if row["name"] == here else "") for row in rows[:MAX_PROJECTS]]
    if told["elsewhere"]:
        cells = ("(elsewhere)", "", "", _format_number(told["elsewhere"]), "", "outside of projects")
        lines.append([Text(cell) for cell in cells])
    out.print(TableView(("project", *PROJECT_NUMBERS, "state"), lines, numbers=PROJECT_NUMBERS, spare=("size",)))
    if len(rows) > MAX_PROJECTS:
        rest = format_count(len(rows) - MAX_PROJECTS, "more project")
        out.print(_assemble_text((f"and {rest}; to list all, pass --json.", "dim")))
    if trash := cast(Sequence[Row], told.get("trash") or ()):
        kept = [f"{row['name']} (until {row['until'][:10]})" if row["until"] else row["name"] for row in trash]
        shown = ", ".join(kept[:MAX_TRASHED]) + (", …" if len(kept) > MAX_TRASHED else "")
        out.print(
            _assemble_text(f"In the trash: {shown}. ", ("To restore one, run `everkept restore-project`.", "dim"))
        )


def _build_accounts_row(accounts: Row) -> Row:
    lost: int = accounts["unreadable"]
    problem = {"problem": f"{format_count(lost, 'database')} cannot be read"} if lost else {}
    name = f"({format_count(accounts['accounts'], 'account')})"
    return {**accounts, "name": name, "status": "active", **problem}


def _build_line(row: Row, mark: str) -> list[Text]:
    marks = [
        mark,
        "off" if row.get("off") else "",
        "archived" if row["status"] == "archived" else "",
        str(row.get("problem") or ""),
    ]
    return [
        Text(str(row["name"])),
        *(Text(_format_number(row.get(name))) for name in PROJECT_NUMBERS[:-1]),
        Text(format_size(row["size_bytes"]) if row["size_bytes"] else ""),
        Text(", ".join(filter(None, marks)), style="dim"),
    ]


def _print_growth(out: Console, weeks: Sequence[Row]) -> None:
    """Print the last weeks side by side: stored memories and turns."""
    grid = Table.grid(padding=(0, 4))
    charts: list[Text] = []
    for name, title in (("memories", "Memories"), ("turns", "Turns of conversations")):
        values = [int(week[name]) for week in weeks]
        if not any(values):
            continue
        lines = draw_bars(values, CHART_LINES, plain=not out.encoding.lower().startswith("utf"))
        width = len(lines[0])
        first, last = weeks[0]["since"][5:], "this week"
        ends = f"{first}{last:>{width - len(first)}}"
        caption = f"{title} a week, most {max(values):,}"
        grid.add_column(no_wrap=True)
        chart = Text(f"{caption}\n", style="bold")
        chart.append("\n".join(lines), style="not bold cyan")
        charts.append(chart.append(f"\n{ends}", style="not bold dim"))
    if charts:
        grid.add_row(*charts)
        out.print(grid)
        out.print()


def _print_gateway(out: Console, gateway: Row) -> None:
    _print_heading(out, "Gateway")
    facts = {"file": gateway["config"] or "none now; earlier calls:"}
    if "fault" in gateway:
        facts["fault"] = gateway["fault"]
    for server in cast(Sequence[Row], gateway["upstreams"]):
        facts[f"server {server['name']}"] = server["reached"]
    out.print(_build_facts_table(facts))
    tools = cast(Sequence[Row], gateway["tools"])
    called = [tool for tool in tools if tool["calls"]]
    if called:
        out.print(_build_calls_table(called[:MAX_TOOLS]))
    if len(called) > MAX_TOOLS:
        rest = format_count(len(called) - MAX_TOOLS, "more tool")
        out.print(_assemble_text((f"and {rest}; to list all, pass --json.", "dim")))
    if len(called) < len(tools):
        told = f"{format_count(len(tools) - len(called), 'tool')} not called yet; to list them, pass --json."
        out.print(_assemble_text((told, "dim")))
    if earlier := cast(Sequence[Row], gateway.get("earlier", ())):
        told = f"{format_count(len(earlier), 'tool')} of an earlier gateway file; to list them, pass --json."
        out.print(_assemble_text((told, "dim")))


def _build_calls_table(tools: Sequence[Row]) -> TableView:
    rows: list[list[Text]] = []
    for tool in tools:
        counts = (f"{tool[name]:,}" for name in ("calls", "errors"))
        times = (f"{tool[name]:,.1f}" for name in ("mean_ms", "longest_ms"))
        last = format_ago(parse_time(tool["last_at"]), read_clock())
        rows.append([Text(str(cell)) for cell in (tool["tool"], *counts, *times, last)])
    return TableView(("tool", *CALL_NUMBERS), rows, numbers=CALL_NUMBERS)


def _print_state(out: Console, told: Row) -> None:
    waiting: int = told["totals"]["without_vectors"]
    hooks: Row = told["hooks"]
    storage: Row = told.get("storage") or {}
    connection: Row = told["connection"]
    embeddings: Row = storage.get("embeddings") or {}
    _print_heading(out, "State")
    ready: int = told["totals"]["with_vectors"]
    share = 100 * ready // (ready + waiting) if waiting else 100
    queue = f"{format_count(waiting, 'text')} pending ({share} % done); to embed now, run `everkept index`"
    facts = {
        "engine": _format_engine(told),
        "reason": str(connection.get("reason", "")) if "since" in connection else "",
        "left": "\n".join(
            f"{left.sentence} {left.hint}."
            for left in (StrandedWrites(**each) for each in told.get("left_elsewhere", ()))
        ),
        "data": f"{told['data_dir']} ({_format_files(told['files']) or 'nothing yet'})",
        **_format_team(told.get("team") or {}),
        "meaning": queue if waiting else "all texts are embedded",
        "model": str(embeddings.get("problem") or storage.get("embedding_model", "")),
        "hooks": _format_hooks(hooks),
        "backups": format_backups(told["backups"]) if "backups" in told else "",
    }
    out.print(_build_facts_table(facts))


def _format_engine(told: Row) -> str:
    """Format the engine. SQLite files need no line, because they are the default and never unreachable."""
    connection: Row = told["connection"]
    engine, mode = connection.get("engine", "sqlite"), connection.get("mode", "")
    if engine == "sqlite":
        return ""
    place = f" at {connection['path']}" if connection.get("path") else ""
    parts = ["in memory" if engine == "memory" else get_title(engine)]
    parts[0] += f" ({mode}){place}"
    if connection.get("since"):
        parts[0] += " cannot be reached"
        if not told.get("never_reached"):
            parts.append("showing the replica")
    elif connection.get("status") == "reconnecting":
        parts.append("sending pending writes")
    if waiting := connection.get("waiting_writes"):
        parts.append(f"{format_count(waiting, 'write')} waiting here")
    if kept := cast(Sequence[str], told.get("copies_kept", ())):
        places = " and ".join(kept)
        parts.append(f"it has lost data; the earlier data is in {places}")
    if aside := connection.get("writes_set_aside"):
        parts.append(f"{format_count(aside, 'write')} rejected; see `everkept journal`")
    return "; ".join(parts)


def _format_team(team: Row) -> dict[str, str]:
    """Return nothing for a server of one person."""
    told: dict[str, str] = {}
    known = [format_count(team.get("users", 0), "user")] * bool(team.get("users"))
    known += [format_count(team.get("servers", 0), "other server")] * bool(team.get("servers"))
    if known:
        told["accounts"] = f"{' and '.join(known)}; to list them, run `everkept account list`"
    if records := team.get("most_records"):
        limits: Row = team["limits"]
        records_limit = format_count(limits["quota_account_records"], "record")
        most = f"{records_limit} and {format_size(limits['quota_account_bytes'])}"
        has = f"{format_count(records, 'record')} in {format_size(team['most_bytes'])}"
        told["largest"] = f"the largest account has {has}; the limit is {most}"
    if log := team.get("access_log"):
        told["access"] = f"log of {format_size(team['access_log_bytes'])} in {log}"
    elif known:
        told["access"] = "not here; each server has its own in its data folder"
    if peers := team.get("peers"):
        told["peers"] = f"{format_count(peers, 'server')}; to test them, run `everkept peer check`"
    if problem := team.get("problem"):
        told["peers"] = str(problem)
    return told


def _build_facts_table(facts: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, fact in facts.items():
        if fact:
            table.add_row(Text(name), Text(fact))
    return table


def _format_hooks(hooks: Row) -> str:
    parts = ["on" if hooks["enabled"] else "off (setting hooks)"]
    if hooks["waiting"]:
        parts.append(f"{format_count(hooks['waiting'], 'session')} pending")
    if hooks["failed"]:
        parts.append(f"{format_count(hooks['failed'], 'session')} failed to import")
    if fault := cast(Row | None, hooks.get("last_fault")):
        parts.append(f"last fault {fault['at']} in {fault['event']}: {fault['reason']}")
    return "; ".join(parts)


def _format_files(files: Sequence[Row]) -> str:
    """Format files by name, and folders by sum, with notes on unclear names."""
    sizes: dict[str, int] = {}
    for file in files:
        name, slash, _ = str(file["file"]).partition("/")
        sizes[name + slash] = sizes.get(name + slash, 0) + int(file["size_bytes"])
    return ", ".join(
        f"{name}{FOLDER_NOTES.get(name, '')} {format_size(count)}" for name, count in sizes.items() if count
    )


def _format_number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _print_heading(out: Console, title: str) -> None:
    out.print(Text(title, style="bold"))


def _assemble_text(*parts: str | tuple[str, str]) -> Text:
    """Show markup in stored text instead of applying it."""
    return Text.assemble(*parts)
