"""Dates in words, such as "last week" or "in March", converted to time spans."""

import re
from calendar import monthrange
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo

from everkept.core.times import to_datetime, to_microseconds
from everkept.patterns import compile_late
from everkept.values import Value

MAX_CHARACTERS = 2_000  # the rest of a longer text is not searched for dates
OTHER_YEAR_STRENGTH = 0.5  # of the same month in another year, if the text names no year
YEARS_BACK = 30

_DAY = timedelta(days=1)


class TimeSpan(Value):
    """Time from `start` up to but excluding `end`, in microseconds since 1970."""

    start: int
    end: int
    strength: float = 1.0


def find_spans(text: str, now: int, zone: tzinfo = UTC) -> tuple[TimeSpan, ...]:
    """Return the times that a text mentions, relative to `now` in this time zone."""
    moment = to_datetime(now).astimezone(zone)
    left = text[:MAX_CHARACTERS]
    found: list[TimeSpan] = []
    for pattern, meaning in _PATTERNS:
        for match in pattern.finditer(left):
            found += _list_spans(meaning, match, moment.date(), zone)
        left = pattern.sub(" | ", left)
    return tuple(dict.fromkeys(found))


def find_date_phrases(text: str) -> tuple[str, ...]:
    """Return the phrases in which a text mentions times, in order."""
    left = text[:MAX_CHARACTERS]
    found: list[tuple[int, str]] = []
    for pattern, _ in _PATTERNS:
        found += [(match.start(), match[0]) for match in pattern.finditer(left)]
        left = pattern.sub(lambda match: "|" * len(match[0]), left)
    return tuple(words for _, words in sorted(found))


def remove_dates(text: str) -> str:

    for pattern, _ in _PATTERNS:
        text = pattern.sub(" ", text)
    return " ".join(text.split())


def compute_fit(at: int, asked: tuple[TimeSpan, ...]) -> float:
    """Return how well a moment matches the spans, 0 to 1."""
    return max((span.strength for span in asked if span.start <= at < span.end), default=0.0)


Days = tuple[date, date, float]  # first day, last day, strength
Meaning = Callable[["re.Match[str]", date], Iterator[Days]]

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)

_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DAY_OF_MONTH = r"(?P<day>[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?"
_WEEKDAY = rf"(?P<weekday>{'|'.join(_WEEKDAYS)})"
_COUNT = rf"(?P<count>\d{{1,3}}|an?|{'|'.join(_NUMBERS[1:])}|(?:a )?few|several|(?:a )?couple(?: of)?)"
_UNIT = r"(?P<unit>day|week|month|year)s?"
# Word boundaries for dates: 2023 is not a year in v1.2023 or port-2023.
_OPEN, _CLOSE = r"(?<![\w.:/-])", r"(?![\w:/-]|\.\d)"


def _list_spans(meaning: Meaning, match: "re.Match[str]", today: date, zone: tzinfo) -> list[TimeSpan]:
    try:
        return [
            TimeSpan(_compute_start(first, zone), _compute_start(last + _DAY, zone), strength)
            for first, last, strength in meaning(match, today)
        ]
    except (ValueError, OverflowError):
        return []  # 31 February, or a thousand years ago: not a date


def _compute_start(day: date, zone: tzinfo) -> int:
    moment = datetime(day.year, day.month, day.day, tzinfo=zone)
    return to_microseconds(moment)


def _yield_day(day: date) -> Iterator[Days]:
    yield day, day, 1.0


def _build_month(year: int, month: int, strength: float = 1.0) -> Days:
    return date(year, month, 1), date(year, month, monthrange(year, month)[1]), strength


def _parse_month(match: "re.Match[str]") -> int:
    name = match["month"].lower()[:3]
    return next(i for i, month in enumerate(_MONTHS, start=1) if month.startswith(name))


def _parse_numbers(match: "re.Match[str]", today: date) -> Iterator[Days]:
    return _yield_day(date(int(match["year"]), int(match["month"]), int(match["day"])))


