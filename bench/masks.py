"""Measures the masking of secrets: the CPU time for a megabyte of several kinds of text.

python bench/masks.py
python bench/masks.py --write-docs
"""

import argparse
import base64
import random
import sys
import time
from pathlib import Path

import page
from everkept.core.secrets import mask_text

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
from secret_samples import read_harmless, read_secrets  # noqa: E402

CHARACTERS = 1_000_000
ROUNDS = 15
PROSE = "We talked about the release, the weather and the new office, and then went to lunch. "
_HEAD = ("1 MB of", "CPU ms")
_EXPLAINED = """\
Written by `python bench/masks.py --write-docs`. Each figure is the best of {rounds} rounds. The last two rows are the
test data of the masking, where every line is about a secret or looks like one.

{measured_with}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks.md")
    options = parser.parse_args()
    rows = [(name, page.short(measure_masking(text))) for name, text in build_texts().items()]
    page.print_table("Masking of secrets", _HEAD, rows)
    if options.write_docs:
        explained = _EXPLAINED.format(rounds=ROUNDS, measured_with=page.measured_with([]))
        page.write_section("Masking of secrets", f"{explained}\n{page.markdown_table(_HEAD, rows)}")


def build_texts() -> dict[str, str]:
    source = random.Random(1)  # the same in each run
    texts = {
        "plain prose": PROSE,
        "Markdown (this documentation)": _read(ROOT / "docs", "*.md"),
        "Python (this source, ASCII)": _read(ROOT / "src", "*.py").encode("ascii", "ignore").decode(),
        "hexadecimal digits": source.randbytes(CHARACTERS // 2).hex(),
        "base64": base64.b64encode(source.randbytes(CHARACTERS)).decode(),
        "harmless samples": "\n".join(each.text for each in read_harmless()),
        "secrets": "\n".join(each.text for each in read_secrets()),
    }
    return {name: (text * (CHARACTERS // len(text) + 1))[:CHARACTERS] for name, text in texts.items()}


def measure_masking(text: str) -> float:
    """Return the milliseconds of CPU time in the best round."""
    rounds: list[float] = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        mask_text(text)
        rounds.append(time.process_time() - begun)
    return min(rounds) * 1000


def _read(folder: Path, pattern: str) -> str:
    return "".join(path.read_text("utf-8") for path in sorted(folder.rglob(pattern)))


if __name__ == "__main__":
    main()
