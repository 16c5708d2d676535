"""Optional dependencies: how to install one from where this program came."""

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

DISTRIBUTION = "everkept"
ENVIRONMENT, LAUNCHER = ".venv", "run"  # of a checkout


def install_hint(extra: str) -> str:
    """Return the sentence that tells the reader how to install an extra.

    It names the checkout, folder or wheel that this program was installed from.
    """
    source = _source()
    if source is None:
        return f"Install the extra [{extra}] from the wheel or folder you installed Everkept from."
    environment = source / ENVIRONMENT
    if Path(sys.prefix) == environment:
        return f"Delete {environment}, then start {source / LAUNCHER}: it installs everything."
    return f"Run: pip install '{source}[{extra}]'"


def _source() -> Path | None:
    """Return the folder or file that pip installed this program from, if it is still there."""
    try:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        url = str(cast(dict[str, Any], json.loads(text or "{}")).get("url", ""))
    except (metadata.PackageNotFoundError, ValueError):
        return None
    parts = urlsplit(url)
    path = Path(url2pathname(parts.path))
    return path if parts.scheme == "file" and path.exists() else None