def _parse_either_order(match: "re.Match[str]", today: date) -> Iterator[Days]:
    """Yield both readings: 8/5/2023 is in May or in August, depending on the writer."""
    year, one, other = int(match["year"]), int(match["one"]), int(match["other"])
    for month, day in {(one, other), (other, one)}:
        if month <= 12 and day <= monthrange(year, month)[1]:
            yield from _yield_day(date(year, month, day))


def _parse_day_and_month(match: "re.Match[str]", today: date) -> Iterator[Days]:
    month, day, year = _parse_month(match), int(match["day"]), match["year"]
    if year:
        yield from _yield_day(date(int(year), month, day))
        return
    latest = today.year - ((month, day) > (today.month, today.day))
    for other in range(latest + 1, latest - YEARS_BACK, -1):
        if day <= monthrange(other, month)[1]:
            that_day = date(other, month, day)
            yield that_day, that_day, 1.0 if other == latest else OTHER_YEAR_STRENGTH


def _parse_month_of_year(match: "re.Match[str]", today: date) -> Iterator[Days]:
    yield _build_month(int(match["year"]), _parse_month(match))


def _parse_month_alone(match: "re.Match[str]", today: date) -> Iterator[Days]:
    month = _parse_month(match)
    which = match.groupdict().get("which", "").lower()
    latest = today.year - (month > today.month or (which == "last" and month == today.month))
    yield _build_month(latest, month)
    if which not in ("last", "this"):
        for other in range(latest + 1, latest - YEARS_BACK, -1):
            if other != latest:
                yield _build_month(other, month, OTHER_YEAR_STRENGTH)


def _parse_year(match: "re.Match[str]", today: date) -> Iterator[Days]:
    year = int(match["year"])
    yield date(year, 1, 1), date(year, 12, 31), 1.0


def _parse_near_day(match: "re.Match[str]", today: date) -> Iterator[Days]:
    word = " ".join(match[0].lower().split())
    away = {"day before yesterday": -2, "yesterday": -1, "last night": -1, "tomorrow": 1}
    return _yield_day(today + timedelta(days=away.get(word, 0)))


def _parse_ago(match: "re.Match[str]", today: date) -> Iterator[Days]:
    """Yield a span that is exact for days. The longer the unit, the less exactly people count."""
    fewest, most = _parse_count(match["count"])
    unit = match["unit"].lower()
    if unit == "day":
        yield today - timedelta(days=most), today - timedelta(days=fewest), 1.0
        return
    around = {"week": 3, "month": 15, "year": 183}[unit]
    yield (
        _subtract(today, unit, most) - timedelta(days=around),
        min(_subtract(today, unit, fewest) + timedelta(days=around), today),
        1.0,
    )


def _parse_until_now(match: "re.Match[str]", today: date) -> Iterator[Days]:
    """Yield the span up to today for phrases such as "the last three days" or "the past week"."""
    _, most = _parse_count(match.groupdict().get("count", "one"))
    yield _subtract(today, match["unit"].lower(), most), today, 1.0


def _parse_hours_ago(match: "re.Match[str]", today: date) -> Iterator[Days]:
    yield today - _DAY, today, 1.0


def _parse_count(word: str) -> tuple[int, int]:
    word = word.lower()
    if "few" in word or word == "several":
        return 2, 6
    if "couple" in word:
        return 2, 3
    exact = int(word) if word.isdigit() else 1 if word in ("a", "an") else _NUMBERS.index(word)
    return exact, exact


def _subtract(day: date, unit: str, count: int) -> date:
    if unit in ("day", "week"):
        return day - timedelta(days=count * (7 if unit == "week" else 1))
    months = day.year * 12 + day.month - 1 - count * (12 if unit == "year" else 1)
    year, month = divmod(months, 12)
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def _parse_calendar(match: "re.Match[str]", today: date) -> Iterator[Days]:
    """Yield calendar units: last week is Monday to Sunday, this month ends with the month."""
    step = {"last": -1, "previous": -1, "this": 0, "next": 1}[match["which"].lower()]
    unit = match["unit"].lower()
    if unit in ("week", "weekend"):
        monday = today + timedelta(weeks=step, days=-today.weekday())
        yield monday + timedelta(days=5 if unit == "weekend" else 0), monday + 6 * _DAY, 1.0
    elif unit == "month":
        that_day = _subtract(today.replace(day=1), "month", -step)
        yield _build_month(that_day.year, that_day.month)
    else:
        yield date(today.year + step, 1, 1), date(today.year + step, 12, 31), 1.0


