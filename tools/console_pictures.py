"""Draw the pictures of docs/console.md with the console itself, on the data of a small shop.

`python tools/console_pictures.py` writes them. It needs what `tools/browser` installs.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from browsers import CHROMIUM, Console, Pages, console_process, start_browser
from console_worlds import fill_bank, fill_shop
from server_processes import run

DOCS = Path(__file__).resolve().parents[1] / "docs"
MAX_BYTES = 200_000
WINDOW = {"width": 1200, "height": 720}
# Picture, theme, place, and what to click there.
PICTURES = (
    ("search", "light", "#/search?q=row locks of PostgreSQL", ()),
    ("memories", "light", "#/memories", (".rows li:nth-child(7) .open",)),
    ("graph", "dark", "#/graph?whole=1", (".twin .open",)),
    ("log", "dark", "#/log", (".rows .open:has-text('Edited memory')",)),
    ("review", "light", "#/review", ()),
)


def draw(folder: Path) -> None:
    data_dir = folder / "shop" / "data"
    fill_bank(folder / "shop")
    fill_shop(data_dir)
    run("index", "--data-dir", data_dir)  # so that searches find by meaning too
    with console_process(data_dir, "--path", folder / "shop", HOME=str(folder)) as process, start_browser() as browser:
        pages = Pages(browser)
        for name, theme, place, clicks in PICTURES:
            options: dict[str, Any] = {"viewport": WINDOW, "color_scheme": theme, "reduced_motion": "reduce"}
            console = Console(*pages.open(process.origin, **options))
            console.page.add_init_script("sessionStorage.setItem('everkept-project', 'shop')")
            console.begin(process.token, place)
            for each in clicks:
                console.page.locator(each).first.click()
                console.settle()
            path = DOCS / f"console-{name}.png"
            console.page.screenshot(path=path)
            if path.stat().st_size > MAX_BYTES:
                sys.exit(f"{path.name} is larger than a picture of the documentation may be")
        pages.close()


def main() -> None:
    os.environ["EVERKEPT_CONFIG"] = "none"
    os.environ.setdefault(CHROMIUM, shutil.which("chromium") or "")
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder))


if __name__ == "__main__":
    main()
