"""`everkept peer` and `health`: other people's servers, and whether this one answers."""

import asyncio
import json
import sys
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection, InvalidURL
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from everkept.accounts.grants import SECRET_PREFIXES, get_token_kind
from everkept.cli.options import add_common_options, load_command_settings
from everkept.cli.runner import echo, print_json, replace_controls
from everkept.core.peers import (
    DEFAULT_SECONDS,
    MAX_SECONDS,
    Peer,
    PeerFault,
    format_fingerprint,
    parse_address,
    parse_fingerprint,
    validate_peer_name,
    validate_token,
)
from everkept.errors import InvalidInput, NotFound, ReadOnly, Unavailable, escape_name
from everkept.peers.peer_file import PeerList
from everkept.settings import Settings
from everkept.transports.metrics import HEALTH_PATH, READY_PATH

if TYPE_CHECKING:
    from everkept.peers.client import ReachedPeer

OTHER_TOKEN_KINDS = {  # Other kinds of tokens, with what they allow.
    "owner": "is the owner's, which gives full access to that server",
    "account": "is a user's, for assistants",
}
MAX_TOKEN_CHARACTERS = 10_000  # of a file with a token


@click.group()
def peer() -> None:
    """Manage the peer servers that searches can ask."""


@peer.command()
@add_common_options
@click.argument("name")
@click.argument("address", metavar="https://HOST:PORT")
@click.option("--token-file", metavar="FILE", required=True, help="File with the token, or `-` for standard input.")
@click.option("--fingerprint", help="Fingerprint of its certificate: sha256 and 64 digits.")
@click.option("--certificate", metavar="FILE", help="Its certificate, instead of the fingerprint.")
@click.option(
    "--time-limit",
    type=click.FloatRange(0.1, MAX_SECONDS),
    default=DEFAULT_SECONDS,
    show_default=True,
    help="Time limit for an answer, in seconds.",
)
def add(
    as_json: bool,
    name: str,
    address: str,
    token_file: str,
    fingerprint: str | None,
    certificate: str | None,
    time_limit: float,
    **flags: Any,
) -> None:
    """Add a peer server that searches can ask.

    This only edits the list; it does not contact the peer. The certificate alone identifies the peer: Everkept sends
    nothing to a server with another certificate.
    """
    host, port = parse_address(address)
    made = Peer(
        name=validate_peer_name(name),
        host=host,
        port=port,
        fingerprint=_get_fingerprint(fingerprint, certificate),
        token=_check_peer_token(validate_token(_read_token(token_file))),
        time_limit=time_limit,
    )
    _open_peer_list(writes=True, **flags).add(made)
    if as_json:
        print_json(_build_row(made))
    else:
        echo(f"Added {made.name}, {made.address}. To test it, run `everkept peer check`.")


@peer.command("list")
@add_common_options
def list_peers(as_json: bool, **flags: Any) -> None:
    """List peers: addresses and certificates, never the tokens."""
    listed = _open_peer_list(**flags).read_peers()
    for sentence in listed.warnings:
        echo(f"everkept: {sentence}", err=True)
    if as_json:
        print_json({"peers": [_build_row(each) for each in listed.peers]})
        return
    if not listed.peers:
        echo("No peers yet. To add one, run `everkept peer add`.")
    for each in listed.peers:
        echo(f"{each.name}  {each.address}  {format_fingerprint(each.fingerprint)}")


@peer.command()
@add_common_options
@click.argument("name")
def remove(as_json: bool, name: str, **flags: Any) -> None:
    """Remove the peer NAME and its token."""
    _open_peer_list(writes=True, **flags).remove(name)
    if as_json:
        print_json({"removed": validate_peer_name(name)})
    else:
        echo(f"Removed {validate_peer_name(name)}.")


@peer.command()
@add_common_options
@click.argument("name", required=False)
def check(as_json: bool, name: str | None, **flags: Any) -> None:
    """Check whether all peers, or one, answer this server."""
    from everkept.peers.client import greet_peer

    listed = _open_peer_list(**flags).read_peers()
    peers = _select_peers(listed.peers, name)
    for sentence in listed.warnings:
        echo(f"everkept: {sentence}", err=True)

    async def ask() -> "list[ReachedPeer | PeerFault]":
        return list(await asyncio.gather(*map(greet_peer, peers)))

    outcomes = asyncio.run(ask())
    if as_json:
        print_json({"peers": [_describe_outcome(each) for each in outcomes]})
    elif not outcomes:
        echo("No peers yet. To add one, run `everkept peer add`.")
    else:
        for each in outcomes:
            echo(replace_controls(_format_outcome(each)))
    if any(isinstance(each, PeerFault) for each in outcomes):
        sys.exit(1)


@peer.command()
@add_common_options
def identity(as_json: bool, **flags: Any) -> None:
    """Print the fingerprint of this server's certificate.

    The first call creates the certificate, which identifies this server to peers.
    """
    from everkept.peers.identity import ensure_identity as identity_in

    settings = load_command_settings(**flags)
    if settings.read_only:
        raise ReadOnly("This command writes, but the setting read_only is on.")
    found = identity_in(settings.data_dir)
    shown = format_fingerprint(found.fingerprint)
    if as_json:
        print_json(
            {"fingerprint": shown, "certificate": str(found.certificate), "key": str(found.key), "is_new": found.is_new}
        )
        return
    echo(shown)
    echo(
        "Others name it with `everkept peer add`. Serve with it:\n"
        f'everkept serve --transport http --host 0.0.0.0 --certificate "{found.certificate}" '
        f'--certificate-key "{found.key}"',
        err=True,
    )


