"""What a person can do about a database that is damaged or gone."""

from pathlib import Path

from everkept.core.homes import is_home
from everkept.engines.sqlite.care.backup_note import last_backup


def bring_all_back(folder: Path) -> str:
    return f"everkept restore FILE --replace{_known(folder)}"


def bring_project_back(folder: Path, name: str, *, is_off: bool) -> str:
    """For a project whose file is not in its place: the others stay as they are.

    What is an account's alone comes back with everything else, and never as a project.
    """
    if is_home(name):
        return bring_all_back(folder)
    steps = (
        f'everkept delete-project "{name}"; then everkept restore FILE --project "{name}"'
        f"{_known(folder)}"
    )
    return f'{steps}; then everkept off --project "{name}"' if is_off else steps


def _known(folder: Path) -> str:
    files = sorted(folder.parent.glob(f"{folder.name}-before-restore-*.zip"), reverse=True)[:1]
    last = last_backup(folder)
    if last is not None and last[0].is_file():
        files.insert(0, last[0])
    return f" (there is {' and '.join(str(file) for file in files)})" if files else ""
