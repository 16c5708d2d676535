"""What belongs to one account alone: stores that a library keeps as projects of these names."""

import re
from collections.abc import Container
from typing import Literal, NamedTuple

from recollect.core.accounts import NAME, NOTES

Home = Literal["user", "history"]

_HOME = re.compile(rf"@(user|history) \(({NAME})\)")


class HomeOf(NamedTuple):
    """Which home of which account a project is."""

    home: Home
    user: str


def home_name(home: Home, user: str) -> str:
    return f"@{home} ({user})"


def home_of(project_name: str) -> HomeOf | None:
    """None for a project that is one."""
    found = _HOME.fullmatch(project_name)
    return HomeOf("user" if found[1] == "user" else "history", found[2]) if found else None


def is_home(project_name: str) -> bool:
    """Whether no tool may list or open a project of this name, and no command tell of it."""
    return home_of(project_name) is not None


def is_nobodys(project_name: str, notes: Container[str]) -> bool:
    """Whether it is the home of an account that none of these notes, by their keys, tells of.

    Whoever is called so next must not find it.
    """
    found = home_of(project_name)
    return found is not None and f"{NOTES}user.{found.user}" not in notes
