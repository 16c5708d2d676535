"""Regular expressions that are compiled at their first use.

Most processes use few of them. Compiling all patterns of a start took 27 ms.
"""

import re
from typing import Any, AnyStr, cast

_METHODS = ("findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")


def compile_late(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return an object that behaves like the compiled pattern and compiles it at the first use."""
    return cast("re.Pattern[AnyStr]", _LatePattern(pattern, flags))


class _LatePattern:
    def __init__(self, pattern: Any, flags: int) -> None:
        self.pattern = pattern
        self._given = flags

    def __getattr__(self, name: str) -> Any:
        """Copy the methods of the compiled pattern. Later uses do not come here."""
        if name.startswith("__"):
            raise AttributeError(name)
        compiled = re.compile(self.pattern, self._given)
        vars(self).update({method: getattr(compiled, method) for method in _METHODS})
        return getattr(compiled, name)
