"""The page of `label` in a real Chromium: people who label by keys, reload, and lose their server."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fastapi")
from app.labelling.pool import open_pool
from tests.browser import SCREENS, needs_browser, open_browser, too_wide
from tests.labelling.pools import LABELS, label_of, write_pool
from tests.labelling.running_labels import label_process, labels_client
from tests.labelling.test_label_routes import rows_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, needs_browser]
# The keys of a Chinese input method have no name of their own, only a code
PRESS_WITH_INPUT_METHOD = """(code) => document.dispatchEvent(
  new KeyboardEvent("keydown", { key: "Process", code, bubbles: true }))"""


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with open_browser() as browser:
        yield browser


@pytest.fixture
def visit(browser) -> Iterator[Callable[..., Page]]:
    """Return a function that opens an address as another person does, on a page that asks nowhere else and
    has no complaint. That a server was killed is one of the browser's own, and is expected."""
    problems: list[str] = []

    def open_page(address: str, locale: str = "en-US") -> Page:
        page = browser.new_context(locale=locale).new_page()

        def check_message(message) -> None:
            if message.type == "error" and "net::ERR_" not in message.text:
                problems.append(message.text)

        def check_request(request) -> None:
            if not request.url.startswith((address, "data:")):
                problems.append(request.url)

        page.on("console", check_message)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", check_request)
        page.goto(address)
        page.wait_for_selector("#columns:not([hidden])")
        page.wait_for_selector("#labels button:enabled")
        return page

    yield open_page
    assert problems == []


def shown_text(page: Page) -> str:
    return page.locator("#text").inner_text()


def press_label(page: Page) -> str:
    """Give the text that is shown its right label by a key, wait for the next text, and return this one."""
    text = shown_text(page)
    page.keyboard.press(str(1 + LABELS.index(label_of(text))))
    page.wait_for_function("(text) => document.getElementById('last-text').textContent === text", arg=text)
    return text


def wait_for_another_text(page: Page, text: str) -> None:
    page.wait_for_function("(text) => document.getElementById('text').textContent !== text", arg=text)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_sixty_texts_by_keys_with_a_page_loaded_again_and_a_server_that_was_killed(
    tmp_path, visit, checkpoint
):
    write_pool(tmp_path / "posts.csv")
    port = free_port()
    texts = []
    with label_process(tmp_path, checkpoint, port=port) as (process, address, _log):
        page = visit(address)
        for _number in range(20):
            texts.append(press_label(page))
        text = shown_text(page)
        page.reload()
        page.wait_for_selector("#labels button:enabled")
        assert shown_text(page) == text
        for _number in range(12):
            texts.append(press_label(page))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        text = shown_text(page)
        page.keyboard.press("1")
        page.wait_for_selector("#status.bad")
        assert "The server does not answer" in page.locator("#status").inner_text()
        assert shown_text(page) == text
    rows_before = rows_of(tmp_path / "labels.csv")
    with label_process(tmp_path, checkpoint, port=port) as (process, address, log):
        for _number in range(28):
            texts.append(press_label(page))
        assert "skipped" in page.locator("#counts").inner_text()
        command = page.locator("#command").inner_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert command in log.read_text()
    rows = rows_of(tmp_path / "labels.csv")
    for row, row_before in zip(rows, rows_before, strict=False):
        # A text may have been shown again since
        assert row | {"second_label": ""} == row_before | {"second_label": ""}
    # Some texts came twice: their second answer is in the same row
    num_repeated = sum(bool(row["second_label"]) for row in rows)
    assert num_repeated >= 1
    assert len(rows) + num_repeated == len(texts) == 60
    assert {row["content"] for row in rows} == set(texts)
    assert all(row["label"] == label_of(row["content"]) for row in rows)
    assert {row["split"] for row in rows} == {"train", "test"}
    # The process runs in another folder than that of the script
    assert "run_single.py --data.train labels.train.csv --data.test labels.test.csv" in command
    assert len({row["person"] for row in rows}) == 1


