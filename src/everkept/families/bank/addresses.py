"""Where a path leads that a caller gives: seen from the folder of the start, there or here."""

import posixpath
from pathlib import PurePath
from urllib.parse import quote

from everkept.errors import InvalidInput
from everkept.families.bank.banks import SSH, Banks


async def reached(banks: Banks, path: str) -> str:
    """The address of a folder that a caller may use; Refused for others."""
    address = resolved(path, banks.options.place)
    await banks.check_named(address)
    return address


def resolved(path: str, place: str | None) -> str:
    """The address of a folder; relative paths begin at `place`, the folder of the start.

    Where that is on another machine, so is every path that names none itself.
    """
    if "://" in path:
        return _checked(path)
    if place is not None and place.startswith(SSH):
        return _there(path, place)
    if path.startswith("~") or PurePath(path).is_absolute():
        return path
    if place is None:
        raise InvalidInput(
            f'"{path}" is relative, and no folder was chosen at the start.',
            hint="Give an absolute path.",
            argument="path",
            value=path,
        )
    return str(_without_dots(PurePath(place) / path))


def _checked(path: str) -> str:
    """As it was given: once the bank's folder is joined to it, nobody knows it again.

    What an address with an `@` lacks is told by who opens it, without what may be a password.
    """
    scheme, _, rest = path.partition("://")
    if scheme.lower() != "ssh":
        raise _invalid(f'"{scheme}://…" is no address that is known here.')
    authority = rest.partition("/")[0]
    if "@" not in authority:
        raise _invalid(f'"{path}" names no {"user" if authority else "machine"}.')
    return SSH + rest


def _invalid(message: str) -> InvalidInput:
    hint = "Give a path, or an address as in ssh://me@example.com/home/me/project."
    return InvalidInput(message, hint=hint, argument="path")


def _there(path: str, place: str) -> str:
    host, slash, start = place.removeprefix(SSH).partition("/")
    if path == "~" or path.startswith("~/"):
        return f"{SSH}{host}/{quote(path)}"
    joined = posixpath.normpath(posixpath.join(f"{slash}{start}" or "/", quote(path)))
    return f"{SSH}{host}{joined}"


def _without_dots(path: PurePath) -> PurePath:
    """Names of the folder itself and of the one above are worked out, as people mean them."""
    kept: list[str] = []
    for part in path.parts[1:]:
        if part == "..":
            kept = kept[:-1]
        elif part != ".":
            kept.append(part)
    return PurePath(path.anchor, *kept)
