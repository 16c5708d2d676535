"""Where a SurrealDB server listens, however a person wrote it, and who we are there."""

from urllib.parse import SplitResult, urlsplit

from everkept.errors import InvalidInput
from everkept.values import Value, field

SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
ENDPOINT = "/rpc"
EXAMPLE = "An address looks like ws://127.0.0.1:8000 or wss://db.example.org."


class Address(Value):
    """The endpoint of the websocket, and the server as messages show it."""

    url: str
    shown: str
    is_secure: bool


class Credentials(Value):
    """Of a user of the root, or of the namespace; without a name, nobody signs in."""

    user: str
    password: str = field(repr=False)


def parsed(text: str) -> Address:
    """Raises InvalidInput for what is no address of a server, or has a password in it."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise _wrong(text, "is no address") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(
            "The address of SurrealDB holds a user or password.",
            hint="Give them apart from it: they would be shown wherever the address is.",
        )
    if parts.scheme not in SCHEMES:
        raise _wrong(text, f"must begin with {', '.join(f'{s}://' for s in SCHEMES)}")
    if not parts.hostname or parts.query or parts.fragment or port == 0:
        raise _wrong(text, "must have a host, and neither ? nor #")
    return _address(parts)


def _address(parts: SplitResult) -> Address:
    scheme = SCHEMES[parts.scheme]
    path = parts.path.rstrip("/").removesuffix(ENDPOINT)
    shown = f"{scheme}://{parts.netloc}{path}"
    return Address(shown + ENDPOINT, shown, scheme == "wss")


def _wrong(text: str, why: str) -> InvalidInput:
    shown = text.rpartition("@")[2]  # before it may stand a password
    return InvalidInput(f'The address of SurrealDB "{shown}" {why}.', hint=EXAMPLE)
