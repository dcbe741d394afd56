"""The page in a real Chromium; needs playwright and a chromium."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("fastapi")
from app.prediction.open_model import OpenedModel
from app.serving.options import ServeOptions
from tests.browser import SCREENS, needs_browser, open_browser, too_wide
from tests.saved_classifier import LABELS, as_rows, random_texts
from tests.serving.running_server import OPTIONS, running

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, needs_browser]
TEXTS = [text.strip() for text in random_texts(12)]
HOSTILE = '<img src=x onerror="document.title=1">今天'


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with open_browser() as browser:
        yield browser


@pytest.fixture
def served(browser) -> Iterator[Callable[..., Page]]:
    """Return the page of a server, which asks nowhere else and has no complaint that is not expected.

    A browser writes each refused request to its console. 401 is a missing key; `refused` is another status.
    """
    problems: list[str] = []
    expected = {"401"}
    with ExitStack() as stack:

        def serve(
            model: OpenedModel,
            locale: str = "en-US",
            options: ServeOptions = OPTIONS,
            refused: str = "401",
        ) -> Page:
            expected.add(refused)
            address = stack.enter_context(running(model, options))
            page = browser.new_page(locale=locale)

            def check_message(message) -> None:
                status = re.search(r"responded with a status of (\d+)", message.text)
                is_expected = status is not None and status[1] in expected
                if message.type not in ("log", "info", "debug") and not is_expected:
                    problems.append(message.text)

            def check_request(request) -> None:
                if not request.url.startswith((address, "blob:", "data:")):
                    problems.append(request.url)

            page.on("console", check_message)
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("request", check_request)
            page.goto(address)
            return page

        yield serve
    assert problems == []


def classify(page: Page, texts: list[str] | None = None) -> None:
    if texts is not None:
        page.fill("#texts", "\n".join(texts))
    page.click("#classify")
    page.wait_for_selector("#done:not([hidden])")


def shown(page: Page, place: str = ".first") -> list[str]:
    return page.locator(f"#results {place}").all_inner_texts()


def downloaded(page: Page) -> list[dict]:
    """Return the rows of the file that the page offers."""
    with page.expect_download() as download:
        page.click("#download")
    text = Path(download.value.path()).read_bytes().decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def answers_of(model: OpenedModel, texts: list[str]) -> list:
    return [prediction.answer for prediction in model.predictor.predict(as_rows(texts))]


def test_lines_are_classified_shown_as_text_and_downloaded(served, model):
    texts = ["今天真开心", HOSTILE, '他说"好"，\t真好']
    page = served(model)
    classify(page, [texts[0], "", *texts[1:]])
    assert shown(page, ".text") == texts
    assert shown(page) == answers_of(model, texts)
    assert len(shown(page, ".bar")) == len(texts) * len(LABELS)
    assert page.title() == "Text classifier"
    assert page.locator("#results img").count() == 0
    rows = downloaded(page)
    assert [(row["text"], row["label"]) for row in rows] == list(zip(texts, shown(page), strict=True))
    assert sum(float(rows[0][f"p_{label}"]) for label in LABELS) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "gb18030"])
def test_a_csv_file_comes_back_with_its_columns(tmp_path, served, model, encoding):
    texts = [f"今天{n}，好" for n in range(70)]
    lines = [["id", "内容"], *([str(n), text] for n, text in enumerate(texts)), ["70", " "]]
    with (tmp_path / "posts.csv").open("w", encoding=encoding, newline="") as file:
        csv.writer(file).writerows(lines)
    page = served(model, "zh-CN")
    assert page.title() == "文本分类"
    page.set_input_files("#file", tmp_path / "posts.csv")
    page.wait_for_selector("#table:not([hidden])")
    classify(page)
    assert "1 行无效" in page.locator("#status").inner_text()
    rows = downloaded(page)
    page.click("#language")
    assert page.title() == "Text classifier"
    assert [[row["id"], row["内容"]] for row in rows] == lines[1:]
    assert [row["label"] for row in rows] == [*answers_of(model, texts), ""]


def test_the_encoding_of_a_file_is_asked_for_where_it_is_not_clear(tmp_path, served, model):
    texts = ["鼎", "龘"]
    (tmp_path / "short.txt").write_bytes("\n".join(texts).encode("gbk"))
    page = served(model, refused="422")
    page.set_input_files("#file", tmp_path / "short.txt")
    page.click("#classify")
    page.wait_for_selector("#status.bad")
    assert "set the query parameter encoding" in page.locator("#status").inner_text()
    assert "Encoding (encoding)" in page.locator("#table").inner_text()
    page.fill("#encoding", "gbk")
    classify(page)
    assert [row["text"] for row in downloaded(page)] == texts


def test_label_lists_and_what_is_not_sure_enough_are_marked(served, several):
    answers = answers_of(several, TEXTS)
    rows = list(several.predictor.predict(as_rows(TEXTS)))
    confidence = several.predictor.task.confidence(np.stack([row.probabilities for row in rows]))
    # Between two rows: six of twelve are sure enough
    threshold = float(np.sort(confidence)[5:7].mean())
    decisions = ["accept" if value >= threshold else "abstain" for value in confidence]
    page = served(replace(several, threshold=threshold))
    classify(page, TEXTS)
    items = page.locator("#results li").all()
    assert [set(item.locator(".first").all_inner_texts()) for item in items] == list(map(set, answers))
    notes = [item.locator(".abstain").all_inner_texts() for item in items]
    assert ["no label" in of_item for of_item in notes] == [not names for names in answers]
    is_abstained = [decision == "abstain" for decision in decisions]
    assert ["not sure enough" in of_item for of_item in notes] == is_abstained
    counts = page.inner_text("#counts")
    assert counts.endswith(f"no label {answers.count([])}")
    numbers = Counter(name for names in answers for name in names)
    assert all(f"{name} {number}" in counts for name, number in numbers.items())
    rows = downloaded(page)
    order = [[name for name in LABELS if name in names] for names in answers]
    assert [json.loads(row["labels"]) for row in rows] == order
    assert [row["decision"] for row in rows] == decisions


def test_numbers_are_shown_and_a_key_is_asked_for(served, number):
    page = served(number, options=ServeOptions(api_key="secret"))
    page.wait_for_selector("#key-row:not([hidden])")
    page.fill("#key", "secret")
    classify(page, TEXTS)
    wanted = pytest.approx(answers_of(number, TEXTS), rel=1e-5)
    rows = downloaded(page)
    assert list(map(float, shown(page))) == wanted
    assert list(rows[0]) == ["text", "score"]
    assert [float(row["score"]) for row in rows] == wanted


def test_a_text_is_explained_and_a_long_text_says_what_was_read(served, model):
    pytest.importorskip("captum")
    text = "今天真开心，手机质量不好"
    page = served(model)
    page.set_viewport_size({"width": 390, "height": 800})
    classify(page, [text])
    page.click(".why")
    page.wait_for_selector(".explanation .first")
    assert page.locator(".explanation .text").inner_text() == text
    assert answers_of(model, [text])[0] in page.locator(".explanation .first").inner_text()
    page.click(".why")
    assert page.locator(".explanation").count() == 0
    page.fill("#texts", f"{text}。\n" * 600)
    page.check("#whole")
    page.click("#classify")
    page.wait_for_selector("#results .warning")
    assert page.locator("#results li").count() == 1
    assert shown(page, ".warning")[0].startswith("Only in part: 1–")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_the_page_fits_on_a_phone_and_on_a_wide_screen(tmp_path, served, model, locale):
    pytest.importorskip("captum")
    file = tmp_path / f"{'a_long_name_' * 8}.csv"
    file.write_text("text\n今天真开心\n", encoding="utf-8")
    page = served(model, locale)
    for width, height in SCREENS:
        page.set_viewport_size({"width": width, "height": height})
        page.reload()
        classify(page, [TEXTS[0], f"https://example.com/{'a' * 200}", "字" * 400])
        page.locator(".why").first.click()
        page.wait_for_selector(".explanation .first")
        assert too_wide(page) == []
        page.set_input_files("#file", file)
        page.wait_for_selector("#table:not([hidden])")
        assert too_wide(page) == []
