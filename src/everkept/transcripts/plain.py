"""Plain JSON lines, which anything can be turned into: `session, author, timestamp, text`."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from everkept.core.transcripts import ASSISTANT, USER, Event, Titled, Turn
from everkept.transcripts.fields import (
    fingerprint,
    mapping,
    moment,
    string,
    strings,
    unique,
)
from everkept.transcripts.programs import LONGEST_NAME, MOST_TEXT, MOST_THINGS
from everkept.transcripts.turns import CLIPPED, folder, name, title

_SHORTENED = 150  # characters that are left of a longer id, before what tells it from others
_ROLES = {"user": USER, "human": USER, "assistant": ASSISTANT, "ai": ASSISTANT}


class PlainFormat:
    """Each line is one turn. `project`, `id`, `title`, `branch`, `model`, `files` and `tools` may
    be there too.

    Two lines that say the same at the same time are one turn, wherever they stand. Lines without
    a time are told apart by their place in the file.
    """

    def __init__(self, path: Path, state: Mapping[str, Any] | None) -> None:
        self.skipped: Counter[str] = Counter()
        # Of the line that was read last.
        self._session = name(mapping(state).get("session")) or path.stem
        self._title: Titled | None = None

    def take(self, record: Mapping[str, Any], line: int) -> list[Event]:
        session = _identifier(record.get("session"))
        self._session = session or self._session
        author = string(record.get("author")).strip()[:LONGEST_NAME]
        text = string(record.get("text"))
        for field, value in (("session", session), ("author", author), ("text", text.strip())):
            if not value:
                self.skipped[f"line without {field}"] += 1
                return []
        if len(text) > MOST_TEXT:
            self.skipped[CLIPPED] += 1
        at = self._time(record.get("timestamp"))
        # As it is written: a time without a zone is another one when the machine travels.
        when = str(line if at is None else record.get("timestamp"))
        files = (folder(file, self.skipped) for file in strings(record.get("files")))
        turn = Turn(
            key=f"{session}:{_identifier(record.get('id')) or fingerprint(author, when, text)}",
            session=session,
            author=_ROLES.get(author.lower(), author),
            text=text[:MOST_TEXT],
            at=at,
            project=folder(record.get("project"), self.skipped) or None,
            branch=name(record.get("branch")) or None,
            model=name(record.get("model")) or None,
            files=unique(files)[:MOST_THINGS],
            tools=unique(map(name, strings(record.get("tools"))))[:MOST_THINGS],
        )
        return [*self._titled(Titled(session, title(record.get("title")))), turn]

    def pending(self) -> list[Event]:
        return []

    def session_of(self, record: Mapping[str, Any]) -> str:
        return self._session

    def state(self) -> dict[str, Any]:
        return {"session": self._session}

    def _time(self, value: Any) -> int | None:
        at = moment(value)
        if at is None and value is not None:
            self.skipped["timestamp that is no time"] += 1
        return at

    def _titled(self, event: Titled) -> list[Event]:
        if not event.title or event == self._title:
            return []
        self._title = event
        return [event]


def _identifier(value: Any) -> str:
    """A number does as well as a text, and one of any length tells itself from others."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    text = string(value).strip()
    if len(text) <= LONGEST_NAME:
        return text
    return f"{text[:_SHORTENED]}#{fingerprint(text)}"
