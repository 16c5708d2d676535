"""The names that a file of a bank may have, which of them mean the same file, and its URIs."""

import re
import unicodedata
from collections.abc import Collection, Iterable
from urllib.parse import quote, unquote

from everkept.core.files import checked_path
from everkept.core.text import clipped
from everkept.errors import InvalidInput, Refused, visible
from everkept.families.bank.model import LEGACY_NAMES

ENDINGS = (".md", ".json")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[^\W\d_]+")
# Format characters, which nobody sees, and others that no font shows the same way.
_UNSEEN = frozenset({"Cf", "Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
# Scripts with letters that look like each other's.
_ALIKE = frozenset({"LATIN", "CYRILLIC", "GREEK"})

# A disk that knows no case has them in any.
_OLD_NAMES = {old.lower(): today for today, old in LEGACY_NAMES.items()}


def checked_name(name: str) -> str:
    """Gives the name back; Refused for one that is no file at the root of a bank."""
    parts = checked_path(name)
    if len(parts) != 1 or not name.lower().endswith(ENDINGS) or name.startswith("."):
        shown = visible(clipped(name, 120))
        raise Refused(
            f'"{shown}" is no name of a bank\'s file.',
            hint="Files lie at the root of the bank and end in .md or .json.",
            name=shown,
        )
    return name


def checked_new_name(name: str) -> str:
    """Refused also for one that looks like another; what is there under such a name can be read."""
    checked_name(name)
    if reason := _deceit(unicodedata.normalize("NFC", name)):
        shown = ascii(clipped(name, 120))[1:-1]
        raise Refused(
            f'"{shown}" is no name for a new file: {reason}.',
            hint="Use letters, digits, '-', '_' and '.'.",
            name=shown,
        )
    return name


def leads_astray(target: str | None) -> bool:
    """Return whether a link leads to what is not a file at the root of the bank."""
    if target is None:
        return False
    try:
        checked_name(target)
    except Refused:
        return True
    return False


def written_name(name: str) -> str:
    """The form in which new files are written: activeContext.md becomes active-context.md."""
    plain = unicodedata.normalize("NFC", name)
    lower = plain.lower()
    if known := _OLD_NAMES.get(lower):
        return known
    return plain if plain == lower else _HUMP.sub("-", plain).lower()


def candidates(name: str) -> tuple[str, ...]:
    """Where to look for a file, the first that is there is it.

    Of a core file's two names the one of today wins; other files are what they are called.
    """
    today = written_name(name)
    if today in LEGACY_NAMES:
        return tuple(dict.fromkeys((today, LEGACY_NAMES[today])))
    forms = (name, *(unicodedata.normalize(form, name) for form in ("NFC", "NFD")), today)
    return tuple(dict.fromkeys(forms))


def matching(names: Iterable[str], name: str) -> str | None:
    """The name among those of a folder that means this file, in whatever spelling."""
    there = set(names)
    if found := next((form for form in candidates(name) if form in there), None):
        return found
    alike = _alike(there, name)
    if len(alike) > 1:
        shown = " or ".join(map(visible, alike))
        raise InvalidInput(
            f'"{visible(name)}" may be {shown}.', hint="Give the name exactly.", filenames=alike
        )
    return alike[0] if alike else None


def find_present(names: Collection[str], wanted: Iterable[str]) -> list[str]:
    """Return those of the wanted names that a folder has, in whatever spelling."""
    there = set(names)
    found = {name: any(form in there for form in candidates(name)) for name in wanted}
    if not all(found.values()):  # only then is every name of the folder looked at
        folded, written = set(map(_folded, there)), set(map(written_name, there))
        for name in found:
            found[name] |= _folded(name) in folded or written_name(name) in written
    return [name for name, is_present in found.items() if is_present]


def repeated(names: Iterable[str]) -> tuple[str, str] | None:
    """Two of the names that mean one file."""
    seen: dict[str, str] = {}
    for name in names:
        keys = {f"folded {_folded(name)}", f"written {written_name(name)}"}
        if known := next((seen[key] for key in keys if key in seen), None):
            return known, name
        seen |= dict.fromkeys(keys, name)
    return None


def _alike(names: Iterable[str], name: str) -> list[str]:
    """What differs in case alone; where there is nothing, what would be written the same."""
    folded, written = _folded(name), written_name(name)
    found = [other for other in names if _folded(other) == folded]
    return sorted(found or (other for other in names if written_name(other) == written))


def _folded(name: str) -> str:
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _deceit(name: str) -> str | None:
    for character in name:
        kind = unicodedata.category(character)
        if kind in _UNSEEN or (kind == "Zs" and character != " "):
            return f"it holds the character U+{ord(character):04X}, which cannot be seen"
    if unicodedata.normalize("NFKC", name) != name:
        return "it holds characters that look like plain ones"
    if any(len(_scripts(word.group())) > 1 for word in _WORD.finditer(name)):
        return "a word of it mixes alphabets that look alike"
    return None


def _scripts(word: str) -> set[str]:
    return {unicodedata.name(letter, "?").split()[0] for letter in word} & _ALIKE


SCHEME = "memory-bank://"
GRAPH_VIEW = "graph/graph.md"  # the one document that is no file at the bank's root


def uri_of(path: str) -> str:
    return SCHEME + quote(path, safe="/")


def path_in(uri: str) -> str:
    """The path of the document inside its bank. InvalidInput where there can be none."""
    try:
        path = unquote(uri.removeprefix(SCHEME), errors="strict").removesuffix("/")
        if path == GRAPH_VIEW:
            return path
        return checked_name(path if path.lower().endswith(ENDINGS) else f"{path}.md")
    except (UnicodeDecodeError, Refused) as error:
        raise InvalidInput(
            f"Invalid URI format: {ascii(uri)[1:-1]}.",
            hint="A document's address is memory-bank:// and the name of a file of the bank.",
            uri=ascii(uri)[1:-1],
        ) from error
