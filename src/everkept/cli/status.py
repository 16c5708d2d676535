"""`everkept status`: how much is remembered and where, what grows, what waits, what went wrong."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from everkept.app.app import App
from everkept.app.engines import Left, left_elsewhere, standby_of
from everkept.app.gateway_file import GatewayOverview, names_beside, overview
from everkept.app.overview import team
from everkept.care.database_server import copies_kept
from everkept.cli.options import common
from everkept.cli.render import bars, console, print_pairs
from everkept.cli.runner import command_session, expect_project, print_json, run_with_app
from everkept.core.library import Condition
from everkept.core.mcp import Usage
from everkept.core.sessions import Session
from everkept.core.text import clipped
from everkept.core.times import ago, iso, now, parsed
from everkept.errors import Refused
from everkept.hooks.session_end import Jobs
from everkept.hooks.workspace import hooks_folder, recent
from everkept.jobs.maintenance import Pair
from everkept.settings import load, title_of
from everkept.tools.schema import to_json

Row = Mapping[str, Any]

HEIGHT = 4  # lines of a chart
MOST_PROJECTS = 15  # rows; the rest is summed up
MOST_TOOLS = 15  # of the gateway
LONGEST_SHOWN = 72  # characters of what was recalled most
MEANT = {"standby/": " (copy and journal for when the database is away)"}
UNITS = ("bytes", "KB", "MB", "GB", "TB")


@click.command()
@common
@click.option("--gateway-config", metavar="FILE", help="Gateway: its file, or `none`.")
def status(as_json: bool, **flags: Any) -> None:
    """Show how much is remembered, per project and type, how it grows, and what waits."""

    async def work(app: App) -> dict[str, Any]:
        await expect_project(app, flags)
        session = await command_session(app)
        whole: dict[str, Any] = to_json(await app.overviews.now())
        hooks = {"hooks": _hooks(app), "data_dir": str(app.settings.data_dir)}
        seen = await overview(app.settings.gateway_config, app.library, names_beside(load(flags)))
        gateway = {"gateway": _gateway(seen)} if seen else {}
        left = [to_json(each) for each in await left_elsewhere(app.settings)]
        beside: dict[str, Any] = {"left_elsewhere": left} if left else {}
        if others := await team(app.accounts, app.settings.data_dir):
            beside["team"] = to_json(others)
        return {**await _own(app, session), **whole, **gateway, **beside, **hooks}

    told = run_with_app(work, makes_nothing=True, **flags)
    if as_json:
        print_json(told)
    else:
        _print(console(), told)


async def _own(app: App, session: Session) -> dict[str, Any]:
    """What holds for the project that the command means; little where that is off or archived."""
    project = await app.shelf.project(session)
    name = {"project": project.name if project else "(made at the first write)"}
    try:
        told = (await app.call(session, "get_memory_status", {})).structured
        similar = await app.shelf.similar(session)
    except Refused as error:
        off = {"off_since": iso(project.off_since)} if project and project.off_since else {}
        connection = {"connection": _connection(app.library.condition)}
        return {**name, **_of_copy(app), **connection, **off, "problem": str(error)}
    pairs = {"similar": [_pair(pair) for pair in similar]} if similar else {}
    return {**name, **_of_copy(app), **told, **pairs}


def _of_copy(app: App) -> dict[str, Any]:
    """What the status of memories does not tell of a database that may be away."""
    standby = standby_of(app.settings)
    kept = [str(path) for path in copies_kept(standby)] if standby else []
    never = {"never_reached": True} if app.library.condition.never_reached else {}
    return {**({"copies_kept": kept} if kept else {}), **never}


def _connection(condition: Condition) -> dict[str, Any]:
    """As the status of memories tells it, which is not to be had here."""
    is_away = condition.since is not None and not condition.is_catching_up
    told = {
        "status": condition.status,
        "engine": condition.engine,
        "mode": condition.mode,
        "version": condition.version,
        "path": condition.place,
        "since": iso(condition.since or 0) if is_away else None,
        "reason": condition.reason,
        "waiting_writes": condition.waiting,
        "writes_set_aside": condition.set_aside,
    }
    return {name: value for name, value in told.items() if value}


def _hooks(app: App) -> dict[str, Any]:
    folder = hooks_folder(app.settings)
    jobs = Jobs(folder)
    faults = recent(folder, 1)
    return {
        "enabled": app.settings.hooks,
        "waiting": len(jobs.names()),
        "failed": len(jobs.set_aside()),
        **({"last_fault": faults[0]._asdict()} if faults else {}),
    }


def _gateway(seen: GatewayOverview) -> dict[str, Any]:
    return {
        "config": str(seen.config) if seen.config else None,
        **({"fault": seen.fault} if seen.fault else {}),
        "upstreams": to_json(seen.upstreams),
        "tools": [_usage(usage) for usage in seen.tools],
        **({"earlier": [_usage(usage) for usage in seen.earlier]} if seen.earlier else {}),
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "tool": usage.tool,
        "calls": usage.calls,
        "errors": usage.errors,
        "mean_ms": round(usage.mean_ms, 1),
        "longest_ms": round(usage.longest_ms, 1),
        "last_at": iso(usage.last_at) if usage.calls else None,
    }


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "score": round(pair.score, 3),
        "first": {"id": pair.first.id, "content": clipped(pair.first.text, 200)},
        "second": {"id": pair.second.id, "content": clipped(pair.second.text, 200)},
    }


def _print(out: Console, told: Row) -> None:
    _print_head(out, told)
    _print_projects(out, told)
    _print_growth(out, told["weeks"])
    if told["recalled"]:
        _heading(out, "Recalled most")
        for each in cast(Sequence[Row], told["recalled"]):
            said = clipped(str(each["content"]), LONGEST_SHOWN)
            out.print(_text(f"{each['times']:>5,}x  {said}  ", (f"({each['project']})", "dim")))
    if told.get("similar"):
        _heading(out, "Say nearly the same")
        print_pairs(out, told["similar"])
    if told.get("gateway"):
        _print_gateway(out, told["gateway"])
    _print_state(out, told)


def _print_head(out: Console, told: Row) -> None:
    totals: Row = told["totals"]
    kept = ", ".join(
        counted(totals[name], name) for name in ("memories", "entities", "conversations")
    )
    places = counted(totals["projects"], "projects") + (" and elsewhere" * bool(told["elsewhere"]))
    out.print(_text((kept, "bold"), f" in {places}{_room(told)}."))
    types = [f"{name} {count:,}" for name, count in told["types"].items()]
    if totals["automatic"]:
        types.append(_told_of_automatic(told))
    if types:
        out.print(_text(("Memories: " + ", ".join(types), "dim")))
    if "problem" in told:
        since = f" (since {ago(parsed(told['off_since']), now())})" if "off_since" in told else ""
        out.print(_text((f"{told['problem']}{since}", "yellow")))


def _room(told: Row) -> str:
    """Of a server what it says itself, where it does; while it is away, its copy's."""
    totals: Row = told["totals"]
    taken: int = totals["size_bytes"]
    if "here_bytes" not in totals:
        return f", {size(taken)} on disk"
    where = "in its copy here" if told["connection"].get("since") else "in the database"
    return f", {size(taken)} {where}" if taken else ""


