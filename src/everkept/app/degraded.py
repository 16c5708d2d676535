"""Answers while the database is away: each is marked, and in words it is said once."""

from typing import Any, cast

from everkept.core.conditions import Absence, Answering
from everkept.core.sessions import Session
from everkept.tools.tool import Result

MARK = "degraded"
KEPT_SESSIONS = 1_000  # that are remembered to have been told
QUIET = 3600 * 1_000_000  # microseconds before a session is told again that writes are brought over


class Telling:
    """Who has been told of which absence."""

    def __init__(self) -> None:
        self._told: dict[str, Absence] = {}  # the last one, by session

    def marked(self, result: Result, session: Session, noted: Answering, place: str) -> Result:
        """The answer as it is where the database gave it."""
        if not noted.is_degraded or result.wire is not None:
            return result
        structured: dict[str, Any] = {**result.structured, MARK: True}
        said = result.sentence
        if self._is_news(session, noted.absence):
            sentence = told_of(noted.absence, place)
            known = cast(list[Any], structured.get("warnings") or [])
            structured["warnings"] = [*known, {"code": MARK, "message": sentence}]
            if said is not None:
                said = f"{said}\n\n{sentence}"
        return Result(structured, said)

    def _is_news(self, session: Session, absence: Absence) -> bool:
        told = self._told.get(session.id)
        if told is not None and not _is_another(absence, told):
            return False
        while len(self._told) >= KEPT_SESSIONS:
            del self._told[next(iter(self._told))]
        self._told[session.id] = absence
        return True


def _is_another(absence: Absence, told: Absence) -> bool:
    """What is brought over now and then is no news each time, nor is the end of an absence."""
    if absence.is_catching_up:
        return (absence.since or 0) - (told.since or 0) >= QUIET
    return told.is_catching_up or absence.since != told.since


def told_of(absence: Absence, place: str = "") -> str:
    """What a user should know of it, in one or two sentences."""
    database = f"The database at {place}" if place else "The database"
    if absence.is_catching_up:
        return (
            f"{database} is being brought what was written before. Until that is done, what is "
            "read is what was last seen of it, with what was written here."
        )
    if absence.never_reached:
        return (
            f"{database} was never reached from this machine's data folder: is the address right? "
            "Nothing is known of what it holds; what is stored is kept on this machine and brought "
            "over when it is reached."
        )
    return (
        f"{database} cannot be reached. What is read is what was last seen of it; what "
        "is stored is kept on this machine and brought over when it is back."
    )
