"""The config file as it is written for somebody who has none: every setting, commented out."""

import inspect
import re
from typing import Any, get_type_hints

from everkept.settings.sources import NOT_IN_A_FILE
from everkept.settings.values import choices_of
from everkept.values import MISSING, fields

# Set by a launcher or for one run; in a file they would surprise.
_ELSEWHERE = NOT_IN_A_FILE | {"path", "session_id", "launcher"}

_DESCRIBED = re.compile(r"#: (?P<text>.+)\n\s+(?P<name>\w+):")

_BODY = """
# Everkept

The settings stand at the top of this file, between the two lines of `---`. Take away a `# ` to
give a setting another value. A flag of a command goes before an environment variable, and that
before this file; `everkept config` shows each value and where it comes from.
"""


def template(settings: type[Any]) -> str:
    """The text of a new file; the comments beside the fields say what each is for."""
    texts = {found["name"]: found["text"] for found in _DESCRIBED.finditer(_source(settings))}
    hints = get_type_hints(settings)
    lines = ["---"]
    for field in fields(settings):
        if field.name not in _ELSEWHERE:
            lines += _commented(texts.get(field.name, ""), hints[field.name])
            lines += [f"# {field.name}: {_written(field.default)}".rstrip(), ""]
    return "\n".join([*lines[:-1], "---", _BODY])


def _source(settings: type[Any]) -> str:
    try:
        return inspect.getsource(settings)
    except OSError:  # a package without its sources: the file is only less wordy
        return ""


def _commented(text: str, kind: Any) -> list[str]:
    choices = choices_of(kind)
    allowed = f" One of {', '.join(choices)}." if choices else ""
    return [f"# {text}{allowed}"] if text or allowed else []


def _written(default: Any) -> str:
    if default is MISSING or default is None:
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)
