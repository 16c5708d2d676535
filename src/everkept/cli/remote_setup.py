"""`everkept setup CLIENT --url`: the address of a team's server, and whether it answers."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from everkept.accounts.grants import SECRET_PREFIXES
from everkept.clients.config_files import ClientProgram
from everkept.clients.remote_entries import REMOTE_FORMATS, RemoteConfigPart
from everkept.core.extras import expect_installed
from everkept.core.mcp import PROTECTED_RESOURCE_PATH, UpstreamEndpoint, UpstreamSettings
from everkept.core.secrets import mask_text
from everkept.core.text import format_count
from everkept.errors import InvalidInput, Refused, Unavailable, UpstreamError, UpstreamUnavailable, escape_name
from everkept.settings.locations import is_loopback

HEADER_FILE = "remote-headers.txt"  # in the data folder
CONNECT_SECONDS = 10.0
_OK, _UNAUTHORIZED, _FORBIDDEN = 200, 401, 403
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def build_remote_part(
    client: ClientProgram, file: Path, url: str, token_variable: str | None, data_dir: Path, *, force: bool
) -> RemoteConfigPart:
    """Return the entry for a server at an address. Raise InvalidInput for an unsafe address or variable."""
    if token_variable is not None:
        _require_variable(token_variable)
    needs_file = client.name not in REMOTE_FORMATS and token_variable is not None
    header_file = (data_dir / HEADER_FILE).absolute() if needs_file else None
    return RemoteConfigPart(file, client, _parse_url(url), token_variable, header_file, force)


def check_connection(url: str, token_variable: str | None, environment: Mapping[str, str]) -> str:
    """Return a sentence about the server that answered. Raise Unavailable or Refused if clients cannot use it."""
    expect_installed("remote", "The check of the server")
    has_token = token_variable is not None and bool(environment.get(token_variable, "").strip())
    try:
        tools = asyncio.run(_count_tools(url, token_variable if has_token else None, environment))
    except UpstreamUnavailable as error:
        status = error.facts.get("status")
        if status not in (_UNAUTHORIZED, _FORBIDDEN):
            raise Unavailable(
                f"{error.message} Nothing was changed.", hint="Check the address. To write it anyway, pass --force."
            ) from error
        if has_token:
            raise Refused(
                f"{url} refuses the token in {token_variable}. Nothing was changed.",
                hint="Ask the owner of the server for a token.",
            ) from error
        if token_variable is None and (issuer := _find_issuer(url)) is not None:
            return f"{url} answers. Clients sign in at {issuer}."
        if token_variable is None:
            raise Refused(
                f"{url} requires a token. Nothing was changed.",
                hint="Pass --token-env NAME with the name of the variable that has the token.",
            ) from error
        return f"{url} answers. {token_variable} is not set here, so the token was not checked."
    except UpstreamError as error:
        raise Unavailable(f"{error.message} Nothing was changed.", hint="Check the address.") from error
    if token_variable is not None and not has_token:
        return f"{url} answers without a token, and offers {format_count(tools, 'tool')}."
    return f"{url} answers and offers {format_count(tools, 'tool')}."


async def _count_tools(url: str, token_variable: str | None, environment: Mapping[str, str]) -> int:
    from everkept.upstreams.http import connect_http

    headers = {} if token_variable is None else {"Authorization": f"Bearer ${{{token_variable}}}"}
    reach = UpstreamSettings(url, UpstreamEndpoint(url, headers), CONNECT_SECONDS)
    try:
        async with asyncio.timeout(3 * CONNECT_SECONDS), connect_http(reach, environment, lambda: None) as link:
            listed = await link.request("tools/list", {})
    except TimeoutError:
        raise UpstreamUnavailable(url, "did not answer in time.") from None
    tools: object = listed.get("tools")
    return len(cast(list[object], tools)) if isinstance(tools, list) else 0


def _find_issuer(url: str) -> str | None:
    """Return where the server lets people sign in, or None if it accepts only its own tokens."""
    import httpx2

    place = urlsplit(url)
    address = f"{place.scheme}://{place.netloc}{PROTECTED_RESOURCE_PATH}{place.path.rstrip('/')}"
    try:
        answer = httpx2.get(address, timeout=CONNECT_SECONDS)
        about: object = answer.json() if answer.status_code == _OK else None
    except (httpx2.HTTPError, ValueError, RecursionError):
        return None
    issuers = cast(dict[str, object], about).get("authorization_servers") if isinstance(about, dict) else None
    first = next(iter(cast(list[object], issuers)), None) if isinstance(issuers, list) else None
    return escape_name(first) if isinstance(first, str) else None


def describe_token(part: RemoteConfigPart) -> list[str]:
    """Return what the user must still do so that the client has the token."""
    if part.token_variable is None:
        return []
    if part.header_file is not None:
        return [f"Write the line `Authorization: Bearer TOKEN` into {part.header_file}. Let only yourself read it."]
    if part.format is not None and part.format.has_input:
        return [f"{part.client.title} asks for the token at the first start and stores it."]
    return [f"Set {part.token_variable} to the token in the environment in which {part.client.title} starts."]


def _parse_url(url: str) -> str:
    """Return an address that may be in a file that others read."""
    hint = "Write it like https://memory.example.com/mcp."
    try:
        parts = urlsplit(url.strip())
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid, parts = False, urlsplit("")
    if not is_valid or not url.strip().isprintable() or " " in url.strip():
        raise InvalidInput("`url` is not an address of a server.", hint=hint, argument="url")
    if parts.username is not None or parts.fragment or mask_text(url)[1]:
        raise InvalidInput(
            "`url` contains a password, a token or a fragment.",
            hint="Use the plain address, and pass --token-env NAME for the token.",
            argument="url",
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise InvalidInput(
            "`url` begins with http, so others on the network could read the token.",
            hint="Use https. To turn it on, pass --certificate to `everkept serve`.",
            argument="url",
        )
    return url.strip()


def _require_variable(name: str) -> None:
    if name.startswith(tuple(SECRET_PREFIXES.values())) or mask_text(name)[1]:
        raise InvalidInput(
            "`token_env` is a token; it must be the name of a variable.",
            hint="Put the token into a variable, such as EVERKEPT_TOKEN, and pass that name.",
            argument="token_env",
        )
    if not _VARIABLE.fullmatch(name):
        raise InvalidInput(
            f'`token_env` is "{name}"; it must be the name of a variable, such as EVERKEPT_TOKEN.', argument="token_env"
        )
