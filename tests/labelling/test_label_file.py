"""The file of answers: what is left of it when a process is killed, and which files are refused."""

import os
import signal
import subprocess
import sys

import pytest

from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.errors import InputError
from app.labelling.label_file import Answer, LabelFile, LabelledText, complete_size
from app.labelling.pool import open_pool
from tests.labelling.pools import LABELS, write_pool
from tests.labelling.test_session import label_texts, open_session, rows_of

TIME = "2026-11-29T12:00:00"


@pytest.fixture
def pool(tmp_path):
    return write_pool(tmp_path / "posts.csv")


def test_a_last_line_is_whole_or_it_is_removed(tmp_path):
    """Wherever a process is killed in a line, the lines before it stay."""
    (tmp_path / "posts.csv").write_text('text\n"一行，\n""两行"""\n"第二个, 文本"\n', encoding="utf-8")
    pool = open_pool(tmp_path / "posts.csv")
    file = LabelFile(tmp_path / "labels.csv", pool, has_several=False)
    file.open()
    sizes = [len((tmp_path / "labels.csv").read_bytes())]
    for number in range(2):
        answer = Answer(("好评",), "train", "甲", TIME)
        file.append(LabelledText(pool.texts[number], pool.cells[number], answer))
        sizes.append(len((tmp_path / "labels.csv").read_bytes()))
    content = (tmp_path / "labels.csv").read_bytes()
    for size in range(sizes[0], sizes[2] + 1):
        whole_sizes = [whole for whole in sizes if whole <= size]
        result = complete_size(content[:size], 6)
        # A line without its end is whole, if its time is
        assert result == whole_sizes[-1] or (result == size and size >= sizes[len(whole_sizes)] - 2)


def test_a_torn_line_is_removed_and_the_sitting_goes_on(tmp_path, pool, capsys):
    with open_session(tmp_path, pool) as session:
        label_texts(session, 10)
    path = tmp_path / "labels.csv"
    os.truncate(path, path.stat().st_size - 12)
    with open_session(tmp_path, pool) as session:
        assert session.status()["answers"] == 9
        label_texts(session, 1)
    assert "the last line was not written to its end" in capsys.readouterr().err
    assert [row["time"][:2] for row in rows_of(path)] == ["20"] * 10


