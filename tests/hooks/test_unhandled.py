from everkept.hooks.entry import HANDLED_EVENTS
from everkept.hooks.unhandled import UNHANDLED_EVENTS, end_if_unhandled


def test_no_event_that_is_handled_ends_early() -> None:
    assert UNHANDLED_EVENTS & set(HANDLED_EVENTS) == set()
    for event in (*HANDLED_EVENTS, "stop", "", "--data-dir"):
        end_if_unhandled([event])
    end_if_unhandled([])
