from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.families.history.searches import (
    CLOCK_SKEW_MICROSECONDS,
    TimeRangeName,
    compute_bounds,
    compute_start,
    find_nearest_project,
    match_named_projects,
    match_projects,
)

BERLIN = ZoneInfo("Europe/Berlin")
SHOP, SHOP_WEB = "/home/ann/shop", "/home/ann/shop/packages/web"
API, WINDOWS = "/srv/work/shop-api", "C:\\Users\\Ann\\shop"
KNOWN = [SHOP, SHOP_WEB, API, WINDOWS, ""]


def micro(text: str, zone: tzinfo = UTC) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("time_range", "now", "zone", "start"),
    [
        ("today", "2026-03-10T15:30:00", UTC, "2026-03-10T00:00:00"),
        ("today", "2026-03-10T00:00:00", UTC, "2026-03-10T00:00:00"),
        ("today", "2026-03-10T01:30:00", timezone(timedelta(hours=-5)), "2026-03-10T00:00:00"),
        ("today", "2026-03-29T20:00:00", BERLIN, "2026-03-29T00:00:00"),
        ("week", "2026-03-10T15:30:00", UTC, "2026-03-03T15:30:00"),
        ("month", "2026-03-10T15:30:00", UTC, "2026-02-10T15:30:00"),
        ("month", "2026-03-31T12:00:00", UTC, "2026-02-28T12:00:00"),
        ("month", "2024-03-30T12:00:00", UTC, "2024-02-29T12:00:00"),
        ("month", "2026-01-05T12:00:00", UTC, "2025-12-05T12:00:00"),
    ],
)
def test_a_time_range_begins_where_people_mean_it(
    time_range: TimeRangeName, now: str, zone: tzinfo, start: str
) -> None:
    assert compute_start(time_range, micro(now, zone), zone) == micro(start, zone)


def test_all_time_has_no_beginning_and_no_end() -> None:
    assert compute_bounds("all", 0, UTC) == (None, None)


@pytest.mark.parametrize("time_range", ["today", "week", "month"])
def test_the_future_is_in_no_time_range(time_range: TimeRangeName) -> None:
    now = micro("2026-03-10T15:30:00")
    assert compute_bounds(time_range, now, UTC) == (compute_start(time_range, now, UTC), now + CLOCK_SKEW_MICROSECONDS)


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        (SHOP, [SHOP, SHOP_WEB]),
        (SHOP + "/", [SHOP, SHOP_WEB]),
        ("shop", [SHOP, SHOP_WEB, WINDOWS]),
        ("SHOP", [SHOP, SHOP_WEB, WINDOWS]),
        ("ann/shop", [SHOP, SHOP_WEB, WINDOWS]),
        ("~/shop", [SHOP, SHOP_WEB, WINDOWS]),
        ("./shop-api", [API]),
        ("web", [SHOP_WEB]),
        ("packages", [SHOP_WEB]),  # no conversation was there, but one below
        ("c:/users/ann", [WINDOWS]),
        ("/srv", [API]),
        ("/shop", []),
        ("sho", []),
        ("api", []),
        ("/", []),
    ],
)
def test_a_project_is_meant_by_its_path_or_its_last_parts(wanted: str, meant: list[str]) -> None:
    assert match_projects(wanted, KNOWN) == meant


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (SHOP, [SHOP, SHOP_WEB]),
        (SHOP + "/", [SHOP, SHOP_WEB]),
        ("/home/ann", [SHOP, SHOP_WEB]),
        ("/home/ann/sho", []),
        ("/home/ann/Shop", []),
        ("shop", [SHOP, SHOP_WEB, WINDOWS]),
        ("SHOP", [WINDOWS]),  # whose file names know no case
        ("ann/shop", [SHOP, SHOP_WEB, WINDOWS]),
        ("web", [SHOP_WEB]),
        ("packages", []),
        ("ann", []),
        ("~/shop", []),
        ("./shop", []),
        ("c:/users/ann", [WINDOWS]),
        ("C:\\USERS\\ANN\\shop\\", [WINDOWS]),
        ("/Users/Ann/shop", []),
        ("\\\\home\\ann", []),
        ("/", []),
        (" ", []),
    ],
)
def test_who_removes_a_project_must_name_it_exactly(wanted: str, named: list[str]) -> None:
    assert match_named_projects(wanted, KNOWN) == named


@pytest.mark.parametrize(("wanted", "near"), [("shop-apo", API), ("/srv/work/shopapi", API), ("zzzzzz", None)])
def test_the_nearest_project_is_the_one_that_was_mistyped(wanted: str, near: str | None) -> None:
    assert find_nearest_project(wanted, KNOWN) == near


@given(st.text(), st.lists(st.text()))
def test_no_filter_is_an_error(wanted: str, known: list[str]) -> None:
    assert set(match_projects(wanted, known)) <= set(known)
    assert set(match_named_projects(wanted, known)) <= set(known)
    assert find_nearest_project(wanted, known) in (None, *known)
