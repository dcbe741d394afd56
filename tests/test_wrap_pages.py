"""scripts/wrap_pages.py: pages are at most 110 columns wide."""

from app.text_table import columns_of
from scripts.wrap_pages import WIDTH, wrap_page

CODE = "```bash\n" + "x" * 200 + "\n```"


def test_long_paragraphs_are_wrapped_and_all_else_stays():
    chinese = "- 标签" + "是类别的名字，" * 20 + "`data.train` 是文件。"
    english = "A word " * 40
    page = "\n".join(["# " + "x" * 200, "", english, "", chinese, "| " + "y" * 200 + " |", CODE, "short", ""])
    result = wrap_page(page)
    lines = result.split("\n")
    assert all(columns_of(line) <= WIDTH for line in lines if "x" not in line and "y" not in line)
    assert result.replace("\n  ", "").replace("\n", " ").split() == page.replace("\n", " ").split()
    assert not any(line.lstrip().startswith("，") for line in lines)
    assert wrap_page(result) == result


def test_an_opening_bracket_stays_with_what_it_opens():
    for place in range(80, WIDTH):
        for words in ("(`app/data/cells.py`) and more", "（[数据](data.md)）以及其他"):
            page = "x " * (place // 2) + words + " y" * 20
            result = wrap_page(page)
            assert not any(line.endswith(("(", "（")) for line in result.split("\n"))
            assert "".join(result.split()) == "".join(page.split())