def test_a_killed_process_loses_no_answer(tmp_path):
    """An answer is in the file when the call returns, whatever happens then."""
    write_pool(tmp_path / "posts.csv")
    program = (
        "import sys; from pathlib import Path; from app.labelling.pool import open_pool\n"
        "from tests.labelling.test_session import open_session, label_texts\n"
        "folder = Path(sys.argv[1]); session = open_session(folder, open_pool(folder / 'posts.csv'))\n"
        "while True:\n"
        "    [text] = label_texts(session, 1); print(text.number, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True)
    confirmed = [int(process.stdout.readline()) for _number in range(17)]
    process.send_signal(signal.SIGKILL)
    confirmed += [int(line) for line in process.stdout]
    process.wait()
    with open_session(tmp_path, open_pool(tmp_path / "posts.csv")) as session:
        assert set(confirmed) <= set(session._answers)
        label_texts(session, 5)


def test_the_files_are_data_files_of_a_training(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        label_texts(session, 60)
        command = session.status()["command"]
    assert f"--data.train {tmp_path}/labels.train.csv --data.test {tmp_path}/labels.test.csv" in command
    assert command.endswith("--data.text_column content")
    config = DataConfig(
        train=str(tmp_path / "labels.train.csv"),
        test=str(tmp_path / "labels.test.csv"),
        text_column="content",
        dev_size=0,
        cache_dir=str(tmp_path / "cache"),
    )
    dataset = open_dataset(config)
    assert sorted(dataset.label_names) == sorted(LABELS)
    rows = rows_of(tmp_path / "labels.csv")
    for split in ("train", "test"):
        assert len(dataset.splits[split]) == sum(row["split"] == split for row in rows)
    # All of it can be read too; each text is there once
    everything = DataConfig(train=str(tmp_path / "labels.csv"), cache_dir=str(tmp_path / "cache"))
    table = open_dataset(everything).files["train"]
    assert table.num_rows == len(rows)


def test_several_labels_are_read_by_a_training(tmp_path, pool):
    names = ["口味", "速度", "其他"]
    with open_session(tmp_path, pool, names, has_several=True) as session:
        for number in range(40):
            text = session.next_text("a")
            session.answer("a", text.number, [names[number % 2], names[2]][: number % 3])
        assert "--data.task multi_label" in session.status()["command"]
    config = DataConfig(
        task="multi_label",
        train=str(tmp_path / "labels.train.csv"),
        test=str(tmp_path / "labels.test.csv"),
        text_column="content",
        cache_dir=str(tmp_path / "cache"),
    )
    dataset = open_dataset(config)
    assert sorted(dataset.label_names) == sorted(names)


def test_there_is_no_command_before_it_would_run(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        assert session.status()["command"] is None
        label_texts(session, 1)
        assert session.status()["command"] is None


def test_columns_of_the_pool_keep_their_names(tmp_path):
    lines = ["text,label,time"]
    lines += [f"{beginning}{number},?,早上" for number in range(30) for beginning in ("好", "坏")]
    (tmp_path / "posts.csv").write_text("\n".join(lines), encoding="utf-8")
    pool = open_pool(tmp_path / "posts.csv")
    for _turn in range(2):
        with open_session(tmp_path, pool, ["好", "坏"]) as session:
            for _number in range(12):
                text = session.next_text("a")
                session.answer("a", text.number, [text.text[0]])
            assert session.status()["command"].endswith("--data.label_column new_label")
    rows = rows_of(tmp_path / "labels.csv")
    assert {row["label"] for row in rows} == {"?"}
    assert {row["new_label"] for row in rows} == {"好", "坏"}
    assert {row["time"] for row in rows} == {"早上"}


def test_a_file_that_another_program_changes_is_not_written_over(tmp_path, pool):
    path = tmp_path / "labels.csv"
    with open_session(tmp_path, pool) as session:
        label_texts(session, 5)
        path.write_bytes(path.read_bytes().replace("好评".encode(), "很好".encode()))
        changed = path.read_bytes()
        with pytest.raises(InputError, match="another program did so"):
            label_texts(session, 1)
        assert session.status()["answers"] == 5
    assert path.read_bytes() == changed
    with open_session(tmp_path, pool) as session:
        assert "很好" in session.label_names


def test_a_file_of_another_pool_is_refused(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        label_texts(session, 2)
    (tmp_path / "other.csv").write_text("text\n一\n二\n", encoding="utf-8")
    with pytest.raises(InputError, match="the columns of .*other.csv"):
        open_session(tmp_path, open_pool(tmp_path / "other.csv"))


def test_a_file_that_is_no_csv_is_refused(tmp_path, pool):
    with pytest.raises(InputError, match=r"must end in \.csv"):
        LabelFile(tmp_path / "labels.jsonl", pool, has_several=False)


def test_files_that_belong_to_a_file_that_is_gone_are_left_alone(tmp_path, pool):
    (tmp_path / "labels.train.csv").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="move it away"):
        open_session(tmp_path, pool)
    assert (tmp_path / "labels.train.csv").read_text(encoding="utf-8") == "mine"


def test_a_pool_of_pairs_keeps_both_texts(tmp_path):
    lines = ["sentence1,sentence2"]
    for number in range(40):
        lines.append(f"今天好{number},明天{'好' if number % 2 else '坏'}{number}")
    (tmp_path / "pairs.csv").write_text("\n".join(lines), encoding="utf-8")
    pool = open_pool(tmp_path / "pairs.csv")
    with open_session(tmp_path, pool, ["是", "否"]) as session:
        for _number in range(15):
            text = session.next_text("a")
            session.answer("a", text.number, ["是" if "好" in text.pair else "否"])
        assert session.status()["command"].endswith(
            "--data.text_column sentence1 --data.text_pair_column sentence2"
        )
    assert all(row["sentence2"].startswith("明天") for row in rows_of(tmp_path / "labels.csv"))


def test_a_pool_of_plain_text(tmp_path, capsys):
    (tmp_path / "posts.txt").write_text("第一\n第二\n\n第一\n第三\n", encoding="utf-8")
    pool = open_pool(tmp_path / "posts.txt")
    assert pool.texts == [("第一",), ("第二",), ("第三",)]
    assert "1 repeated" in capsys.readouterr().err
    with open_session(tmp_path, pool, ["好", "坏"]) as session:
        text = session.next_text("a")
        session.answer("a", text.number, ["好"])
    [row] = rows_of(tmp_path / "labels.csv")
    assert row["text"] == text.text
    assert list(row) == ["line", "text", "label", "split", "second_label", "person", "time"]
