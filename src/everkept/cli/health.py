"""`everkept health`: whether a server over HTTP answers, for whatever starts it again if not."""

import json
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection, InvalidURL
from typing import Any

import click

from everkept.cli.options import common, settings_from
from everkept.cli.runner import print_json
from everkept.errors import Unavailable, visible
from everkept.settings import Settings
from everkept.transports.metrics import HEALTH_PATH, READY_PATH

TIME_LIMIT = 3.0  # seconds
LONGEST = 1_000  # bytes of an answer
WORDS = ("ok", "ready", "degraded")  # somebody else's server has others
REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # who listens everywhere does so here


@click.command()
@common
@click.option("--host", help="Address that it listens on. Default: as in the settings.")
@click.option("--port", type=int, help="Its port. Default: as in the settings.")
@click.option("--ready", is_flag=True, help="Ask too whether calls can be answered.")
def health(as_json: bool, ready: bool, **flags: Any) -> None:
    """Ask the HTTP server on this machine whether it is well. Exit status 0 where it is, 1 else.

    Where it listens, and whether with a certificate, is in the settings; what a server has from
    flags of its own is not known here. One over stdio is its client's: there is nothing to ask.
    """
    settings = settings_from(**flags)
    if settings.transport != "http" and not (flags["host"] or flags["port"]):
        told = "stdio"
    else:
        told = _asked(settings, READY_PATH if ready else HEALTH_PATH)
    print_json({"status": told}) if as_json else click.echo(told)


def _asked(settings: Settings, path: str) -> str:
    host = REACHED_AT.get(settings.host, settings.host)
    scheme = "http" if settings.certificate is None else "https"
    place = f"{scheme}://{visible(f'[{host}]' if ':' in host else host)}:{settings.port}"
    try:
        with closing(_connection(settings, host)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            status, body = answer.status, answer.read(LONGEST)
    except (UnicodeError, InvalidURL):
        raise Unavailable(f"No server answers at {place} (that is no address).") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Unavailable(f"No server answers at {place} ({reason}).") from None
    if status != 200:
        raise Unavailable(f"The server at {place} is not well: {path} answers with {status}.")
    word = _word(body)
    if word not in WORDS:
        raise Unavailable(f"What answers at {place} is no server of Everkept.")
    return word


def _connection(settings: Settings, host: str) -> HTTPConnection:
    if settings.certificate is None:
        return HTTPConnection(host, settings.port, timeout=TIME_LIMIT)
    import ssl

    # The certificate is for the name that others know it by. Nothing secret is said or told here.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection(host, settings.port, timeout=TIME_LIMIT, context=context)


def _word(body: bytes) -> str:
    """Empty for what is no answer of ours."""
    try:
        return str(json.loads(body)["status"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
