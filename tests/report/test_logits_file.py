"""logits.safetensors: python -m pytest tests/report/test_logits_file.py"""

import numpy as np
import pytest

from app.errors import InputError
from app.report.logits_file import ARRAYS, logits_of, read_logits, write_logits
from tests.tiny import LABELS, open_tiny


def test_logits_come_back_as_they_were(tmp_path):
    dataset, _, _ = open_tiny(tmp_path)
    generator = np.random.default_rng(0)
    written = {}
    for name in ("test", "dev"):
        split = dataset.splits[name]
        written[name] = logits_of(split, generator.normal(size=(len(split), 3)).astype(np.float32))
        assert (written[name].hashes == split.table.hashes[split.rows]).all()
    write_logits(tmp_path / "logits.safetensors", written, LABELS, 7, "single_label")
    (tmp_path / "other").touch()
    assert (tmp_path / "logits.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode
    splits, names, task = read_logits(tmp_path / "logits.safetensors")
    assert (names, task) == (LABELS, "single_label")
    assert set(splits) == {"test", "dev"}
    for name, split in splits.items():
        for key in ARRAYS:
            found, expected = getattr(split, key), getattr(written[name], key)
            assert found.dtype == expected.dtype, key
            assert (found == expected).all(), key
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("content", [None, b"", b"no logits", b"\x02\0\0\0\0\0\0\0{}"])
def test_other_files_are_an_error_that_names_them(tmp_path, content):
    path = tmp_path / "logits.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match="logits.safetensors"):
        read_logits(path)
