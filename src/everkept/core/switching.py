"""When a project was switched off, and for which folders that holds."""

from collections.abc import Iterable, Sequence

from everkept.core.projects import Silence
from everkept.values import Value, replace

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
