"""Draw docs/demo.svg from the real output of a few commands.

`python tools/demo_picture.py` writes the picture.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "demo.svg"
COLUMNS = 100
COMMANDS = (
    'remember "We chose PostgreSQL for the order data because of its row locks" --tag decision',
    'remember "Deploy on Fridays only with the on-call engineer" --type procedural',
    'recall "which database stores the purchases?"',
    "undo",
)
# Template of a picture without fonts from the network: every viewer has a monospaced one.
TEMPLATE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {terminal_width} {terminal_height}" role="img"
 aria-label="Store a memory and recall it">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
 font-size: {char_height}px; line-height: {line_height}px; white-space: pre; }}
{styles}
</style>
<defs>{lines}</defs>
<rect width="100%" height="100%" rx="8" fill="#1e1e1e"/>
<g transform="translate(9, 9)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def run_commands(folder: Path) -> Iterator[tuple[str, str]]:
    """Run the commands on an empty data folder; yield each with what it prints to a terminal."""
    work = folder / "shop"
    work.mkdir()
    # Keep settings of this machine out of the picture.
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("EVERKEPT_", "MEMORY_"))}
    variables |= {
        "FORCE_COLOR": "1",
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm-256color",
        "PYTHONPATH": str(ROOT / "src"),
    }
    for command in COMMANDS:
        words = [sys.executable, "-m", "everkept", *shlex.split(command), "--data-dir", str(folder / "data")]
        done = subprocess.run(
            words, capture_output=True, encoding="utf-8", cwd=work, env=variables, timeout=300, check=True
        )
        yield command, done.stdout.strip()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere)
        for command, printed in run_commands(Path(folder)):
            console.print(Text(f"$ everkept {command}", style="bold"))
            console.print(Text.from_ansi(printed))
            console.print()
    drawn = console.export_svg(title="", theme=MONOKAI, code_format=TEMPLATE, unique_id="demo")
    PICTURE.write_text(drawn, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
