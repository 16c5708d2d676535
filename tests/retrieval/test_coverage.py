from everkept.language.telling_words import stems
from everkept.retrieval.coverage import coverage


def test_coverage_is_the_share_of_the_asked_words_that_a_text_has() -> None:
    asked = stems("how did we fix the flaky login test")
    assert coverage(asked, "Fixed the login.") == 0.5
    assert coverage(asked, "flaky tests of logins, fixing") == 1.0
    assert coverage(asked, "the how and the why") == 0.0


def test_no_words_cover_nothing() -> None:
    assert coverage(stems("how did we"), "how did we") == 0.0
