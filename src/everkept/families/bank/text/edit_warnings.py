"""What whoever edited files should know about them."""

from collections.abc import Mapping

from everkept.families.bank.text.encodings import as_bytes, decoding_warning
from everkept.families.bank.text.markdown import left_open
from everkept.tools.tool import Warned


def edit_warnings(texts: Mapping[str, str]) -> list[Warned]:
    """About files by their names: what is no UTF-8 in them, and what nobody closed."""
    found: list[Warned] = []
    for name, text in texts.items():
        if warning := decoding_warning(name, as_bytes(text)):
            found.append(warning)
        if opened := left_open(text):
            message = f"{name}: {opened}, and hides what follows where it is shown. Close it."
            found.append(Warned("left_open", message))
    return found
