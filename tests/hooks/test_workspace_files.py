from everkept.hooks.workspace import mark


def test_a_text_has_a_mark_that_does_not_tell_it() -> None:
    assert mark("make test") == mark("make test") != mark("make tests")
    assert "make" not in mark("make test")
    assert mark("../\udc80").isalnum()
