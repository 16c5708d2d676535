"""The time that a question is about: conversations of another one are not meant."""

import re
from datetime import UTC, datetime, timedelta, tzinfo

from everkept.retrieval.dates import said, spans
from everkept.values import Value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Who talks about a time is not near it.
_TALKING = re.compile(
    r"\b(?:talk|speak|spoke|discuss|ask|say|said|decid|learn|thought|think)\w*\s+about\s+$",
    re.IGNORECASE,
)
_CUE = re.compile(
    r"(since|after|before|until|till|by|around|about|near|between)\s+(?:the\s+)?$", re.IGNORECASE
)


class Period(Value):
    """From the first moment to the last one, as somebody has `said` it; None is open."""

    said: str
    after: int | None
    before: int | None

    def days(self, zone: tzinfo) -> str:
        """In the words of an answer."""
        first = None if self.after is None else _day(self.after, zone)
        last = None if self.before is None else _day(self.before, zone)
        if first is None:
            return f"until {last}"
        if last is None:
            return f"since {first}"
        return f"on {first}" if first == last else f"from {first} to {last}"


def period(question: str, now: int, zone: tzinfo) -> Period | None:
    """None where a question names no time, or several, or one that is only near what is meant."""
    mentions = said(question)
    sure = [span for span in spans(question, now, zone) if span.strength == 1.0]
    if len(mentions) != 1 or not sure:
        return None
    words = mentions[0]
    start, end = min(span.start for span in sure), max(span.end for span in sure)
    match _cue(question, words):
        case "since":
            return Period(words, start, None)
        case "after":
            return Period(words, end, None)
        case "before":
            return Period(words, None, start - 1)
        case "until" | "till" | "by":
            return Period(words, None, end - 1)
        case "in":
            return Period(words, start, end - 1)
        case _:
            return None


def _cue(question: str, words: str) -> str:
    """The word that says how a time is meant, in front of it or as its first one."""
    before = question[: question.find(words)]
    if _TALKING.search(before):
        return "in"
    found = _CUE.search(before) or _CUE.match(f"{words.split()[0]} ")
    if found is not None:
        return found[1].lower()
    return "around" if words.split()[0].lower() in ("early", "late", "mid") else "in"


def _day(at: int, zone: tzinfo) -> str:
    return (_EPOCH + timedelta(microseconds=at)).astimezone(zone).date().isoformat()