def test_a_second_person_gets_other_texts_and_labels_by_clicks(tmp_path, visit):
    pool = write_pool(tmp_path / "posts.csv")
    with labels_client(tmp_path, pool) as client:
        first = visit(str(client.base_url))
        second = visit(str(client.base_url))
        texts = set()
        for _number in range(4):
            assert shown_text(first) != shown_text(second)
            texts.add(press_label(first))
            text = shown_text(second)
            second.get_by_role("button", name=label_of(text)).click()
            second.wait_for_function(
                "(text) => document.getElementById('text').textContent !== text", arg=text
            )
            texts.add(text)
    assert len(texts) == len(rows_of(tmp_path / "labels.csv")) == 8


def test_keys_to_skip_go_back_add_a_label_and_ask_for_the_guess(tmp_path, visit):
    pool = write_pool(tmp_path / "posts.csv")
    with labels_client(tmp_path, pool, asks_guess=True) as client:
        page = visit(str(client.base_url), "zh-CN")
        assert page.title() == "标注文本"
        text = press_label(page)
        page.keyboard.press("b")
        page.wait_for_selector("#earlier:not([hidden])")
        assert shown_text(page) == text
        assert label_of(text) in page.locator("#earlier").inner_text()
        page.keyboard.press("n")
        page.keyboard.type("中评")
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.querySelectorAll('#labels button').length === 3")
        page.keyboard.press("Escape")
        page.evaluate(PRESS_WITH_INPUT_METHOD, "Digit3")
        page.wait_for_selector("#earlier[hidden]", state="attached")
        skipped = shown_text(page)
        page.keyboard.press("s")
        wait_for_another_text(page, skipped)
        for _number in range(12):
            press_label(page)
        page.keyboard.press("g")
        page.wait_for_selector("#own-guess:not([hidden])")
        assert "%" in page.locator("#own-guess").inner_text()
        page.click("#language")
        assert page.title() == "Label texts"
    rows = rows_of(tmp_path / "labels.csv")
    assert rows[0]["label"] == "中评"
    assert skipped not in {row["content"] for row in rows}


def test_keys_choose_several_labels_and_enter_confirms_them(tmp_path, visit):
    pool = write_pool(tmp_path / "posts.csv")
    with labels_client(tmp_path, pool, has_several=True) as client:
        page = visit(str(client.base_url))
        for keys in ("12", "2", "121"):
            text = shown_text(page)
            for key in keys:
                page.keyboard.press(key)
            page.keyboard.press("Enter")
            wait_for_another_text(page, text)
    labels = [json.loads(row["label"]) for row in rows_of(tmp_path / "labels.csv")]
    assert labels == [LABELS, [LABELS[1]], [LABELS[1]]]


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_the_page_fits_on_a_phone_and_on_a_wide_screen(tmp_path, visit, locale):
    pool_file = tmp_path / "posts.csv"
    pool = write_pool(pool_file)
    with labels_client(tmp_path, pool, asks_guess=True) as client:
        page = visit(str(client.base_url), locale)
        for name in ["长" * 60, *map(str, range(12))]:
            client.post("/labels", json={"person": "somebody-else", "name": name})
        for _number in range(30):
            press_label(page)
        for width, height in SCREENS:
            page.set_viewport_size({"width": width, "height": height})
            page.reload()
            page.wait_for_selector("#figures .figure")
            press_label(page)
            page.keyboard.press("n")
            assert too_wide(page) == []
            buttons = page.locator("#labels button")
            assert buttons.count() == len(LABELS) + 13
            # A text and its labels are on the first screen of a phone too
            assert buttons.first.bounding_box()["y"] + 20 < height


def test_a_text_with_tags_is_shown_as_text(tmp_path, visit):
    hostile = '<img src=x onerror="document.title=1">好'
    pool_file: Path = tmp_path / "posts.csv"
    pool_file.write_text("content\n" + "\n".join(f"{hostile}{n}" for n in range(30)), encoding="utf-8")
    with labels_client(tmp_path, open_pool(pool_file)) as client:
        page = visit(str(client.base_url))
        assert shown_text(page).startswith(hostile)
        page.keyboard.press("1")
        page.wait_for_function("() => document.getElementById('last-text').textContent !== ''")
        assert page.locator("img").count() == 0
        assert page.title() == "Label texts"
