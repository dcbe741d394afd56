"""metrics.jsonl of a run that resumes: python -m pytest tests/training/test_metrics_file.py"""

import pytest

from app.training.log import drop_later_lines, read_evaluations

LINES = [
    '{"step": 3, "loss": 1.0, "正面\u2028": 1}\n',
    '{"step": 6, "loss": 0.5}\n',
    '{"step": 9, "loss": 0.4}\n',
]


def test_later_evaluations_and_a_line_cut_off_are_removed(tmp_path):
    path = tmp_path / "metrics.jsonl"
    drop_later_lines(path, 6)
    assert not path.exists()
    path.write_text("".join(LINES) + '{"step": 3, "lo')
    drop_later_lines(path, 6)
    assert path.read_text() == "".join(LINES[:2])
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]


@pytest.mark.parametrize("cut", ['{"step": 6, "lo', '{"ste', "\x00\x00", '{"step": 9, "lo'])
def test_a_line_cut_off_is_removed_and_named(tmp_path, caplog, cut):
    path = tmp_path / "metrics.jsonl"
    path.write_text(LINES[0] + cut)
    drop_later_lines(path, 6)
    assert path.read_text() == LINES[0]
    assert "metrics.jsonl, line 2: no evaluation in JSON; skipped" in caplog.text


def test_a_line_of_which_only_the_end_is_cut_off_stays(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(LINES[0] + LINES[1].rstrip())
    drop_later_lines(path, 6)
    assert path.read_text() == LINES[0] + LINES[1]


def test_a_damaged_line_is_removed_and_named(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    damaged = ["\n", "{\n", "[]\n", '{"loss": 1}\n', '{"step": "x"}\n', "\x00\x00\n"]
    for line in damaged:
        path.write_text(LINES[0] + line + LINES[1] + LINES[2])
        drop_later_lines(path, 6)
        assert path.read_text() == LINES[0] + LINES[1]
    assert caplog.text.count("metrics.jsonl, line 2: no evaluation in JSON; skipped") == len(damaged)


def test_readers_skip_damaged_lines_with_one_warning(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    assert read_evaluations(path) == []
    path.write_text(LINES[0] + "\x00\x00\x00" + LINES[1] + LINES[2] + '{"step": 12}\n{"step": 15, "lo')
    assert [line["step"] for line in read_evaluations(path, ("loss",))] == [3, 9]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}, lines 2, 4, 5: no evaluation in JSON; skipped"
    ]
