"""A real Chromium for pages, and what of a page is wider than its screen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
# With CI=true a missing browser is a failure.
needs_browser = pytest.mark.skipif(
    os.environ.get("CI") != "true" and (CHROMIUM is None or find_spec("playwright") is None),
    reason="needs playwright (requirements/dev.txt) and a chromium",
)
# Width and height in pixels of a phone and of a wide screen
SCREENS = [(390, 844), (1440, 900)]
# Elements that reach over the edge of the screen, but for those in a box that scrolls
TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  const scrolls = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  const wide = [];
  if (document.documentElement.scrollWidth > width) wide.push("the page scrolls sideways");
  for (const element of document.body.querySelectorAll("*")) {
    const { left, right, width: own } = element.getBoundingClientRect();
    if (!own || (left > -1 && right < width + 1)) continue;
    let box = element.parentElement;
    while (box !== document.body && !scrolls(box)) box = box.parentElement;
    if (box === document.body) wide.push(`${element.tagName}: ${element.textContent.slice(0, 40)}`);
  }
  return wide;
}"""


@contextmanager
def open_browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def too_wide(page: Page) -> list[str]:
    """Return what of a page is wider than the screen, though it is in no box that scrolls."""
    return page.evaluate(TOO_WIDE)