def _open_peer_list(*, writes: bool = False, **flags: Any) -> PeerList:
    settings = load_command_settings(**flags)
    if writes and settings.read_only:
        raise ReadOnly("This command writes, but the setting read_only is on.")
    return PeerList(settings.data_dir)


def _get_fingerprint(given: str | None, certificate: str | None) -> str:
    if (given is None) == (certificate is None):
        raise InvalidInput(
            "A peer needs either --fingerprint or --certificate.",
            hint="To print the fingerprint, run `everkept peer identity` on its machine.",
        )
    if given is not None:
        return parse_fingerprint(given)
    from everkept.peers.identity import read_fingerprint

    return read_fingerprint(Path(cast(str, certificate)))


def _read_token(file: str) -> str:
    """Read the token from a file or standard input, because others can see the options of a program."""
    if file == "-":
        return sys.stdin.readline(MAX_TOKEN_CHARACTERS)
    try:
        with Path(file).open(encoding="utf-8") as stream:
            return stream.read(MAX_TOKEN_CHARACTERS)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InvalidInput(
            f"{file} cannot be read ({reason}).",
            hint="Check the path and its permissions.",
            argument="token_file",
            value=file,
        ) from None


def _check_peer_token(token: str) -> str:
    """Refuse other kinds of tokens, which may allow more here than they should."""
    if (kind := get_token_kind(token)) != "peer":
        prefix = SECRET_PREFIXES[kind]
        what = OTHER_TOKEN_KINDS[kind] if token.startswith(prefix) else "is not a token of Everkept"
        raise InvalidInput(
            f"The token {what}. A peer's token begins with {SECRET_PREFIXES['peer']}.",
            hint="Ask the owner of that server to run `everkept token --peer YOUR-NAME`.",
            argument="token_file",
        )
    return token


def _select_peers(peers: tuple[Peer, ...], name: str | None) -> list[Peer]:
    wanted = None if name is None else validate_peer_name(name)
    chosen = [each for each in peers if wanted in (None, each.name)]
    if wanted is not None and not chosen:
        raise NotFound("peer", wanted, hint="List them with `everkept peer list`.")
    return chosen


def _build_row(each: Peer) -> dict[str, Any]:
    return {
        "name": each.name,
        "address": each.address,
        "fingerprint": format_fingerprint(each.fingerprint),
        "time_limit": each.time_limit,
    }


def _describe_outcome(each: "ReachedPeer | PeerFault") -> dict[str, Any]:
    if isinstance(each, PeerFault):
        return {"name": each.peer, "error": each.code, "message": each.message}
    return {"name": each.peer, "program": each.program, "version": each.version, "milliseconds": each.milliseconds}


def _format_outcome(each: "ReachedPeer | PeerFault") -> str:
    if isinstance(each, PeerFault):
        return f"{each.peer}: {each.reason}"
    version = f"{each.program} {each.version}"
    return f"{each.peer}: reachable, and knows this server ({version}, {each.milliseconds:g} ms)."


HEALTH_SECONDS = 3.0
MAX_ANSWER_BYTES = 1_000  # of an answer
HEALTH_STATES = ("ok", "ready", "degraded")  # another program has others
LOCAL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # a server that listens on all addresses is asked locally


@click.command()
@add_common_options
@click.option("--host", help="Address to check. Default: from settings.")
@click.option("--port", type=int, help="Port to check. Default: from settings.")
@click.option("--ready", is_flag=True, help="Also check that it can answer calls.")
def health(as_json: bool, ready: bool, **flags: Any) -> None:
    """Check whether the HTTP server on this machine is healthy. Exits with 0 if it is, otherwise 1.

    Reads host, port and certificate from your settings; it cannot see flags the server was started with. A stdio server
    always counts as healthy.
    """
    settings = load_command_settings(**flags)
    if settings.transport != "http" and not (flags["host"] or flags["port"]):
        told = "stdio"
    else:
        told = _request_health(settings, READY_PATH if ready else HEALTH_PATH)
    print_json({"status": told}) if as_json else echo(told)


def _request_health(settings: Settings, path: str) -> str:
    host = LOCAL_ADDRESSES.get(settings.host, settings.host)
    scheme = "http" if settings.certificate is None else "https"
    place = f"{scheme}://{escape_name(f'[{host}]' if ':' in host else host)}:{settings.port}"
    try:
        with closing(_build_connection(settings, host)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            status, body = answer.status, answer.read(MAX_ANSWER_BYTES)
    except (UnicodeError, InvalidURL):
        raise Unavailable(f"No server answers at {place} (not a valid address).") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Unavailable(f"No server answers at {place} ({reason}).") from None
    if status != 200:
        raise Unavailable(f"The server at {place} is unhealthy: {path} answers with {status}.")
    word = _parse_status(body)
    if word not in HEALTH_STATES:
        raise Unavailable(f"The server at {place} is not an Everkept server.")
    return word


def _build_connection(settings: Settings, host: str) -> HTTPConnection:
    if settings.certificate is None:
        return HTTPConnection(host, settings.port, timeout=HEALTH_SECONDS)
    import ssl

    # The certificate is for the server's public name. No secrets are exchanged here.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection(host, settings.port, timeout=HEALTH_SECONDS, context=context)


def _parse_status(body: bytes) -> str:
    """Return an empty object if the answer is not ours."""
    try:
        return str(json.loads(body)["status"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
