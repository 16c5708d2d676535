"""The files of the page, and the headers that keep foreign code out of it."""

from importlib import resources
from importlib.resources.abc import Traversable

from everkept.transports.http_exchange import (
    ASGIApp,
    Headers,
    Message,
    Receive,
    Send,
    read_headers,
    restrict_to_get,
    send_answer,
)

PATH = "/console"
FAVICON_PATH = "/favicon.ico"
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types layout"
)
SECURITY_HEADERS: Headers = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), clipboard-read=()"),
)
NO_STORE = (b"cache-control", b"no-store")
REVALIDATE = (b"cache-control", b"no-cache")


def build_page_routes() -> dict[str, ASGIApp]:
    """Return a route for each file of the page. The files hold no data, so they need no token."""
    folder = resources.files("everkept.console") / "static"
    files = dict(_list_files(folder, ""))
    routes = {f"{PATH}/{name}": restrict_to_get(_build_file_route(name, file)) for name, file in files.items()}
    home = routes[f"{PATH}/index.html"]
    return {**routes, PATH: home, f"{PATH}/": home, FAVICON_PATH: routes[f"{PATH}/favicon.svg"]}


def _list_files(folder: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for each in sorted(folder.iterdir(), key=lambda item: item.name):
        if each.is_dir():
            found += _list_files(each, f"{prefix}{each.name}/")
        elif _get_suffix(each.name) in CONTENT_TYPES:
            found.append((prefix + each.name, each))
    return found


def _get_suffix(name: str) -> str:
    return name[name.rfind(".") :]


def _build_file_route(name: str, file: Traversable) -> ASGIApp:
    from hashlib import sha256

    kind = CONTENT_TYPES[_get_suffix(name)]
    read: list[tuple[bytes, str]] = []

    async def answer(scope: Message, receive: Receive, send: Send) -> None:
        if not read:
            body = file.read_bytes()
            read.append((body, f'"{sha256(body).hexdigest()[:20]}"'))
        [(body, tag)] = read
        headers = (*SECURITY_HEADERS, REVALIDATE, (b"etag", tag.encode()))
        is_known = read_headers(scope).get("if-none-match") == tag
        await send_answer(send, 304 if is_known else 200, b"" if is_known else body, kind, headers)

    return answer
