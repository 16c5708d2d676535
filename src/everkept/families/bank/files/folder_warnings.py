"""What is to be said about the names in a bank's folder."""

from collections.abc import Sequence

from everkept.core.files import FolderSurvey
from everkept.core.text import clipped
from everkept.errors import MOST_LISTED, visible
from everkept.families.bank.files.core_files import name_warnings
from everkept.families.bank.files.names import leads_astray
from everkept.tools.tool import Warned


def folder_warnings(seen: FolderSurvey) -> list[Warned] | None:
    """About core files with two names, and about what no tool can reach."""
    said = name_warnings(set(seen.files)) or []
    lost = [name for name, target in seen.links.items() if leads_astray(target)]
    lost = sorted(name for name in (*lost, *seen.unreachable) if name[0] != ".")
    return [*said, *([_out_of_reach(lost)] if lost else [])] or None


def _out_of_reach(names: Sequence[str]) -> Warned:
    shown = ", ".join(f'"{visible(clipped(name, 120))}"' for name in names[:MOST_LISTED])
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return Warned(
        "out_of_reach",
        f"No tool can read {shown}{more}: rename what has a name that not every system knows, and"
        " put a file of its own in the place of a link that leads elsewhere.",
    )
