"""logits.safetensors: python -m pytest tests/report/test_logits_file.py"""

import numpy as np
import pytest

from app.errors import InputError
from app.report.logits_file import ARRAYS, logits_of, read_logits, write_logits
from tests.tiny import LABELS, open_tiny


def test_logits_come_back_as_they_were(tmp_path):
    splits, generator = open_tiny(tmp_path)[0].splits, np.random.default_rng(0)
    written = {
        name: logits_of(splits[name], generator.normal(size=(len(splits[name]), 3)).astype(np.float32))
        for name in ("test", "dev")
    }
    write_logits(tmp_path / "logits.safetensors", written, LABELS, 7, "single_label")
    (tmp_path / "other").touch()
    assert (tmp_path / "logits.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode
    found, names, task = read_logits(tmp_path / "logits.safetensors")
    assert (names, task, set(found)) == (LABELS, "single_label", {"test", "dev"})
    for name, split in found.items():
        assert (split.hashes == splits[name].table.hashes[splits[name].rows]).all()
        for key in ARRAYS:
            array, expected = getattr(split, key), getattr(written[name], key)
            assert array.dtype == expected.dtype, key
            assert (array == expected).all(), key
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("content", [None, b"", b"no logits", b"\x02\0\0\0\0\0\0\0{}"])
def test_other_files_are_an_error_that_names_them(tmp_path, content):
    path = tmp_path / "logits.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match="logits.safetensors"):
        read_logits(path)
