"""metrics.jsonl of a run that resumes: python -m pytest tests/training/test_metrics_file.py"""

import pytest

from app.training.log import drop_later_lines, read_evaluations

LINES = ['{"step": 3, "loss": 1.0, "正面\u2028": 1}\n', '{"step": 6, "loss": 0.5}\n', '{"step": 9}\n']


@pytest.mark.parametrize("cut", ["", '{"step": 6, "lo', '{"ste', "\x00\x00", "{\n", "\n"])
def test_later_evaluations_and_damaged_lines_are_removed(tmp_path, caplog, cut):
    path = tmp_path / "metrics.jsonl"
    drop_later_lines(path, 6)
    assert not path.exists()
    assert read_evaluations(path) == []
    path.write_text("".join(LINES) + cut)
    drop_later_lines(path, 6)
    assert path.read_text() == "".join(LINES[:2])
    assert (f"{path}, line 4: no evaluation in JSON; skipped" in caplog.text) == bool(cut)
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_readers_skip_damaged_lines_with_one_warning(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    path.write_text(LINES[0] + "\x00\x00\x00" + LINES[1] + LINES[2] + '{"step": 15, "lo')
    assert [line["step"] for line in read_evaluations(path)] == [3, 9]
    assert caplog.messages == [f"{path}, lines 2, 4: no evaluation in JSON; skipped"]
