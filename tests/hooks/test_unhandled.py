from everkept.hooks.entry import HANDLED
from everkept.hooks.unhandled import EVENTS, end_if_unhandled


def test_no_event_that_is_handled_ends_early() -> None:
    assert EVENTS & set(HANDLED) == set()
    for event in (*HANDLED, "stop", "", "--data-dir"):
        end_if_unhandled([event])
    end_if_unhandled([])
