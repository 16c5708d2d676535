"""All that a library has beside the records, given out and taken over."""

from typing import Any

from everkept.core.copies import PASSING, Holdings
from everkept.core.ports import Token
from everkept.core.projects import Status
from everkept.engines.surreal.catalogue.desk import (
    TURN,
    UNDISTURBED,
    WHOSE_TURN,
    Desk,
    row_id,
    undisturbed,
)
from everkept.engines.surreal.catalogue.listing import (
    PROJECT,
    SWITCHING,
    WORKSPACE,
    project_from,
    project_row,
    switching_from,
    switching_row,
)
from everkept.engines.surreal.catalogue.shelves import marking, removing, sweep
from everkept.engines.surreal.connecting.attempts import retried
from everkept.engines.surreal.connecting.connection import placing
from everkept.values import replace

_Rows = dict[str, dict[str, dict[str, Any]]]  # by table and key


async def holdings(desk: Desk) -> Holdings:
    [found] = await desk.ask(
        f"RETURN {{ projects: (SELECT {PROJECT} FROM project), "
        f"workspaces: (SELECT {WORKSPACE} FROM workspace), "
        f"switching: (SELECT {SWITCHING} FROM switching), "
        "notes: (SELECT key, value FROM note), "
        "tokens: (SELECT record::id(id) AS id, label, created_at, secret_hash FROM token) }"
    )
    return Holdings(
        projects=sorted(map(project_from, found["projects"]), key=lambda project: project.name),
        workspaces={row["path"]: row["project"] for row in found["workspaces"]},
        switching={row["id"]: switching_from(row) for row in found["switching"]},
        notes={
            row["key"]: row["value"] for row in found["notes"] if not row["key"].startswith(PASSING)
        },
        tokens=[
            (Token(row["id"], row["label"], row["created_at"]), row["secret_hash"])
            for row in sorted(found["tokens"], key=lambda row: (row["created_at"], row["id"]))
        ],
    )


async def take_over(desk: Desk, holdings: Holdings, at: int) -> None:
    rows = _rows(holdings)
    wanted: dict[str, Status] = {project.id: project.status for project in holdings.projects}

    async def attempt() -> None:
        [turn, found] = await desk.ask(
            f"{WHOSE_TURN}; SELECT record::id(id) AS id, status FROM project"
        )
        known: dict[str, Status] = {row["id"]: row["status"] for row in found}
        values: dict[str, Any] = {
            "turn": turn,
            "at": at,
            "passing": PASSING,
            "leaving": [row_id("leaving", each) for each in known if each not in wanted],
            "coming": [row_id("leaving", each) for each in wanted if each not in known],
        }
        for table, kept in rows.items():
            listed = [{"id": row_id(table, key), **row} for key, row in kept.items()]
            values |= {f"{table}_rows": listed, f"{table}_ids": [row["id"] for row in listed]}
        await undisturbed(desk, _taking_over(desk, wanted, known), values)

    await retried(attempt)
    await sweep(desk, at)


def _taking_over(desk: Desk, wanted: dict[str, Status], known: dict[str, Status]) -> str:
    """One transaction. Rows that stay are changed in place: what is deleted and made anew within
    one is gone in some versions. Names are set aside first, for they may be traded."""
    here = ["UPDATE project SET name = <string> id", "UPDATE token SET secret_hash = <string> id"]
    for table in ("project", "workspace", "switching", "note", "token"):
        meant = "AND !string::starts_with(key, $passing)" if table == "note" else ""
        here += [
            f"DELETE {table} WHERE id NOT IN ${table}_ids {meant}",
            f"FOR $row IN ${table}_rows {{ {placing('$row.id', '$row')} }}",
        ]
    here += ["DELETE $coming", f"FOR $each IN $leaving {{ {placing('$each', '{at: $at}')} }}"]
    here += [removing(desk, each) for each in wanted if each not in known]
    there = [
        marking(desk, each, f"'{wanted.get(each, 'deleted')}'")
        for each, status in known.items()
        if wanted.get(each) != status
    ]
    return "; ".join(["BEGIN", UNDISTURBED, TURN, *here, *there, "COMMIT"]) + ";"


def _rows(holdings: Holdings) -> _Rows:
    return {
        "project": {
            project.id: project_row(replace(project, off_since=_off_since(holdings, project.id)))
            for project in holdings.projects
        },
        "workspace": {
            path: {"path": path, "project": row_id("project", owner)}
            for path, owner in holdings.workspaces.items()
        },
        "switching": {
            project_id: switching_row(switching)
            for project_id, switching in holdings.switching.items()
        },
        "note": {
            key: {"key": key, "value": value}
            for key, value in holdings.notes.items()
            if not key.startswith(PASSING)
        },
        "token": {
            token.id: {
                "label": token.label,
                "secret_hash": secret_hash,
                "created_at": token.created_at,
            }
            for token, secret_hash in holdings.tokens
        },
    }


def _off_since(holdings: Holdings, project_id: str) -> int | None:
    switching = holdings.switching.get(project_id)
    return switching.off_since if switching else None
