"""A project: a name, a status, a store of its own, and the times at which it was off."""

from collections.abc import Iterable, Sequence
from typing import Literal

from everkept.core.text import clipped, forbidden_in_text, has_control_characters
from everkept.errors import InvalidInput
from everkept.values import Value, replace

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


Span = tuple[int, int | None]  # from when until when; None while it lasts


class Switching(Value):
    """The times that a project was off, in their order.

    `folders` and `deleted_at` are kept for one that is deleted: what was said there while it was
    off stays unsaid, and what is said later belongs to another project.
    """

    spans: tuple[Span, ...] = ()
    folders: tuple[str, ...] = ()
    deleted_at: int | None = None

    @property
    def off_since(self) -> int | None:
        """None where it is on."""
        since, until = self.spans[-1] if self.spans else (None, 0)
        return since if until is None else None

    def switched(self, *, off: bool, at: int) -> "Switching":
        """Itself, where that is what it is already."""
        since = self.off_since
        if off == (since is not None):
            return self
        if since is None:
            return replace(self, spans=(*self.spans, (at, None)))
        return replace(self, spans=(*self.spans[:-1], (since, max(since, at))))

    def united(self, other: "Switching") -> "Switching":
        """Off whenever either was; of a time that both know the beginning of, its own end holds."""
        ends = {**dict(other.spans), **dict(self.spans)}
        spans: list[Span] = []
        for since in sorted(ends):
            until = ends[since]
            before, end = spans[-1] if spans else (since, since)
            if end is not None and since >= end:
                spans.append((since, until))
            else:
                spans[-1] = (before, None if end is None or until is None else max(end, until))
        return replace(self, spans=tuple(spans))

    def leaving(self, folders: Iterable[str], at: int) -> "Switching":
        """With what must be known when the project is no more."""
        return replace(self, folders=tuple(folders), deleted_at=at)

    def silences(self, folders: Sequence[str]) -> list[Silence]:
        """Of a project that has these folders."""
        return [Silence(each, since, until) for each in folders for since, until in self.spans]

    def last_silences(self) -> list[Silence]:
        """Of a project that is deleted."""
        return self.switched(off=False, at=self.deleted_at or 0).silences(self.folders)
