"""A project: a name, a status, and a store of its own."""

from typing import Literal

from everkept.core.text import clipped, forbidden_in_text, has_control_characters
from everkept.errors import InvalidInput
from everkept.values import Value

Status = Literal["active", "archived"]

PROJECT_NAME_LIMIT = 100  # characters
USER = "@user"  # how commands name what belongs to the user and to no project
# What folders call themselves, `--project auto`, and the user's own.
RESERVED = frozenset({".", "..", "auto", USER})
_HINT = "Letters, digits, blanks, '-', '_' and '.' do well."


class Project(Value):
    id: str
    name: str
    description: str
    status: Status
    created_at: int
    updated_at: int
    off_since: int | None = None

    @property
    def is_off(self) -> bool:
        """Whether it is switched off: nothing of it is stored, and nothing of it is given out."""
        return self.off_since is not None


class Silence(Value):
    """While a project was switched off, and the folder that it belongs to.

    What is said there in that time is never taken in. `until` is None while it lasts.
    """

    folder: str
    since: int
    until: int | None = None


def checked_project_name(name: str) -> str:
    """Gives the name back, or says what is wrong with it."""
    if not name.strip():
        raise InvalidInput("Project name is required.", argument="name", value=name)
    problem = (
        f"is longer than {PROJECT_NAME_LIMIT} characters"
        if len(name) > PROJECT_NAME_LIMIT
        else "begins or ends with a blank"
        if name != name.strip()
        else "holds a character that cannot be stored"
        if has_control_characters(name) or forbidden_in_text(name)
        else "holds a path separator"
        if "/" in name or "\\" in name
        else "has a meaning of its own"
        if name in RESERVED
        else None
    )
    if problem:
        shown = clipped(name, PROJECT_NAME_LIMIT).encode("utf-8", "replace").decode()
        raise InvalidInput(
            f'Project name "{shown}" {problem}.', hint=_HINT, argument="name", value=shown
        )
    return name
