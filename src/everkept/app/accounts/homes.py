"""What belongs to one account alone: stores that the library below keeps as hidden projects."""

import re

from everkept.core.accounts import NAME, Home, home_name, is_home
from everkept.errors import NotFound

__all__ = ["Home", "home_name", "homes_of", "is_home", "is_taken", "no_project"]

_TAKEN = re.compile(rf"@(user|history)( \({NAME}\))?")


def homes_of(user: str) -> tuple[str, ...]:
    return home_name("user", user), home_name("history", user)


def is_taken(project_name: str) -> bool:
    """Whether no new project may have this name: it is a home's, or would become one's."""
    return _TAKEN.fullmatch(project_name) is not None


def no_project(name: str) -> NotFound:
    """Word for word the same, whether there is one that may not be seen or none at all."""
    readable = name.encode("utf-8", "replace").decode()
    hint = "list_projects shows what exists; create_project makes one."
    return NotFound("project", readable, hint=hint)
