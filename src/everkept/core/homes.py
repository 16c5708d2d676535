"""What belongs to one account alone: stores that a library keeps as projects of these names."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from everkept.core.accounts import NAME, USERS, account_id

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


def is_anothers(project_name: str, before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether it was the home of an account that is no more, by the notes of then and of now.

    Whoever is called so by now, or next, must not find it.
    """
    found = home_of(project_name)
    if found is None:
        return False
    known = account_id(now.get(USERS + found.user))
    return known is None or known != account_id(before.get(USERS + found.user))
