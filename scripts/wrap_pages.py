"""Wrap the paragraphs of pages at 110 columns, where a Chinese character counts as two:

python scripts/wrap_pages.py docs/data.md docs/data.zh-CN.md

Only paragraphs and items of lists that have a longer line change; tables, code and headings stay.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from app.text_table import columns_of  # noqa: E402

WIDTH = 110
# A line may end after a Chinese character or mark, and where a space stands. The first marks do not begin a
# line, the others do not end one.
NOT_FIRST = "，。、；：？！）》”’…"
NOT_LAST = "(（《“‘"
# Code, links, Chinese characters, spaces and words, each with the marks around it, stay whole
PARTS = re.compile(
    rf"[{NOT_LAST}]*(?:"
    rf"`[^`]*`[{NOT_FIRST}]*"
    rf"|\[[^\]]*\]\([^)]*\)[{NOT_FIRST}]*"
    rf"|[\u3000-\u9fff\uff00-\uffef][{NOT_FIRST}]*"
    r"|[ ]"
    rf"|[^ \u3000-\u9fff\uff00-\uffef`]+[{NOT_FIRST}]*"
    r"|.)"
)
ITEM = re.compile(r"(\s*)([-*]|\d+\.) ")


def wrapped(lines: list[str]) -> list[str]:
    """Return the lines of one paragraph, or item of a list, with at most `WIDTH` columns each."""
    item = ITEM.match(lines[0])
    first_indent = item[0] if item else re.match(r"\s*", lines[0])[0]
    indent = " " * len(first_indent)
    text = ""
    for line in lines:
        part = line.strip() if text else line[len(first_indent) :].strip()
        # Two lines of Chinese are joined without a space, and so is what follows a Chinese mark or a bracket
        is_chinese = bool(text) and columns_of(text[-1]) == 2 and columns_of(part[:1]) == 2
        is_joined = not text or is_chinese or text[-1] in NOT_FIRST + NOT_LAST
        text += part if is_joined else f" {part}"
    result = []
    line = first_indent
    for part in PARTS.findall(text):
        if columns_of(line) + columns_of(part.rstrip()) > WIDTH:
            result.append(line.rstrip())
            line = indent + part.lstrip()
        else:
            line += part
    return [*result, line.rstrip()]


def wrap_page(text: str) -> str:
    """Return a page with its long paragraphs wrapped."""
    result: list[str] = []
    paragraph: list[str] = []
    is_code = False

    def end_paragraph() -> None:
        is_long = any(columns_of(line) > WIDTH for line in paragraph)
        result.extend(wrapped(paragraph) if is_long else paragraph)
        paragraph.clear()

    for line in text.split("\n"):
        is_fence = line.strip().startswith("```")
        if is_code or is_fence or not line.strip() or line.lstrip().startswith(("|", "#", "!", "<")):
            end_paragraph()
            result.append(line)
            is_code = is_code != is_fence
            continue
        if ITEM.match(line):
            end_paragraph()
        paragraph.append(line)
    end_paragraph()
    return "\n".join(result)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="+", type=Path)
    for page in parser.parse_args().pages:
        text = page.read_text(encoding="utf-8")
        page.write_text(wrap_page(text), encoding="utf-8")


if __name__ == "__main__":
    main()
