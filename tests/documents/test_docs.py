"""The documents are about this repository, and say the same in both languages: python -m pytest
tests/documents/test_docs.py"""

import hashlib
import re

import pytest

from app.modes import MODES
from app.text_table import columns_of
from tests.documents.commands import DOCUMENTS, ROOT, fenced_commands, inline_code, read
from tests.test_architecture import LAYERS

# English documents that have a Chinese twin
TRANSLATED = [name.replace(".zh-CN", "") for name in DOCUMENTS if name.endswith(".zh-CN.md")]
MAX_COLUMNS = 110


def chinese(document: str) -> str:
    return document.removesuffix(".md") + ".zh-CN.md"


def sections(text: str) -> list[tuple[int, str]]:
    """Return the level of each heading, and what stands below it up to the next."""
    text = re.sub(
        r"^```.*?^```", lambda block: block[0].replace("#", "&"), text, flags=re.DOTALL | re.MULTILINE
    )
    parts = re.split(r"^(#+) .*\n", text, flags=re.MULTILINE)
    return [(len(marks), body) for marks, body in zip(parts[1::2], parts[2::2], strict=True)]


def tables(text: str) -> list[list[list[str]]]:
    """Return the rows of each table: the inline code and the numbers of each cell, sorted."""
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [
        [[" ".join(facts(cell)) for cell in line.split("|")] for line in block.splitlines()]
        for block in blocks
    ]


def facts(text: str) -> list[str]:
    """Return the inline code and the numbers of a text, sorted."""
    code = inline_code(text)
    return sorted(code + re.findall(r"\d[\d,.]*\d|\d", re.sub(r"`[^`]+`", "", text)))


def uncommented(text: str) -> list[str | list[str]]:
    """Return the blocks of a document without the comments of commands; of a block without a language, which
    is what the program prints in the reader's language, only the numbers."""
    blocks = re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE)
    return [
        sorted(re.findall(r"\d+(?:[.,]\d+)*", block)) if block[3] == "\n" else re.sub(r" +# .*", "", block)
        for block in blocks
    ]


@pytest.mark.parametrize("document", TRANSLATED)
def test_both_languages_have_the_same_commands_tables_headings_and_links(document):
    """And links to the same places; a heading has another name in each language."""

    def links(text: str) -> list[str]:
        return [path.replace(".zh-CN.md", ".md") for path in re.findall(r"\]\(([^)#]*)(?:#[^)]*)?\)", text)]

    english, translated = read(document), read(chinese(document))
    assert links(english) == links(translated)
    assert fenced_commands(english) == fenced_commands(translated)
    assert uncommented(english) == uncommented(translated)
    assert tables(english) == tables(translated)
    assert [level for level, _ in sections(english)] == [level for level, _ in sections(translated)]
    assert len(sections(english)) >= 3


@pytest.mark.parametrize("document", TRANSLATED)
def test_both_languages_name_the_same_code_in_each_section(document):
    pairs = zip(sections(read(document)), sections(read(chinese(document))), strict=True)
    for (_, english), (_, translated) in pairs:
        assert set(inline_code(english)) == set(inline_code(translated))


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