def _told_of_automatic(told: Row) -> str:
    rows = cast(Sequence[Row], told["projects"])
    here = [row for row in rows if row["name"] == told["project"]]
    own = "".join(f", {row.get('automatic') or 0:,} in {row['name']}" for row in here)
    total: int = told["totals"]["automatic"]
    return f"{total:,} of them automatic{own} (`everkept list --automatic`)"


def _print_projects(out: Console, told: Row) -> None:
    here = told["project"]
    rows = sorted(cast(Sequence[Row], told["projects"]), key=lambda row: row["name"] != here)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("project", overflow="fold")
    for column in ("memories", "entities", "conversations", "size"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    user: Row = told["user"]
    _add_row(table, {**user, "name": "(yours, in all projects)"}, "")
    if (accounts := cast(Row, told["accounts"]))["accounts"]:
        _add_row(table, _row_of_accounts(accounts), "theirs alone")
    for row in rows[:MOST_PROJECTS]:
        _add_row(table, row, "here" if row["name"] == here else "")
    if told["elsewhere"]:
        table.add_row(
            "(elsewhere)", "", "", _count(told["elsewhere"]), "", "in no project's folder"
        )
    out.print(table)
    if len(rows) > MOST_PROJECTS:
        rest = counted(len(rows) - MOST_PROJECTS, "more projects")
        out.print(_text((f"and {rest}; --json has them all.", "dim")))


def _row_of_accounts(accounts: Row) -> Row:
    lost: int = accounts["unreadable"]
    problem = {"problem": f"{counted(lost, 'databases')} cannot be read"} if lost else {}
    name = f"({counted(accounts['accounts'], 'accounts')})"
    return {**accounts, "name": name, "status": "active", **problem}


def _add_row(table: Table, row: Row, mark: str) -> None:
    marks = [
        mark,
        "off" if row.get("off") else "",
        "archived" if row["status"] == "archived" else "",
        str(row.get("problem") or ""),
    ]
    table.add_row(
        Text(str(row["name"])),
        *(Text(_count(row.get(name))) for name in ("memories", "entities", "conversations")),
        Text(size(row["size_bytes"]) if row["size_bytes"] else ""),
        Text(", ".join(filter(None, marks)), style="dim"),
    )


def _print_growth(out: Console, weeks: Sequence[Row]) -> None:
    """The last weeks side by side: what was remembered, and what was said."""
    grid = Table.grid(padding=(0, 4))
    charts: list[Text] = []
    for name, title in (("memories", "Memories"), ("turns", "Turns of conversations")):
        values = [int(week[name]) for week in weeks]
        if not any(values):
            continue
        lines = bars(values, HEIGHT, plain=not out.encoding.lower().startswith("utf"))
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
    _heading(out, "Gateway")
    facts = {"file": gateway["config"] or "none now; these tools were called earlier"}
    if "fault" in gateway:
        facts["fault"] = gateway["fault"]
    for server in cast(Sequence[Row], gateway["upstreams"]):
        facts[f"server {server['name']}"] = server["reached"]
    out.print(_facts(facts))
    tools = cast(Sequence[Row], gateway["tools"])
    called = [tool for tool in tools if tool["calls"]]
    if called:
        out.print(_calls(called[:MOST_TOOLS]))
    if len(called) > MOST_TOOLS:
        rest = counted(len(called) - MOST_TOOLS, "more tools")
        out.print(_text((f"and {rest}; --json has them all.", "dim")))
    if len(called) < len(tools):
        told = f"{counted(len(tools) - len(called), 'tools')} not called yet; --json names them."
        out.print(_text((told, "dim")))
    if earlier := cast(Sequence[Row], gateway.get("earlier", ())):
        told = f"{counted(len(earlier), 'tools')} of an earlier file; --json has them."
        out.print(_text((told, "dim")))


def _calls(tools: Sequence[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("tool", no_wrap=True)
    for column in ("calls", "errors", "mean ms", "longest ms", "last called"):
        table.add_column(column, justify="right", no_wrap=True)
    for tool in tools:
        counts = (f"{tool[name]:,}" for name in ("calls", "errors"))
        times = (f"{tool[name]:,.1f}" for name in ("mean_ms", "longest_ms"))
        last = ago(parsed(tool["last_at"]), now())
        table.add_row(Text(str(tool["tool"])), *counts, *times, last)
    return table


def _print_state(out: Console, told: Row) -> None:
    waiting: int = told["totals"]["without_vectors"]
    hooks: Row = told["hooks"]
    storage: Row = told.get("storage") or {}
    connection: Row = told["connection"]
    embeddings: Row = storage.get("embeddings") or {}
    _heading(out, "State")
    queue = f"{counted(waiting, 'texts')} to be embedded; `everkept index` does it now"
    facts = {
        "engine": _told_of_engine(told),
        "reason": str(connection.get("reason", "")) if "since" in connection else "",
        "left": "\n".join(
            f"{left.sentence} {left.hint}."
            for left in (Left(**each) for each in told.get("left_elsewhere", ()))
        ),
        "data": f"{told['data_dir']} ({_files(told['files']) or 'nothing yet'})",
        **_told_of_team(told.get("team") or {}),
        "meaning": queue if waiting else "all texts are embedded",
        "model": str(embeddings.get("problem") or ""),
        "hooks": _told_of_hooks(hooks),
    }
    out.print(_facts(facts))


def _told_of_engine(told: Row) -> str:
    """Nothing of SQLite in its files, which is what nearly everybody has and never is away."""
    connection: Row = told["connection"]
    engine, mode = connection.get("engine", "sqlite"), connection.get("mode", "")
    if engine == "sqlite":
        return ""
    place = f" at {connection['path']}" if connection.get("path") else ""
    parts = ["in memory" if engine == "memory" else title_of(engine)]
    parts[0] += f" ({mode}){place}"
    if connection.get("since"):
        parts[0] += " cannot be reached"
        if not told.get("never_reached"):
            parts.append("what is shown is what was last seen of it")
    elif connection.get("status") == "reconnecting":
        parts.append("what was written before is being brought over")
    if waiting := connection.get("waiting_writes"):
        parts.append(f"{counted(waiting, 'writes')} waiting here")
    if kept := cast(Sequence[str], told.get("copies_kept", ())):
        places = " and ".join(kept)
        parts.append(f"it came back with less than it had, which is kept in {places}")
    if aside := connection.get("writes_set_aside"):
        parts.append(f"{counted(aside, 'writes')} set aside, see `everkept journal`")
    return "; ".join(parts)


def _told_of_team(team: Row) -> dict[str, str]:
    """Nothing where it is one person's."""
    told: dict[str, str] = {}
    known = [counted(team.get("users", 0), "users")] * bool(team.get("users"))
    known += [counted(team.get("servers", 0), "other servers")] * bool(team.get("servers"))
    if known:
        told["accounts"] = f"{' and '.join(known)}; `everkept account list` names them"
    if log := team.get("access_log"):
        told["access"] = f"log of {size(team['access_log_bytes'])} in {log}"
    elif known:
        told["access"] = "no log here: each server keeps its own, in its data folder"
    if peers := team.get("peers"):
        told["peers"] = f"{counted(peers, 'servers')} to ask; `everkept peer check` tries them"
    if problem := team.get("problem"):
        told["peers"] = str(problem)
    return told


def _facts(facts: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, fact in facts.items():
        if fact:
            table.add_row(Text(name), Text(fact))
    return table


def _told_of_hooks(hooks: Row) -> str:
    parts = ["on" if hooks["enabled"] else "off in the settings"]
    if hooks["waiting"]:
        parts.append(f"{counted(hooks['waiting'], 'sessions')} to be taken in")
    if hooks["failed"]:
        parts.append(f"{counted(hooks['failed'], 'sessions')} could not be taken in")
    if fault := cast(Row | None, hooks.get("last_fault")):
        parts.append(f"last fault {fault['at']} in {fault['event']}: {fault['reason']}")
    return "; ".join(parts)


def _files(files: Sequence[Row]) -> str:
    """Single files by name, and folders by their sum, with what is not clear from their name."""
    sizes: dict[str, int] = {}
    for file in files:
        name, slash, _ = str(file["file"]).partition("/")
        sizes[name + slash] = sizes.get(name + slash, 0) + int(file["size_bytes"])
    return ", ".join(
        f"{name}{MEANT.get(name, '')} {size(count)}" for name, count in sizes.items() if count
    )


def counted(count: int, noun: str) -> str:
    """`1 memory`, `2 memories`."""
    if count == 1:
        noun = noun.removesuffix("ies") + "y" if noun.endswith("ies") else noun.removesuffix("s")
    return f"{count:,} {noun}"


def size(count: int) -> str:
    amount, unit = float(count), 0
    while amount >= 1000 and unit < len(UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return (
        f"{amount:,.0f} {UNITS[unit]}"
        if unit == 0 or amount >= 100
        else f"{amount:.1f} {UNITS[unit]}"
    )


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _heading(out: Console, title: str) -> None:
    out.print(Text(title, style="bold"))


def _text(*parts: str | tuple[str, str]) -> Text:
    """Stored text is data: what looks like markup in it is shown, not obeyed."""
    return Text.assemble(*parts)
