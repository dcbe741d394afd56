"""Files that are there under the names of the answers, and are something else."""

import pytest

from app.errors import InputError
from app.labelling.session import LabelSession, SessionOptions
from tests.labelling.pools import LABELS, CharacterVectors, write_pool


@pytest.mark.parametrize("name", ["labels.csv", "labels.skipped.csv", "labels.train.csv"])
def test_a_file_of_something_else_is_an_error_and_keeps_its_last_line(tmp_path, name):
    pool = write_pool(tmp_path / "posts.csv")
    content = "内容,标签\n今天真开心,正面\n手机质量不好,负面"
    (tmp_path / name).write_text(content, encoding="utf-8")
    options = SessionOptions(vectors=CharacterVectors(), cache_dir=str(tmp_path / "cache"))
    with pytest.raises(InputError, match=name):
        LabelSession(pool, LABELS, tmp_path / "labels.csv", options)
    assert (tmp_path / name).read_text(encoding="utf-8") == content


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_file_of_something_else_beside_answers_is_an_error_and_stays(tmp_path, split):
    pool = write_pool(tmp_path / "posts.csv")
    options = SessionOptions(vectors=CharacterVectors(), cache_dir=str(tmp_path / "cache"))
    with LabelSession(pool, LABELS, tmp_path / "labels.csv", options):
        pass
    file = tmp_path / f"labels.{split}.csv"
    file.write_text("内容,标签\n今天真开心,正面\n", encoding="utf-8")
    before = file.read_bytes()
    with pytest.raises(InputError, match=file.name):
        LabelSession(pool, LABELS, tmp_path / "labels.csv", options)
    assert file.read_bytes() == before
