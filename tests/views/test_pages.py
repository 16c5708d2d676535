"""The bundled pages. `tests/test_docs.py` shows that they are current."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from everkept.views.pages import fill_page, read_page

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.stem for path in (ROOT / "src" / "everkept" / "views").glob("*.html"))
MAX_BYTES = 60_000


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_small_and_needs_nothing_else(name: str) -> None:
    page = read_page(name)
    assert len(page.encode()) <= MAX_BYTES
    assert "default-src 'none'" in page
    assert "trusted-types 'none'" in page
    addresses = set(re.findall(r"https?://[^\"'\s]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<link|<img|<iframe|\bimport\(|@import|innerHTML|\beval\(|new Worker", page)


def test_a_page_for_a_browser_allows_its_own_script_and_style_only() -> None:
    page = fill_page("picture", {})
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    for kind, element in (("script", "<script>(.*?)</script>"), ("style", "<style>(.*?)</style>")):
        [text] = re.findall(element, page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}';" in policy
    assert "unsafe" not in policy


def test_no_text_in_the_data_ends_its_element() -> None:
    hostile = {"name": "</script><script>alert(1)</script><!--", "half": "\ud800", "line": "\u2028"}
    page = fill_page("picture", hostile)
    [found] = re.findall(r'<script type="application/json" id="data">([^<]*)</script>', page)
    assert json.loads(found) == hostile
    assert page.count("<script") == 2
    page.encode()
