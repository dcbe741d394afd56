"""report.html and the page of an explanation in a real Chromium, on a phone and on a wide screen; needs
playwright and a chromium."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.checkpoints.run_files import PAGE
from tests.browser import SCREENS, needs_browser, open_browser, too_wide
from tests.report.rows_case import report_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.slow, needs_browser]
LONG_LABELS = [f"很长的类别名称{number:02d}/财经与股票" for number in range(14)]
LONG_LABELS += ["English_label_with_a_name_of_many_characters", "x" * 60]
TEXTS = ("字" * 300, "https://example.com/" + "a" * 200)
# Kinds of answers, and labels other than theirs
PAGES = [
    ("single_label", None),
    ("single_label", LONG_LABELS),
    ("many_classes", None),
    ("multi_label", LONG_LABELS),
    ("regression", None),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(("answer_kind", "labels"), PAGES)
def test_nothing_of_a_report_is_cut(answer_kind, labels, language, tmp_path, browser):
    """The page does not scroll sideways: what is wider than the screen scrolls in a box of its own. Links
    stand in the order of their sections, and a click selects a whole command."""
    written = report_of(tmp_path, answer_kind, language, labels=labels, texts=TEXTS)
    for width, height in SCREENS:
        page = browser.new_page(viewport={"width": width, "height": height})
        page.goto((written.folder / PAGE).as_uri())
        assert too_wide(page) == []
        links = page.locator("nav a").evaluate_all("links => links.map(link => link.hash.slice(1))")
        tops = [page.locator(f"#{link}").bounding_box()["y"] for link in links]
        assert tops == sorted(tops)
        assert links == page.locator("section[id]").evaluate_all("sections => sections.map(one => one.id)")
        commands = re.findall(r'<code class="command">(.*?)</code>', written.read(PAGE))
        assert len(commands) == page.locator(".command").count()
        for number, command in enumerate(commands):
            page.locator(".command").nth(number).click()
            assert page.evaluate("getSelection().toString().trim()") == html.unescape(command)
        page.close()


def test_what_is_too_wide_is_found(tmp_path, browser):
    """A control: the check above can fail."""
    wide = Path(tmp_path, "wide.html")
    wide.write_text(
        "<p style='width:500px'>wide</p><div style='overflow-x:auto'><p style='width:500px'>box</p></div>"
    )
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto(wide.as_uri())
    assert too_wide(page) == ["the page scrolls sideways", "P: wide"]
    page.close()
