"""scripts/report_picture.py makes the picture of the README."""

import struct

import pytest

from scripts.report_picture import HEIGHT, PICTURE, WIDTH, make_picture
from tests.browser import needs_browser


def size_of_png(content: bytes) -> tuple[int, int]:
    """Return width and height in pixels, which stand behind the signature and the name of the first part."""
    assert content.startswith(b"\x89PNG")
    return struct.unpack(">II", content[16:24])


def test_the_picture_of_the_readme_has_the_size_that_the_script_makes():
    assert size_of_png(PICTURE.read_bytes()) == (WIDTH, HEIGHT)


@pytest.mark.slow
@needs_browser
def test_the_beginning_of_a_page_becomes_a_picture(tmp_path):
    page = tmp_path / "report.html"
    page.write_text("<h1>报告</h1>" + "<p>行</p>" * 500, encoding="utf-8")
    make_picture(page, tmp_path / "report.png")
    assert size_of_png((tmp_path / "report.png").read_bytes()) == (WIDTH, HEIGHT)
