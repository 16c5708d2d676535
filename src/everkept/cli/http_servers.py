"""`everkept peer` and `health`: other people's servers over HTTP, and whether this one answers."""

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
from everkept.cli.runner import print_json, replace_controls
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

OTHER_TOKEN_KINDS = {  # what their tokens would be, were they given away
    "owner": "is its owner's own, which sees and changes everything there",
    "account": "is a user's, for the tools of an assistant",
}
MAX_TOKEN_CHARACTERS = 10_000  # characters of a file that is to hold one


@click.group()
def peer() -> None:
    """Other people's servers, asked where a search says include_peers."""


@peer.command()
@add_common_options
@click.argument("name")
@click.argument("address", metavar="https://HOST:PORT")
@click.option("--token-file", metavar="FILE", required=True, help="The token; `-` reads it.")
@click.option("--fingerprint", help="Of its certificate: sha256 and 64 digits.")
@click.option("--certificate", metavar="FILE", help="The certificate, in place of that.")
@click.option(
    "--time-limit",
    type=click.FloatRange(0.1, MAX_SECONDS),
    default=DEFAULT_SECONDS,
    show_default=True,
    help="Seconds that an answer may take.",
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
    """Let searches ask the server of somebody; nothing is sent there now.

    It is known by its certificate alone, to the last bit: names, dates and who signed it do not
    matter, and a server with another one is sent nothing.
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
        click.echo(f"Added {made.name}, {made.address}. `everkept peer check` asks it.")


@peer.command("list")
@add_common_options
def list_peers(as_json: bool, **flags: Any) -> None:
    """List the peers: where and by which certificate, never the tokens."""
    listed = _open_peer_list(**flags).read_peers()
    for sentence in listed.warnings:
        click.echo(f"everkept: {sentence}", err=True)
    if as_json:
        print_json({"peers": [_build_row(each) for each in listed.peers]})
        return
    if not listed.peers:
        click.echo("No peers. `everkept peer add` names one.")
    for each in listed.peers:
        click.echo(f"{each.name}  {each.address}  {format_fingerprint(each.fingerprint)}")


@peer.command()
@add_common_options
@click.argument("name")
def remove(as_json: bool, name: str, **flags: Any) -> None:
    """Ask the peer with this NAME no more; its token is forgotten."""
    _open_peer_list(writes=True, **flags).remove(name)
    if as_json:
        print_json({"removed": validate_peer_name(name)})
    else:
        click.echo(f"Removed {validate_peer_name(name)}.")


@peer.command()
@add_common_options
@click.argument("name", required=False)
def check(as_json: bool, name: str | None, **flags: Any) -> None:
    """Ask the peers, or one, whether they are there and know us."""
    from everkept.peers.client import greet_peer

    listed = _open_peer_list(**flags).read_peers()
    peers = _select_peers(listed.peers, name)
    for sentence in listed.warnings:
        click.echo(f"everkept: {sentence}", err=True)

    async def ask() -> "list[ReachedPeer | PeerFault]":
        return list(await asyncio.gather(*map(greet_peer, peers)))

    outcomes = asyncio.run(ask())
    if as_json:
        print_json({"peers": [_describe_outcome(each) for each in outcomes]})
    elif not outcomes:
        click.echo("No peers. `everkept peer add` names one.")
    else:
        for each in outcomes:
            click.echo(replace_controls(_format_outcome(each)))
    if any(isinstance(each, PeerFault) for each in outcomes):
        sys.exit(1)


@peer.command()
@add_common_options
def identity(as_json: bool, **flags: Any) -> None:
    """Make the certificate by which others know this server, once, and print its fingerprint."""
    from everkept.peers.identity import ensure_identity as identity_in

    settings = load_command_settings(**flags)
    if settings.read_only:
        raise ReadOnly("This command writes, and only reading is allowed here.")
    found = identity_in(settings.data_dir)
    shown = format_fingerprint(found.fingerprint)
    if as_json:
        print_json(
            {"fingerprint": shown, "certificate": str(found.certificate), "key": str(found.key), "is_new": found.is_new}
        )
        return
    click.echo(shown)
    click.echo(
        "Others name it with `everkept peer add`. Serve with it:\n"
        f'everkept serve --transport http --host 0.0.0.0 --certificate "{found.certificate}" '
        f'--certificate-key "{found.key}"',
        err=True,
    )


def _open_peer_list(*, writes: bool = False, **flags: Any) -> PeerList:
    settings = load_command_settings(**flags)
    if writes and settings.read_only:
        raise ReadOnly("This command writes, and only reading is allowed here.")
    return PeerList(settings.data_dir)


def _get_fingerprint(given: str | None, certificate: str | None) -> str:
    if (given is None) == (certificate is None):
        raise InvalidInput(
            "A peer is known by its certificate: name --fingerprint or --certificate, one of them.",
            hint="`everkept peer identity` on its machine prints the fingerprint.",
        )
    if given is not None:
        return parse_fingerprint(given)
    from everkept.peers.identity import read_fingerprint

    return read_fingerprint(Path(cast(str, certificate)))


def _read_token(file: str) -> str:
    """From a file or what is typed: others see the options of a program."""
    if file == "-":
        return sys.stdin.readline(MAX_TOKEN_CHARACTERS)
    try:
        with Path(file).open(encoding="utf-8") as stream:
            return stream.read(MAX_TOKEN_CHARACTERS)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidInput(f"{file} cannot be read ({reason}).", argument="token_file", value=file) from None


def _check_peer_token(token: str) -> str:
    """Another kind would be refused there, and may open more here than it should."""
    if (kind := get_token_kind(token)) != "peer":
        prefix = SECRET_PREFIXES[kind]
        what = OTHER_TOKEN_KINDS[kind] if token.startswith(prefix) else "is none that Everkept has made"
        raise InvalidInput(
            f"The token {what}; a peer's begins with {SECRET_PREFIXES['peer']}.",
            hint="Whoever runs that server makes one with `everkept token --peer YOUR-NAME`.",
            argument="token_file",
        )
    return token


def _select_peers(peers: tuple[Peer, ...], name: str | None) -> list[Peer]:
    wanted = None if name is None else validate_peer_name(name)
    chosen = [each for each in peers if wanted in (None, each.name)]
    if wanted is not None and not chosen:
        raise NotFound("peer", wanted, hint="`everkept peer list` shows them.")
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
    return f"{each.peer}: it is there and knows us ({version}, {each.milliseconds:g} ms)."


HEALTH_SECONDS = 3.0
MAX_ANSWER_BYTES = 1_000  # bytes of an answer
HEALTH_STATES = ("ok", "ready", "degraded")  # somebody else's server has others
LOCAL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # who listens everywhere does so here


@click.command()
@add_common_options
@click.option("--host", help="Address that it listens on. Default: as in the settings.")
@click.option("--port", type=int, help="Its port. Default: as in the settings.")
@click.option("--ready", is_flag=True, help="Ask too whether calls can be answered.")
def health(as_json: bool, ready: bool, **flags: Any) -> None:
    """Ask the HTTP server on this machine whether it is well. Exit status 0 where it is, 1 else.

    Where it listens, and whether with a certificate, is in the settings; what a server has from
    flags of its own is not known here. One over stdio is its client's: there is nothing to ask.
    """
    settings = load_command_settings(**flags)
    if settings.transport != "http" and not (flags["host"] or flags["port"]):
        told = "stdio"
    else:
        told = _request_health(settings, READY_PATH if ready else HEALTH_PATH)
    print_json({"status": told}) if as_json else click.echo(told)


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
        raise Unavailable(f"No server answers at {place} (that is no address).") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Unavailable(f"No server answers at {place} ({reason}).") from None
    if status != 200:
        raise Unavailable(f"The server at {place} is not well: {path} answers with {status}.")
    word = _parse_status(body)
    if word not in HEALTH_STATES:
        raise Unavailable(f"What answers at {place} is no server of Everkept.")
    return word


def _build_connection(settings: Settings, host: str) -> HTTPConnection:
    if settings.certificate is None:
        return HTTPConnection(host, settings.port, timeout=HEALTH_SECONDS)
    import ssl

    # The certificate is for the name that others know it by. Nothing secret is said or told here.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection(host, settings.port, timeout=HEALTH_SECONDS, context=context)


def _parse_status(body: bytes) -> str:
    """Empty for what is no answer of ours."""
    try:
        return str(json.loads(body)["status"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
