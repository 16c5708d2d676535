"""A server with the fixtures of the conformance suite, on a free port of this machine.

    python tests/support/conformance_server.py FOLDER     # prints its address to standard error

It keeps its data in FOLDER and asks for no token.
"""

import asyncio
import sys
from pathlib import Path

from conformance_fixtures import add_fixtures
from everkept.app.app import App
from everkept.settings import read_settings
from everkept.transports.dispatch import Dispatcher
from everkept.transports.guard import listen
from everkept.transports.http import serve_http

HOST = "127.0.0.1"
PATH = "/mcp"


async def serve(folder: Path) -> None:
    """Serve clients until a signal comes."""
    app = App(read_settings({"data_dir": folder, "project": "conformance", "config": "none"}, {}))
    dispatcher = Dispatcher(app)
    add_fixtures(dispatcher)
    with listen(HOST, 0) as listening:
        address = f"http://{HOST}:{listening.getsockname()[1]}{PATH}"
        try:
            app.start(at_once=True)
            await serve_http(
                dispatcher,
                listening,
                host=HOST,
                path=PATH,
                token_auth=None,
                on_ready=lambda: sys.stderr.write(f"serving {address}\n"),
            )
        finally:
            await app.end_sessions()
            await app.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
