"""`everkept serve`: the MCP server."""

import asyncio
import json
import logging
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from everkept.app.app import App
from everkept.cli.options import add_common_options
from everkept.cli.stdio_start import load_server_settings, serve_stdio, start_side_tasks
from everkept.core.library import track_replica_use
from everkept.errors import InvalidInput, Refused, StoreUnreachable
from everkept.settings import AUTO, BankMode, Dialect, Settings, ViewChoice, list_limits
from everkept.transports.dispatch import Dispatcher
from everkept.values import replace

if TYPE_CHECKING:  # not loaded before the handshake is answered
    from ssl import SSLContext

    from everkept.console.access import ConsoleAccess
    from everkept.core.ports import Library
    from everkept.first_answers import ServerStart
    from everkept.transports.guard import TokenAuth
    from everkept.transports.http import HttpOptions
    from everkept.transports.http_exchange import ASGIApp
    from everkept.transports.oauth import OAuthServer

log = logging.getLogger(__name__)

HTTP_PATH = "/mcp"
BANK_MODES: tuple[str, ...] = get_args(BankMode)


def _add_bank_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the public memory bank server. Each adds the bank's tools."""
    for option in reversed(
        [
            click.option("--mode", "-m", type=click.Choice(BANK_MODES), help="Memory bank: starting mode."),
            click.option("--folder", "-f", help="Memory bank: name of its folder. Default: memory-bank."),
            click.option("--username", "-u", help="Memory bank: author of entries."),
            click.option("--debug", "-d", is_flag=True, help="Same as --log-level debug."),
            click.option(
                "--remote",
                "-r",
                is_flag=True,
                default=None,
                help="Memory bank: use a bank on another machine over SSH.",
            ),
            click.option("--remote-user", "ssh_user", help="Memory bank over SSH: user name."),
            click.option("--remote-host", "ssh_host", help="Memory bank over SSH: host or host:port."),
            click.option("--remote-path", "ssh_path", help="Memory bank over SSH: folder of the project."),
            click.option("--ssh-key", "-k", metavar="FILE", help="Memory bank over SSH: private key."),
            click.option("--known-hosts", metavar="FILE", help="Memory bank over SSH: file of known hosts."),
            click.option("--bank-extras", is_flag=True, default=None, help="Memory bank: offer 8 extra tools."),
            click.option("--mode-tools", is_flag=True, default=None, help="Memory bank: offer only the mode's tools."),
        ]
    ):
        command = option(command)
    return command


