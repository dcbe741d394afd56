"""The page in a real Chromium: python -m pytest -m slow tests/serving/test_served_page.py; needs playwright
and a chromium."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fastapi")
from app.prediction.open_model import OpenedModel
from app.serving.application import ServeOptions
from tests.saved_classifier import LABELS, as_rows
from tests.serving.running_server import CHROMIUM, OPTIONS, downloaded, needs_browser, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.slow, needs_browser]
HOSTILE = '<img src=x onerror="document.title=1">今天'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def served_page(
    browser: Browser,
    model: OpenedModel,
    locale: str = "en-US",
    options: ServeOptions = OPTIONS,
    expected: str | None = None,
) -> Iterator[Page]:
    """Yield the page of a server. The browser may complain about `expected` only, and asks no other place."""
    problems: list[str] = []
    with running(model, options) as address:
        page = browser.new_page(locale=locale)
        page.on(
            "console",
            lambda message: problems.append(message.text) if message.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith((address, "blob:", "data:")) else problems.append(request.url)
            ),
        )
        page.goto(address)
        yield page
    assert [problem for problem in problems if expected is None or expected not in problem] == []


def labels_of(model: OpenedModel, texts: list[str]) -> list[str]:
    return [prediction.answer for prediction in model.predictor.predict(as_rows(texts))]


def test_lines_are_classified_shown_as_text_and_downloaded(browser, model):
    texts = ["今天真开心", HOSTILE, '他说"好"，\t真好']
    with served_page(browser, model) as page:
        page.fill("#texts", "\n\n".join(texts))
        page.click("#classify")
        page.wait_for_selector("#results li:nth-child(3)")
        page.wait_for_selector("#done:not([hidden])")
        assert page.locator("#results .text").all_inner_texts() == texts
        assert page.locator("#results .first").all_inner_texts() == labels_of(model, texts)
        assert page.locator("#results .bar").count() == len(texts) * len(LABELS)
        assert page.title() == "Text classifier"
        assert page.locator("#results img").count() == 0
        rows = downloaded(page)
    assert [row["text"] for row in rows] == texts
    assert [row["label"] for row in rows] == labels_of(model, texts)
    assert sum(float(rows[0][f"p_{label}"]) for label in LABELS) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "gb18030"])
def test_a_csv_file_comes_back_with_its_columns(tmp_path, browser, model, encoding):
    texts = [f"今天{n}，好" for n in range(70)]
    path = tmp_path / "posts.csv"
    lines = [["id", "内容"], *([str(n), text] for n, text in enumerate(texts)), ["70", " "]]
    with path.open("w", encoding=encoding, newline="") as file:
        csv.writer(file).writerows(lines)
    with served_page(browser, model, "zh-CN") as page:
        assert page.title() == "文本分类"
        page.set_input_files("#file", path)
        page.wait_for_selector("#table:not([hidden])")
        page.click("#classify")
        page.wait_for_selector("#done:not([hidden])")
        assert "1 行无效" in page.locator("#status").inner_text()
        rows = downloaded(page)
        page.click("#language")
        assert page.title() == "Text classifier"
    assert [(row["id"], row["内容"]) for row in rows] == [tuple(line) for line in lines[1:]]
    assert [row["label"] for row in rows] == [*labels_of(model, texts), ""]


def test_what_is_not_sure_enough_is_marked(browser, model):
    predictions = list(model.predictor.predict(as_rows(["今天", "真好", "开心"])))
    surest = max(prediction.probabilities.max() for prediction in predictions)
    with served_page(browser, replace(model, threshold=float(surest) - 1e-4)) as page:
        page.fill("#texts", "今天\n真好\n开心")
        page.click("#classify")
        page.wait_for_selector("#done:not([hidden])")
        assert page.locator("#results .abstain").count() == 2
        wanted = ["accept" if p.probabilities.max() == surest else "abstain" for p in predictions]
        assert [row["decision"] for row in downloaded(page)] == wanted


def test_an_example_is_classified_and_explained_and_a_long_text_says_what_was_read(browser, model):
    pytest.importorskip("captum")
    opened = replace(model, examples=["今天真开心，手机质量不好", "真好"])
    with served_page(browser, opened) as page:
        page.set_viewport_size({"width": 390, "height": 800})
        page.click("#examples button:nth-child(1)")
        page.click(".why")
        page.wait_for_selector(".explanation .first")
        assert page.locator(".explanation .text").inner_text() == opened.examples[0]
        assert labels_of(model, opened.examples[:1])[0] in page.locator(".explanation .first").inner_text()
        page.click(".why")
        assert page.locator(".explanation").count() == 0
        page.fill("#texts", "今天真开心，手机质量不好。\n" * 600)
        page.check("#whole")
        page.click("#classify")
        page.wait_for_selector("#results .warning")
        assert page.locator("#results li").count() == 1
        assert page.locator("#results .warning").inner_text().startswith("Only in part: 1–")
        assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_key_is_asked_for(browser, model):
    options = ServeOptions(api_key="secret")
    with served_page(browser, model, options=options, expected="401") as page:
        page.wait_for_selector("#key-row:not([hidden])")
        page.fill("#key", "secret")
        page.fill("#texts", "今天")
        page.click("#classify")
        page.wait_for_selector("#results li")
