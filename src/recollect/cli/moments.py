"""Times as people type them: a date, a time, or words such as `yesterday`."""

from datetime import datetime

from recollect.core.times import iso, now, parsed
from recollect.errors import InvalidInput
from recollect.retrieval.dates import spans


def moment(text: str | None, option: str, *, end: bool = False) -> int | None:
    """The beginning of what is meant, or its end; None where nothing was typed.

    Words mean the calendar of this machine.
    """
    if text is None:
        return None
    zone = datetime.now().astimezone().tzinfo
    assert zone is not None  # astimezone gives one
    found = spans(text, now(), zone)
    if found:
        best = max(found, key=lambda span: (span.strength, span.start))
        return best.end - 1 if end else best.start
    try:
        return parsed(text)
    except ValueError:
        raise InvalidInput(
            f'"{text}" is no time.',
            hint="Write 2026-03-01, 2026-03-01T14:30, yesterday, last week, 3 days ago …",
            argument=option,
            value=text,
        ) from None


def moment_text(text: str | None, option: str, *, end: bool = False) -> str | None:
    """The same as the tools take it."""
    at = moment(text, option, end=end)
    return None if at is None else iso(at)
