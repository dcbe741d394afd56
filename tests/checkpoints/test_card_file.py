"""README.md in a run folder is the run's only where a run wrote it: python -m pytest
tests/checkpoints/test_card_file.py"""

from pathlib import Path

import pytest

from app.checkpoints.run_files import keep_reports, remove_run, run_files
from app.checkpoints.run_history import cards_of_run, is_card_of_run, write_card

TEXT = "language: zh\n---\n\n# x\n"


def test_a_card_is_replaced_and_one_that_was_changed_stays(tmp_path):
    path = write_card(tmp_path, TEXT)
    assert path == tmp_path / "README.md"
    assert write_card(tmp_path, TEXT + "more\n") == path
    assert path.read_text().endswith("more\n")
    changed = path.read_text() + "my own remarks\n"
    path.write_text(changed)
    beside = write_card(tmp_path, TEXT)
    assert beside == tmp_path / "MODEL_CARD.md"
    assert path.read_text() == changed
    assert cards_of_run(tmp_path) == [beside]
    beside.write_text("mine too")
    assert write_card(tmp_path, TEXT) is None
    assert (path.read_text(), beside.read_text()) == (changed, "mine too")


@pytest.mark.parametrize(
    "content", [b"", b"# mine\n", b"\xff\xfe", TEXT.encode(), b"---\nlanguage: zh\n---\n"]
)
def test_a_file_of_the_user_is_neither_replaced_nor_removed(tmp_path, content):
    readme = tmp_path / "README.md"
    readme.write_bytes(content)
    assert not is_card_of_run(readme)
    assert write_card(tmp_path, TEXT).name == "MODEL_CARD.md"
    assert set(run_files(tmp_path)) == {tmp_path / "MODEL_CARD.md"}
    keep_reports(tmp_path, 12)
    remove_run(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"README.md": content}


def test_links_and_folders_of_that_name_are_the_users(tmp_path):
    (tmp_path / "elsewhere.md").write_text("")
    (tmp_path / "README.md").symlink_to("elsewhere.md")
    (tmp_path / "MODEL_CARD.md").mkdir()
    assert write_card(tmp_path, TEXT) is None
    assert list(run_files(tmp_path)) == []


def test_cards_of_a_run_are_put_aside_and_removed_with_it(tmp_path):
    write_card(tmp_path, TEXT)
    keep_reports(tmp_path, 12)
    kept = tmp_path / "README.step-12.md"
    assert is_card_of_run(kept)
    write_card(tmp_path, TEXT)
    Path(tmp_path / "README.step-3.md").write_text("my notes on step 3")
    remove_run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.step-3.md"]
