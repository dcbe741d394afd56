"""The documents are about this repository, and say the same in both languages: python -m pytest
tests/documents/test_docs.py"""

import hashlib
import re

import pytest

from app.modes import MODES
from app.text_table import columns_of
from tests.documents.commands import DOCUMENTS, ROOT, inline_code, read
from tests.test_architecture import LAYERS

# English documents that have a Chinese twin
TRANSLATED = [name.replace(".zh-CN", "") for name in DOCUMENTS if name.endswith(".zh-CN.md")]
MAX_COLUMNS = 110


def structure(text: str) -> dict[str, list]:
    """Return what a document has in each language: links; commands, without their comments; of what the
    program prints, which is in the reader's language, the numbers; numbers and inline code of each cell of a
    table; the level of each heading, and the inline code below it up to the next."""
    links = re.findall(r"\]\(([^)#]*)(?:#[^)]*)?\)", text)
    blocks = re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE)
    printed = [re.findall(r"\d+(?:[.,]\d+)*", block) for block in blocks if block[3] == "\n"]
    cells = [cell for row in re.findall(r"^\|.*", text, re.MULTILINE) for cell in row.split("|")]
    numbers = [re.findall(r"\d[\d,.]*\d|\d", re.sub(r"`[^`]+`", "", cell)) for cell in cells]
    for block in blocks:
        text = text.replace(block, block.replace("#", "&"))
    parts = re.split(r"^(#+) .*\n", text, flags=re.MULTILINE)
    return {
        "links": [path.replace(".zh-CN.md", ".md") for path in links],
        "commands": [re.sub(r" +# .*", "", block) for block in blocks if block[3] != "\n"],
        "printed": [sorted(found) for found in printed],
        "cells": [sorted(inline_code(cell) + found) for cell, found in zip(cells, numbers, strict=True)],
        "sections": [
            (level, {*inline_code(body)}) for level, body in zip(parts[1::2], parts[2::2], strict=True)
        ],
    }


@pytest.mark.parametrize("document", TRANSLATED)
def test_both_languages_have_the_same_commands_tables_headings_code_and_links(document):
    """And links to the same places; a heading has another name in each language."""
    english = structure(read(document))
    assert structure(read(f"{document.removesuffix('.md')}.zh-CN.md")) == english
    assert len(english["sections"]) >= 3


@pytest.mark.parametrize(
    ("document", "max_lines"), [("README.md", 120), ("README.zh-CN.md", 120), ("docs/architecture.md", 250)]
)
def test_what_is_read_first_is_short(document, max_lines):
    assert len(read(document).splitlines()) <= max_lines


@pytest.mark.parametrize("document", DOCUMENTS)
def test_lines_are_short(document):
    """Rows of tables may be longer, and a word that does not fit, such as a link."""
    long = [line for line in read(document).splitlines() if columns_of(line) > MAX_COLUMNS]
    assert [line for line in long if not line.startswith("|") and " " in line.strip(" -")] == []


def test_the_table_of_rooms_has_every_folder_of_the_package_in_the_order_of_the_layers():
    rooms = re.findall(r"^\| `app/(\w+)` \|", read("docs/architecture.md"), re.MULTILINE)
    assert rooms == [layer for layer in LAYERS if (ROOT / "app" / layer).is_dir()]
    assert set(rooms) == {path.parent.name for path in (ROOT / "app").glob("*/__init__.py")}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_has_a_script_and_is_documented(mode):
    assert (ROOT / f"run_{mode}.py").exists()
    for document in ("README.md", "README.zh-CN.md", "docs/modes.md", "docs/modes.zh-CN.md"):
        assert f"run_{mode}.py" in read(document)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    folder = (ROOT / document).parent
    for link in re.findall(r"\]\(([^)]+)\)", read(document)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = folder / path if path else ROOT / document
        assert target.exists(), link
        headings = re.findall(r"^#+ (.*)", target.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        anchors = [re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-") for name in headings]
        assert not anchor or anchor in anchors, link


def test_the_licence_is_the_text_of_apache_2():
    digest = hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest()
    assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    assert "../../LICENSE" in read("data/sample/README.md")
