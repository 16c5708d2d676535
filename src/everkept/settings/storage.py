"""Where everything is kept: settings that follow from each other, or do not go together."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from everkept.settings.locations import is_there
from everkept.settings.servers import (
    FOR_THE_PASSWORD,
    POSTGRES,
    SURREAL,
    Kind,
    check_schema,
    is_loopback,
    server_of,
    taken_apart,
    with_database,
)
from everkept.settings.values import Given, parsed

Engine = Literal["sqlite", "surreal", "postgres"]
DeploymentMode = Literal["embedded-file", "embedded-memory", "local-server", "remote"]

EMBEDDED_MODES = ("embedded-file", "embedded-memory")
SERVER_MODES = ("local-server", "remote")
OF_A_SERVER = ("database_url", "database_user", "database_password", "database_ca")
USUAL_NAMES = {"namespace": "memory", "database": "default"}

# Not compiled before there is a name to check: most starts have none.
_NAME = r"[A-Za-z0-9_-]{1,64}"
# Each store has a database of its own, which is named after the configured one.
_OF_A_STORE = r"(?P<whole>.+)_(?:user|history|[0-9a-f]{32})"


def completed(
    given: Mapping[str, Given], in_body: Sequence[Given]
) -> tuple[dict[str, Given], list[Given]]:
    """The settings with what follows from them, and an address that is not used.

    An address in the body of a file counts only where the mode or the engine asks for one.
    """
    settings = {item.name: item for item in in_body} | dict(given)
    mode = _mode(given, settings)
    unused: list[Given] = []
    if mode is not None and mode.value in SERVER_MODES:
        settings = _of_a_server(settings, mode)
    else:
        if mode is None:
            _check_address_is_named(given)
        if address := settings.pop("database_url", None):
            unused.append(address)
    _check_names(settings)
    return settings, unused


def _mode(given: Mapping[str, Given], settings: Mapping[str, Given]) -> Given | None:
    """The one that was given, or that follows from what was."""
    address, mode, engine = (
        given.get(name) for name in ("database_url", "deployment_mode", "engine")
    )
    if address is not None and (mode is None or _is_for_this_run(address, mode)):
        return _implied_mode(address)
    if engine is None or not _is(engine, POSTGRES.engine):
        return mode
    if mode is not None and mode.value in EMBEDDED_MODES:
        raise engine.refused(
            f"{POSTGRES.title} is always a server, and `{mode.key}` is {mode.value}. Leave one of "
            "them out."
        )
    if mode is None:
        return _implied_mode(_address_for(engine, settings, POSTGRES))
    return mode


def _is_for_this_run(address: Given, mode: Given) -> bool:
    """Then it is no leftover of another mode, as it would be in a file or a variable."""
    return address.is_flag and not mode.is_flag and mode.value in EMBEDDED_MODES


def _implied_mode(address: Given) -> Given:
    is_local = is_loopback(taken_apart(address).hostname or "")
    mode = "local-server" if is_local else "remote"
    return Given("deployment_mode", mode, address.key, f"follows from {address.key}")


def _of_a_server(given: dict[str, Given], mode: Given) -> dict[str, Given]:
    kind, engine = _kind(given, mode), given.get("engine")
    address = _address_for(mode, given, kind)
    completed = {
        "deployment_mode": mode,
        "engine": engine or Given("engine", kind.engine, mode.key, f"follows from {mode.key}"),
        "database_url": address._replace(value=taken_apart(address).geturl()),
    }
    if kind is POSTGRES:
        completed |= with_database(given, address)
    _check_credentials(given, address, kind)
    if ca := given.get("database_ca"):
        completed["database_ca"] = _existing(ca)
    return given | completed


def _kind(given: Mapping[str, Given], mode: Given) -> Kind:
    """Raises Refused where the engine is not one of the server that is asked for."""
    engine, address = given.get("engine"), given.get("database_url")
    if address is not None:
        kind = server_of(address)
        asked, allowed = f"`{address.key}` asks for a server of {kind.title}", (kind.engine,)
    else:
        kind = POSTGRES if _is(engine, POSTGRES.engine) else SURREAL
        asked, allowed = f"`{mode.key}` asks for a server", (SURREAL.engine, POSTGRES.engine)
    if engine is not None and engine.value in get_args(Engine) and engine.value not in allowed:
        embedded = ", or set deployment_mode to embedded-file" * _is(engine, "sqlite")
        raise engine.refused(f"{asked}. Leave one of them out{embedded}.", allowed)
    return kind


def _address_for(asker: Given, given: Mapping[str, Given], kind: Kind) -> Given:
    """The one that was given, or where such a server listens."""
    address = given.get("database_url")
    if address is not None:
        return address
    if kind.local is None or asker.value != "local-server":
        raise asker.invalid(
            f"it needs the address of a server: set database_url, as in {kind.examples[-1]}."
        )
    return Given("database_url", kind.local, asker.key, f"default of {asker.value}")


def _check_credentials(given: Mapping[str, Given], address: Given, kind: Kind) -> None:
    user, password = given.get("database_user"), given.get("database_password")
    for item in (user, password):
        if item is not None and item.value == "":
            raise item.invalid("it must not be empty.")
    if password is not None and user is None:
        raise password.invalid("it needs a user: set database_user.")
    if kind is POSTGRES:  # which lets nobody in without a name, and some without a password
        if user is None:
            raise address.invalid(
                f"{kind.title} lets in nobody unnamed. Name the user: --database-user, or the "
                "setting database_user."
            )
    elif user is not None and password is None:
        raise user.invalid(f"it needs a password: set {FOR_THE_PASSWORD}.")


def _existing(ca: Given) -> Given:
    path: Path = parsed(Path, ca)
    if not is_there(path):
        raise ca.invalid(f"there is no file {path}.")
    return ca._replace(value=str(path.absolute()))


def _check_address_is_named(given: Mapping[str, Given]) -> None:
    """A flag or a variable may be for a command that names a server itself. Beside an embedded
    mode they are the rest of a file that once had another."""
    for item in (given[name] for name in OF_A_SERVER if name in given):
        if item.file is not None:
            raise item.refused(
                "it belongs to a database server, and none is named. Set database_url, or "
                "deployment_mode to local-server; or leave it out."
            )


def _check_names(settings: Mapping[str, Given]) -> None:
    """Whoever says that it is SQLite knows that it has no such names."""
    engine = settings.get("engine")
    for name, usual in USUAL_NAMES.items():
        item = settings.get(name)
        if item is None or (name == "database" and _is(engine, POSTGRES.engine)):
            continue  # that one is part of the address, and was checked with it
        if engine is None and item.value != usual:
            raise item.refused(
                f"it can only be {usual} here: SQLite keeps a file for each project. "
                "Set engine to surreal or postgres, or leave it out.",
                (usual,),
            )
        if not re.fullmatch(_NAME, str(item.value)):
            raise item.invalid("it must be 1 to 64 letters, digits, `_` and `-`.")
        if name == "namespace" and _is(engine, POSTGRES.engine):
            check_schema(item)
        if name == "database" and (store := re.fullmatch(_OF_A_STORE, str(item.value))):
            raise item.refused(
                f"such a name is kept for what belongs to a database {store['whole']!r}. "
                "Choose another."
            )


def _is(engine: Given | None, name: str) -> bool:
    return engine is not None and engine.value == name
