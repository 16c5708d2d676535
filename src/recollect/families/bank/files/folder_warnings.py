"""What is to be said about the names in a bank's folder."""

from collections.abc import Sequence

from recollect.core.files import FileInfo
from recollect.core.text import clipped
from recollect.errors import MOST_LISTED, visible
from recollect.families.bank.banks import Bank
from recollect.families.bank.files.core_files import name_warnings
from recollect.families.bank.files.names import leads_astray
from recollect.tools.tool import Warned


async def folder_warnings(bank: Bank, entries: Sequence[FileInfo]) -> list[Warned] | None:
    """About core files with two names, and about what no tool can reach."""
    said = name_warnings([entry.name for entry in entries if not entry.is_folder]) or []
    lost = [entry.name for entry in entries if leads_astray(entry)]
    lost += [name for name in await bank.files.unreachable() if name[:1] != "."]
    return [*said, *([_out_of_reach(sorted(lost))] if lost else [])] or None


def _out_of_reach(names: Sequence[str]) -> Warned:
    shown = ", ".join(f'"{visible(clipped(name, 120))}"' for name in names[:MOST_LISTED])
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return Warned(
        "out_of_reach",
        f"No tool can read {shown}{more}: rename what has a name that not every system knows, and"
        " put a file of its own in the place of a link that leads elsewhere.",
    )
