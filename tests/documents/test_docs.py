"""What the documents name is there, and both languages say the same."""

import re
from pathlib import Path

import pytest

from app.strategies import strategy_names

ROOT = Path(__file__).resolve().parents[2]
ENGLISH, CHINESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md"))


def code_blocks(text: str) -> list[str]:
    """Return the commands of a README, without their comments."""
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return [re.sub(r" +#.*", "", line) for block in blocks for line in block.splitlines()]


def test_both_readmes_have_the_same_commands_and_tables():
    assert code_blocks(ENGLISH) == code_blocks(CHINESE)
    assert re.findall(r"^\| [^|]* \| (`[^|]*`) \|", ENGLISH, re.MULTILINE) == re.findall(
        r"^\| [^|]* \| (`[^|]*`) \|", CHINESE, re.MULTILINE
    )


@pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["english", "chinese"])
def test_the_file_tree_is_true(text):
    tree = text.split("```\nrun_single.py")[1].split("```")[0]
    names = re.findall(r"^(\S+)", "run_single.py" + tree, re.MULTILINE) + re.findall(r"run_\w+\.py", tree)
    assert len(names) > 10
    assert [name for name in names if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("mode", strategy_names())
def test_every_mode_has_a_script_and_is_documented(mode):
    assert (ROOT / f"run_{mode}.py").exists()
    assert len((ROOT / f"run_{mode}.py").read_text().splitlines()) <= 25
    for text in (ENGLISH, CHINESE, (ROOT / "docs" / "modes.md").read_text()):
        assert f"run_{mode}.py" in text


@pytest.mark.parametrize(
    "document", ["README.md", "README.zh-CN.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
)
def test_links_lead_somewhere(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert [link for link in links if not ((ROOT / document).parent / link).exists()] == []


def test_modules_of_the_architecture_exist():
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"app/[\w/]+\.py", text))
    assert len(named) > 8
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_config_is_read():
    from app.config.command_line import load_config

    configs = sorted((ROOT / "configs").glob("*.yaml"))
    assert len(configs) >= 7
    for config in configs:
        assert load_config(["--config", str(config)]).output.name
