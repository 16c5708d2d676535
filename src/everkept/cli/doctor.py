"""`everkept doctor`: what is wrong here, and what mends it."""

import sys
from collections.abc import Mapping
from typing import Any

import click
from rich.text import Text

from everkept.care.doctor import Diagnosis, diagnose
from everkept.care.findings import Finding, Patient
from everkept.cli.options import common, settings_from
from everkept.cli.render import console
from everkept.cli.runner import print_json
from everkept.core.text import counted
from everkept.core.times import now
from everkept.errors import EverkeptError, InvalidInput, ReadOnly
from everkept.hooks.checks import CHECK as HOOKS
from everkept.hooks.checks import check_hooks
from everkept.settings import load

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
    diagnosis = diagnose(patient, [(HOOKS, check_hooks)], fix=fix)
    print_json(_described(diagnosis)) if as_json else _show(diagnosis, fix=fix)
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


def _described(diagnosis: Diagnosis) -> dict[str, Any]:
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
