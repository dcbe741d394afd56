"""The documents are about this repository, and say the same in both languages: python -m pytest
tests/documents/test_docs.py"""

import hashlib
import re
from pathlib import Path

import pytest

from app.strategies import strategy_names
from tests.documents.commands import DOCUMENTS, ROOT, fenced_commands, inline_code, read
from tests.test_architecture import LAYERS

TRANSLATED = [
    "README.md",
    "docs/data.md",
    "docs/models.md",
    "docs/modes.md",
    "docs/python.md",
    "docs/serving.md",
]


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


def uncommented(text: str) -> list[str]:
    """Return the blocks of a document, without the comments of commands."""
    return [
        re.sub(r" +# .*", "", block) for block in re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE)
    ]


@pytest.mark.parametrize("document", TRANSLATED)
def test_both_languages_have_the_same_commands_tables_and_headings(document):
    english, translated = read(document), read(chinese(document))
    assert fenced_commands(english) == fenced_commands(translated)
    assert uncommented(english) == uncommented(translated)
    assert tables(english) == tables(translated)
    assert [level for level, _ in sections(english)] == [level for level, _ in sections(translated)]
    assert len(sections(english)) >= 5


@pytest.mark.parametrize("document", TRANSLATED)
def test_both_languages_name_the_same_code_in_each_section(document):
    pairs = zip(sections(read(document)), sections(read(chinese(document))), strict=True)
    different = [
        (sorted(set(inline_code(english)) ^ set(inline_code(translated))))
        for (_, english), (_, translated) in pairs
    ]
    assert [names for names in different if names] == []


@pytest.mark.parametrize("document", TRANSLATED)
def test_both_languages_link_to_the_same_places(document):
    def links(name: str) -> list[str]:
        return [link.replace(".zh-CN.md", ".md") for link in re.findall(r"\]\(([^)]+)\)", read(name))]

    assert links(document) == links(chinese(document))


@pytest.mark.parametrize("document", ["README.md", "README.zh-CN.md"])
def test_the_readme_is_short(document):
    assert len(read(document).splitlines()) <= 130


def test_every_folder_of_the_package_is_in_the_layers():
    folders = {path.name for path in (ROOT / "app").iterdir() if path.is_dir() and path.name != "__pycache__"}
    named = set(re.findall(r"^\| `app/(\w+)` \|", read("docs/architecture.md"), re.MULTILINE))
    assert named == folders
    assert " < ".join(LAYERS) in read("docs/architecture.md")


@pytest.mark.parametrize("mode", strategy_names())
def test_every_mode_has_a_script_and_is_documented(mode):
    assert (ROOT / f"run_{mode}.py").exists()
    assert len(read(f"run_{mode}.py").splitlines()) <= 25
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
        assert not anchor or anchor in [
            re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-") for name in headings
        ], link


def test_every_config_is_read():
    from app.config.command_line import load_config

    configs = sorted((ROOT / "configs").glob("*.yaml"))
    assert len(configs) >= 8
    for config in configs:
        assert load_config(["--config", str(config)]).output.name


def test_the_licence_is_the_text_of_apache_2():
    digest = hashlib.sha256(Path(ROOT / "LICENSE").read_bytes()).hexdigest()
    assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    assert "../../LICENSE" in read("data/sample/README.md")
