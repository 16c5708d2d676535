"""Forms of a server's address that other programs write: with a login, or to a socket of this machine.

The login becomes the settings `database_user` and `database_password`, so no address that is stored or shown has it.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from everkept.settings.setting_values import GivenSetting, SecretText

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_LOGIN_SETTINGS = {"user": "database_user", "password": "database_password"}  # by their names in an address
# The scheme, and what is before the last "@" of the server's part.
_LOGIN = re.compile(r"(?P<scheme>[A-Za-z]+://)(?P<login>[^/?#]*)@(?P<rest>.*)", re.DOTALL)


def separate_login(given: Mapping[str, GivenSetting]) -> dict[str, GivenSetting]:
    """Return the settings with the user and password of the address in their own settings.

    Raise Refused if another setting names another user or password, unless the address is for this run.
    """
    address = given.get("database_url")
    if address is None:
        return {**given}
    text, login = _split_login(str(address.value))
    settings = {**given, "database_url": address._replace(value=text)}
    for name, value in login.items():
        named = given.get(_LOGIN_SETTINGS[name])
        if named is not None and str(named.value) != value and not (address.is_flag and not named.is_flag):
            raise named.build_refusal(f"`{address.key}` names another {name}. Remove one of them.")
        value = SecretText(value) if name == "password" else value
        setting = _LOGIN_SETTINGS[name]
        settings[setting] = GivenSetting(setting, value, address.key, address.source, address.file, address.line)
    return settings


def _split_login(text: str) -> tuple[str, dict[str, str]]:
    """Return the address without its login, and the user and password that it gives."""
    from urllib.parse import unquote

    login: dict[str, str] = {}
    if found := _LOGIN.fullmatch(text):
        user, colon, password = found["login"].partition(":")
        text = found["scheme"] + found["rest"]
        login["user"] = unquote(user)
        login |= {"password": unquote(password)} if colon else {}
    start, mark, query = text.partition("?")
    if mark and text.lower().startswith("postgres"):  # whose own programs accept them here too
        kept: list[str] = []
        for part in query.split("&"):
            name, _, value = part.partition("=")
            if name in _LOGIN_SETTINGS:
                login[name] = unquote(value)
            else:
                kept.append(part)
        text = start + (f"?{'&'.join(kept)}" if kept or not login else "")
    return text, login


def get_socket_folder(parts: "SplitResult") -> str | None:
    """Return the folder of a PostgreSQL server's socket, or None for a server with a host."""
    from urllib.parse import parse_qsl

    return None if parts.netloc else dict(parse_qsl(parts.query)).get("host")


def normalize_socket(parts: "SplitResult") -> "SplitResult":
    """Write the address of a socket in one way: the folder after the `?`. Others stay unchanged."""
    from urllib.parse import quote, unquote

    host, colon, port = parts.netloc.partition(":")
    folder = unquote(host)
    if not folder.startswith("/"):
        return parts
    query = "&".join([f"host={quote(folder)}", *([f"port={port}"] if colon else []), *filter(None, [parts.query])])
    return parts._replace(netloc="", query=query)


def format_address(parts: "SplitResult") -> str:
    """Join the parts. `geturl` drops the slashes before an empty host."""
    if parts.netloc:
        return parts.geturl()
    return f"{parts.scheme}://{parts.path}" + (f"?{parts.query}" if parts.query else "")
