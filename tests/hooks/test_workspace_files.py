from everkept.hooks.workspace import compute_mark


def test_a_text_has_a_mark_that_does_not_tell_it() -> None:
    assert compute_mark("make test") == compute_mark("make test") != compute_mark("make tests")
    assert "make" not in compute_mark("make test")
    assert compute_mark("../\udc80").isalnum()
