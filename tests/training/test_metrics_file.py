"""metrics.jsonl of a run that resumes: python -m pytest tests/training/test_metrics_file.py"""

import pytest

from app.training.log import drop_later_lines, read_evaluations

LINES = [
    '{"step": 3, "loss": 1.0, "正面\u2028": 1}\n',
    '{"step": 6, "loss": 0.5}\n',
    '{"step": 9, "loss": 0.4}\n',
]
DAMAGED = ["\n", "{\n", "[]\n", '{"loss": 1}\n', '{"step": "x"}\n', "\x00\x00\n"]
CUT_OFF = ['{"step": 6, "lo', '{"ste', "\x00\x00", '{"step": 9, "lo']


@pytest.mark.parametrize(
    ("written", "kept", "is_2_named"),
    [
        ("".join(LINES) + '{"step": 3, "lo', LINES[:2], False),
        # Only its end is cut off
        (LINES[0] + LINES[1].rstrip(), LINES[:2], False),
        *((LINES[0] + cut, LINES[:1], True) for cut in CUT_OFF),
        *((LINES[0] + line + LINES[1] + LINES[2], LINES[:2], True) for line in DAMAGED),
    ],
)
def test_later_evaluations_and_damaged_lines_are_removed(tmp_path, caplog, written, kept, is_2_named):
    path = tmp_path / "metrics.jsonl"
    drop_later_lines(path, 6)
    assert not path.exists()
    path.write_text(written)
    drop_later_lines(path, 6)
    assert path.read_text() == "".join(kept)
    assert ("metrics.jsonl, line 2: no evaluation in JSON; skipped" in caplog.text) == is_2_named
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_readers_skip_damaged_lines_with_one_warning(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    assert read_evaluations(path) == []
    path.write_text(LINES[0] + "\x00\x00\x00" + LINES[1] + LINES[2] + '{"step": 12}\n{"step": 15, "lo')
    assert [line["step"] for line in read_evaluations(path, ("loss",))] == [3, 9]
    assert caplog.messages == [f"{path}, lines 2, 4, 5: no evaluation in JSON; skipped"]