def _parse_weekday(match: "re.Match[str]", today: date) -> Iterator[Days]:
    which = (match["which"] or "").lower()
    passed = (today.weekday() - _WEEKDAYS.index(match["weekday"].lower())) % 7
    if which == "next":
        return _yield_day(today + timedelta(days=7 - passed))
    if which == "last" and passed == 0:
        passed = 7
    return _yield_day(today - timedelta(days=passed))


def _compile_pattern(expression: str, flags: int = re.IGNORECASE) -> "re.Pattern[str]":
    return compile_late(f"{_OPEN}{expression}{_CLOSE}", flags)


_CUE = r"(?:in|during|since|until|before|after|of|by|from|around|early|late|mid)"
_SURE_MONTH = "|".join(m.capitalize() for m in _MONTHS if m not in ("march", "may"))

# Most specific first: later patterns do not see text that an earlier one has matched.
_PATTERNS: tuple[tuple["re.Pattern[str]", Meaning], ...] = (
    (_compile_pattern(r"(?P<year>\d{4})[-/](?P<month>\d\d?)[-/](?P<day>\d\d?)(?:T[\d:.]+Z?)?"), _parse_numbers),
    (_compile_pattern(r"(?P<one>\d\d?)[/.](?P<other>\d\d?)[/.](?P<year>(?:19|20)\d\d)"), _parse_either_order),
    (_compile_pattern(rf"{_DAY_OF_MONTH}\s+(?:of\s+)?{_MONTH}(?:,?\s+(?:of\s+)?{_YEAR})?"), _parse_day_and_month),
    (_compile_pattern(rf"{_MONTH}\s+(?:the\s+)?{_DAY_OF_MONTH}(?:,?\s+{_YEAR})?"), _parse_day_and_month),
    (_compile_pattern(rf"{_MONTH},?\s+(?:of\s+)?{_YEAR}"), _parse_month_of_year),
    (_compile_pattern(rf"{_COUNT}\s+{_UNIT}\s+ago"), _parse_ago),
    (_compile_pattern(r"(?:an?|\d+|a few|few|several)\s+(?:hour|minute)s?\s+ago"), _parse_hours_ago),
    (_compile_pattern(rf"(?:last|past|previous)\s+(?:{_COUNT}\s+)(?P<unit>day|week|month|year)s"), _parse_until_now),
    (_compile_pattern(r"past\s+(?P<unit>day|week|month|year)"), _parse_until_now),
    (_compile_pattern(r"(?P<which>last|previous|this|next)\s+(?P<unit>weekend|week|month|year)"), _parse_calendar),
    (
        _compile_pattern(r"day before yesterday|yesterday|last night|today|tonight|this morning|tomorrow"),
        _parse_near_day,
    ),
    (_compile_pattern(rf"(?:(?P<which>last|this|next)\s+)?{_WEEKDAY}"), _parse_weekday),
    # May and March are also ordinary words. They count as months after a word such as "in", or capitalized inside a
    # sentence.
    (_compile_pattern(rf"(?:{_CUE}\s+)?(?P<which>last|this)\s+{_MONTH}"), _parse_month_alone),
    (_compile_pattern(rf"{_CUE}[\s-]+{_MONTH}"), _parse_month_alone),
    (_compile_pattern(rf"(?P<month>{_SURE_MONTH})", 0), _parse_month_alone),
    (_compile_pattern(r"(?<=[a-z,] )(?P<month>March|May)", 0), _parse_month_alone),
    (_compile_pattern(_YEAR), _parse_year),
)