def _add_http_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a server for several people."""
    for option in reversed(
        [
            click.option("--certificate", metavar="FILE", help="HTTPS: certificate file in PEM."),
            click.option("--certificate-key", metavar="FILE", help="HTTPS: key file in PEM."),
            click.option("--rate-limit", type=int, help="HTTP: requests per minute for each account token."),
            click.option("--oauth-issuer", metavar="URL", help="HTTP: OpenID provider whose tokens are accepted too."),
            click.option("--oauth-resource", metavar="URL", help="HTTP: address of this server as clients know it."),
            click.option("--oauth-audience", metavar="TEXT", help="HTTP: audience of those tokens."),
            click.option("--metrics", is_flag=True, default=None, help="HTTP: serve /metrics."),
            click.option("--console", is_flag=True, default=None, help="HTTP: offer the console in the browser."),
        ]
    ):
        command = option(command)
    return command


@click.command()
@add_common_options
@click.option("--transport", type=click.Choice(["stdio", "http"]), help="Default: stdio.")
@click.option("--host", help="HTTP: address to listen on. Default: 127.0.0.1.")
@click.option("--port", type=int, help="HTTP: port to listen on. Default: 8081.")
@click.option("--path", "-p", type=click.Path(path_type=Path), help="Working folder.")
@click.option("--toolsets", help="Toolsets to offer, separated by commas, or `all`.")
@click.option("--only-project", metavar="NAME", help="Show only this project, whatever a call names.")
@click.option("--read-only", is_flag=True, default=None, help="Offer only tools that change nothing.")
@click.option(
    "--dialect",
    type=click.Choice(get_args(Dialect)),
    help="Tool names and formats: Everkept's, the official memory server's, or Anthropic's memory tool.",
)
@click.option("--views", type=click.Choice(get_args(ViewChoice)), help="Views to offer to chats. Default: quiet.")
@click.option("--gateway-config", metavar="FILE", help="Gateway config file, or `none`.")
@click.option("--no-token", is_flag=True, default=None, help="HTTP: accept requests without a token (loopback only).")
@_add_http_options
@_add_bank_options
@click.pass_obj
def serve(start: "ServerStart | None", as_json: bool, debug: bool, **flags: Any) -> None:
    """Run the MCP server over stdio or HTTP."""
    if debug:
        flags["log_level"] = flags["log_level"] or "debug"
    settings = load_server_settings(flags)
    if settings.transport == "http":
        serve_over_http(settings)
    elif sys.stdin.isatty():
        _print_explanation(settings)
    else:
        serve_stdio(settings, flags, start)


def serve_over_http(settings: Settings, on_ready: "Callable[[str, ConsoleAccess], None] | None" = None) -> None:
    """Run the server until a signal comes. With `on_ready`, only the console needs no token to begin."""
    from everkept.transports.guard import is_loopback, listen
    from everkept.transports.trusted_proxies import TrustedProxies

    local = is_loopback(settings.host)
    tls = _build_tls_context(settings)
    _check_rate(settings)
    oauth = _build_oauth(settings)
    proxies = TrustedProxies.from_text(settings.trusted_proxies)
    if settings.console and not (local or tls or settings.trusted_proxies):
        raise InvalidInput(
            f"The console is not encrypted, and {settings.host} can be reached from other machines.",
            hint="Pass --certificate, or listen on 127.0.0.1.",
            argument="console",
            value=True,
        )

    async def run() -> None:
        app = App(settings)
        beside: list[asyncio.Task[None]] = []
        try:
            if on_ready is None:
                await _require_token(settings, app.library, local=local)
            app.start(at_once=True)
            beside = start_side_tasks(settings)
            with listen(settings.host, settings.port) as listening:
                # Report mistakes before the server loads, which takes a moment.
                from everkept.transports.http import serve_http

                port = listening.getsockname()[1]
                dispatcher = Dispatcher(app)
                token_auth = None if settings.no_token else _build_token_auth(app, oauth)
                access, offer = _build_offer(app, dispatcher, token_auth, oauth)

                def announce() -> None:
                    address = _format_address(settings, port)
                    if on_ready is not None:
                        on_ready(address, access)
                    else:
                        _print_address(settings, address, local=local)
                        _print_console(settings, address, access)

                await serve_http(
                    dispatcher,
                    listening,
                    host=settings.host,
                    path=HTTP_PATH,
                    token_auth=token_auth,
                    on_ready=announce,
                    offer=replace(offer, tls=tls, proxies=proxies),
                )
        finally:
            for task in beside:
                task.cancel()
            await app.end_sessions()
            await app.close()

    asyncio.run(run())


def _build_tls_context(settings: Settings) -> "SSLContext | None":
    if settings.certificate is None:
        if settings.certificate_key is None:
            return None
        raise InvalidInput("--certificate-key needs --certificate.", hint="Pass both.", argument="--certificate-key")
    from everkept.transports.http import build_tls_context, find_key_warning

    context = build_tls_context(settings.certificate, settings.certificate_key)
    if warning := find_key_warning(settings.certificate, settings.certificate_key):
        log.warning("%s", warning)
    return context


def _check_rate(settings: Settings) -> None:
    if settings.rate_limit < 0:
        raise InvalidInput(
            f"rate_limit is {settings.rate_limit}. It must be a number of requests per minute.",
            hint="Use 0 for no limit.",
            argument="rate_limit",
            value=settings.rate_limit,
        )


def _build_oauth(settings: Settings) -> "OAuthServer | None":
    if settings.oauth_issuer is None:
        if settings.oauth_resource is None and settings.oauth_audience is None:
            return None
        raise InvalidInput("OAuth needs the address of the provider.", hint="Pass --oauth-issuer.")
    if settings.no_token:
        raise InvalidInput("--no-token and --oauth-issuer exclude each other.", hint="Omit one of them.")
    if settings.oauth_resource is None:
        raise InvalidInput(
            "OAuth needs the address of this server as clients know it.",
            hint="Pass --oauth-resource, for example https://memory.example.com/mcp.",
        )
    from everkept.transports.oauth import OAuthServer

    return OAuthServer.from_settings(settings.oauth_issuer, settings.oauth_resource, settings.oauth_audience)


def _build_token_auth(app: App, oauth: "OAuthServer | None") -> "TokenAuth":
    from everkept.accounts.accounts import Accounts
    from everkept.accounts.subjects import Subjects
    from everkept.transports.guard import TokenAuth

    accounts = Accounts(app.library, app.clock)
    if oauth is None:
        return TokenAuth(accounts.authenticate, rate_limit=app.settings.rate_limit)
    admitted = oauth.build_admission(accounts, Subjects(app.library, accounts))
    return TokenAuth(admitted, rate_limit=app.settings.rate_limit, metadata_url=oauth.metadata_url)


def _build_offer(
    app: App, dispatcher: Dispatcher, token_auth: "TokenAuth | None", oauth: "OAuthServer | None"
) -> "tuple[ConsoleAccess, HttpOptions]":
    """Build the parts besides the protocol, and the access checks."""
    from everkept.accounts.access_log import LOG_FOLDER, AccessLog
    from everkept.console.access import ConsoleAccess
    from everkept.transports.access_audit import audit
    from everkept.transports.http import HttpOptions, RequestQuotas, build_limits
    from everkept.transports.metrics import Metrics, build_health_routes
    from everkept.transports.peer_endpoint import build_peer_routes

    settings = app.settings
    access_log = AccessLog(settings.data_dir / LOG_FOLDER)
    audit(dispatcher, access_log)
    metrics = None
    if settings.metrics:
        metrics = Metrics(lambda: app.library.condition, list_limits(settings))
        metrics.watch(dispatcher)
    access = ConsoleAccess()
    pages: Mapping[str, ASGIApp] = {}
    if settings.console:
        from everkept.console.server import ConsoleServer

        pages = ConsoleServer(app, access, access_log, token_auth).build_routes()
    options = HttpOptions(
        routes=build_peer_routes(lambda: app.shared_search, access_log, app.clock),
        open_routes={
            **build_health_routes(lambda: app.library),
            **pages,
            **({} if oauth is None else oauth.build_routes()),
        },
        metrics=metrics,
        limits=build_limits(
            settings.max_connections,
            settings.max_connections_per_address,
            header_seconds=settings.header_timeout,
            body_seconds=settings.body_timeout,
            idle_seconds=settings.idle_timeout,
            send_seconds=settings.send_timeout,
        ),
        quotas=RequestQuotas(
            sessions=settings.quota_sessions,
            session_seconds=settings.quota_session_hours * 3600,
            calls=settings.quota_calls,
            answer_bytes=settings.quota_answer_bytes,
        ),
    )
    return access, options


async def _require_token(settings: Settings, library: "Library", *, local: bool) -> None:
    if settings.no_token and not local:
        raise InvalidInput(
            f"--no-token works only on a loopback address, unlike {settings.host}.",
            hint="Create a token with `everkept token`. Clients send it as `Authorization: Bearer`.",
            argument="no_token",
            value=True,
        )
    if settings.no_token or settings.oauth_issuer is not None:
        return
    with track_replica_use() as asked:
        tokens = await library.list_tokens()
    if not tokens and asked.from_replica:
        raise StoreUnreachable(
            f"HTTP needs a token, and tokens cannot be checked: {library.condition.reason} This "
            f"folder does not have a replica either ({settings.data_dir}).",
            hint="Make the database reachable, or check the address.",
        )
    if not tokens:
        hint = "Create one with `everkept token`."
        if local:
            hint += " For this machine only, run `everkept serve --transport http --no-token`."
        raise Refused("HTTP needs a token, but no token exists yet.", hint=hint)


def _format_address(settings: Settings, port: int) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{'http' if settings.certificate is None else 'https'}://{host}:{port}"


def _print_address(settings: Settings, address: str, *, local: bool) -> None:
    asking = "no token required" if settings.no_token else "token required"
    if settings.oauth_issuer is not None:
        asking += f", also of {settings.oauth_issuer}"
    click.echo(f"everkept: ready, serving {address}{HTTP_PATH} ({asking})", err=True)
    if not local:
        encrypted = ". The traffic is not encrypted" if settings.certificate is None else ""
        click.echo(
            f"everkept: other machines can reach this memory with a token from `everkept token`{encrypted}.", err=True
        )


def _print_console(settings: Settings, address: str, access: "ConsoleAccess") -> None:
    if settings.console:
        from everkept.console.pages import PATH

        click.echo(
            f"everkept: console (opens once, within a minute): {address}{PATH}#code={access.create_code()}", err=True
        )


def _print_explanation(settings: Settings) -> None:
    """Explain to a person at a terminal how a client starts the server."""
    from everkept.clients.own_command import build_own_command

    program = build_own_command(settings.launcher, sys.executable)
    # With the given options, because the person wants the client to use them.
    command = [*program, *sys.argv[1:]]
    if settings.project is None and settings.dialect == "everkept":
        command += ["--project", AUTO]
    server = {"command": command[0], "args": command[1:]}
    own, line = shlex.join(program), shlex.join(command)
    click.echo(
        f"""Everkept is memory for AI assistants. Your assistant starts it and talks to it over standard
input and output, so there is nothing to see here. To connect the assistants on this machine,
run this. It shows each change and asks first:

{own} setup

Or connect one by hand:

Claude Code   claude mcp add everkept -- {line}
Codex         codex mcp add everkept -- {line}
VS Code       code --add-mcp {shlex.quote(json.dumps({"name": "everkept", **server}))}

Claude Desktop, Cursor and most others need this in their MCP configuration:

{json.dumps({"mcpServers": {"everkept": server}}, indent=2)}

Over HTTP: `everkept token`, then `everkept serve --transport http`.
All data is in {settings.data_dir}"""
    )
