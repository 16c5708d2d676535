"""The number of examples that a property is tried with."""

from hypothesis import settings


def examples(count: int) -> int:
    """Return the count if the tests of the module run in full, otherwise a quarter of it."""
    return count if settings.get_current_profile_name() == "thorough" else max(count // 4, 5)
