"""The access log of the servers that have this data folder: where it is, and how large."""

from collections.abc import Iterator

from everkept.app.access_log import FOLDER
from everkept.app.care.findings import Finding, Patient
from everkept.core.text import counted

CHECK = "access log"


def check_access_log(patient: Patient) -> Iterator[Finding]:
    """Nothing where no server has written one."""
    folder = patient.folder / FOLDER
    if sizes := [path.stat().st_size for path in folder.glob("*.jsonl")]:
        what = f"{counted(len(sizes), 'file')} with {sum(sizes):,} bytes in {folder}."
        yield Finding(CHECK, "ok", what)
