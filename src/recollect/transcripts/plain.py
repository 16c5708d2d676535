"""Plain JSON lines, which anything can be turned into: `session, author, timestamp, text`."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.core.transcripts import ASSISTANT, USER, Event, Titled, Turn
from recollect.transcripts.fields import fingerprint, mapping, moment, string, strings
from recollect.transcripts.turns import CLIPPED, MOST_TEXT, MOST_THINGS, folder, name

SOURCE = "jsonl"

# A conversation that comes back after this many others is counted from its start again. That is
# no harm: the key of a turn also holds what was said, and when.
_SESSIONS_COUNTED = 64
_ROLES = {"user": USER, "human": USER, "assistant": ASSISTANT, "ai": ASSISTANT}


class PlainFormat:
    """Each line is one turn. `project`, `id`, `title`, `branch`, `model`, `files` and `tools` may
    be there too.
    """

    def __init__(self, path: Path, state: Mapping[str, Any] | None) -> None:
        self.skipped: Counter[str] = Counter()
        self._counts = {
            session: count
            for session, count in mapping(mapping(state).get("turns")).items()
            if isinstance(count, int)
        }
        self._titles: dict[str, str] = {}

    def take(self, record: Mapping[str, Any], line: int) -> list[Event]:
        session = _identifier(record.get("session"))
        author = name(record.get("author"))
        text = string(record.get("text"))
        for field, value in (("session", session), ("author", author), ("text", text.strip())):
            if not value:
                self.skipped[f"line without {field}"] += 1
                return []
        if len(text) > MOST_TEXT:
            self.skipped[CLIPPED] += 1
        turn = Turn(
            key=f"{session}:{self._number(session, record, author, text)}",
            session=session,
            author=_ROLES.get(author.lower(), author),
            text=text[:MOST_TEXT],
            at=self._time(record.get("timestamp")),
            project=folder(record.get("project")) or None,
            branch=name(record.get("branch")) or None,
            model=name(record.get("model")) or None,
            files=strings(record.get("files"))[:MOST_THINGS],
            tools=strings(record.get("tools"))[:MOST_THINGS],
        )
        return [*self._titled(session, string(record.get("title")).strip()), turn]

    def pending(self) -> list[Event]:
        return []

    def state(self) -> dict[str, Any]:
        return {"turns": dict(self._counts)}

    def _number(self, session: str, record: Mapping[str, Any], author: str, text: str) -> str:
        """The same in each copy of the file; two equal lines are two turns."""
        count = self._counts.pop(session, 0)
        self._counts[session] = count + 1
        if len(self._counts) > _SESSIONS_COUNTED:
            del self._counts[next(iter(self._counts))]
        if own := _identifier(record.get("id")):
            return own
        said = fingerprint(author, str(record.get("timestamp", "")), text)
        return f"{count}:{said}"

    def _time(self, value: Any) -> int | None:
        at = moment(value)
        if at is None and value is not None:
            self.skipped["timestamp that is no time"] += 1
        return at

    def _titled(self, session: str, title: str) -> list[Event]:
        if not title or self._titles.get(session) == title:
            return []
        self._titles = {session: title}
        return [Titled(session, title)]


def _identifier(value: Any) -> str:
    """A number does as well as a text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return name(value)
