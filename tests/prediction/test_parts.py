"""Predictions in parts, in one process: python -m pytest tests/prediction/test_parts.py"""

import csv
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from app.errors import InputError
from app.prediction.bulk_input import input_files
from app.prediction.parts import PartsFolder
from app.prediction.predictor import CHUNK_ROWS
from tests.saved_classifier import random_texts, save_checkpoint
from tests.verbs import predict as main

COUNT = 2 * CHUNK_ROWS + 100


@pytest.fixture(scope="module")
def posts(tmp_path_factory) -> Path:
    """Return a CSV file with line ends in quotes, and some rows without a text."""
    path = tmp_path_factory.mktemp("posts") / "posts.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "label"])
        for number, text in enumerate(texts(COUNT)):
            writer.writerow([number, f'{text}\n"好' if number % 1000 else " ", "x\r\ny"])
    return path


@pytest.fixture
def predict(checkpoint):
    def run(source, output, *options: str) -> int:
        files = ["--input", str(source), "--output", str(output)]
        return main(["--checkpoint", str(checkpoint), "--device", "cpu", *files, *options])

    return run


def texts(count: int) -> list[str]:
    return [text[:4] for text in random_texts(count)]


def merged(folder: Path, output: Path) -> bytes:
    assert main(["--merge", str(folder), "--output", str(output)]) == 0
    return output.read_bytes()


def folder_name(path: Path) -> str:
    return f"{path}{os.sep}"


@pytest.mark.parametrize("options", [[], ["--bom", "--threshold", "0.5"], ["--only_labels"]])
def test_parts_of_csv_are_the_file_that_one_process_writes(tmp_path, posts, predict, capsys, options):
    assert predict(posts, tmp_path / "one.csv", *options) == 0
    assert predict(posts, folder_name(tmp_path / "labels"), *options) == 0
    assert "3 parts" in capsys.readouterr().err
    names = sorted(path.name for path in (tmp_path / "labels").glob("part-*"))
    assert names == ["part-00000.csv", "part-00001.csv", "part-00002.csv"]
    one = (tmp_path / "one.csv").read_bytes()
    assert merged(tmp_path / "labels", tmp_path / "all.csv") == one
    assert main(["--merge", str(tmp_path / "labels"), "--output", str(tmp_path / "all.csv")]) == 2
    assert "there is such a file" in capsys.readouterr().err


def test_finished_parts_stay_and_missing_ones_are_computed(tmp_path, posts, predict):
    folder = tmp_path / "labels"
    assert predict(posts, folder_name(folder)) == 0
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    content = (folder / "part-00001.csv").read_bytes()
    (folder / "part-00001.csv").unlink()
    # A process was killed before it renamed its file, another one before it wrote the manifest
    (folder / ".part-00001.csv").write_text("half")
    (folder / "_part-00002.json").unlink()
    assert predict(posts, folder_name(folder)) == 0
    assert (folder / "part-00001.csv").read_bytes() == content
    after = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert after.keys() == before.keys()
    again = {name for name in after if after[name] != before[name]}
    assert again == {
        f"{start}part-0000{n}.{end}" for n in (1, 2) for start, end in (("", "csv"), ("_", "json"))
    }


def test_parts_of_another_input_model_or_setting_are_refused(tmp_path, posts, predict, checkpoint, capsys):
    source = tmp_path / "posts.csv"
    source.write_bytes(posts.read_bytes())
    folder = folder_name(tmp_path / "labels")
    assert predict(source, folder) == 0
    os.utime(source, ns=(1, 1))
    assert predict(source, folder) == 0
    assert predict(source, folder, "--threshold", "0.5") == 2
    assert "its parts are of another settings (threshold differ)" in capsys.readouterr().err
    with source.open("a", encoding="utf-8") as file:
        file.write("1,好,x\n")
    assert predict(source, folder) == 2
    assert (
        "its parts are of another input (posts.csv differ), and all are finished" in capsys.readouterr().err
    )
    other = save_checkpoint(tmp_path / "other", num_labels=3, classifier_dropout=0.5)
    assert main(["--checkpoint", str(other), "--input", str(posts), "--output", folder]) == 2
    assert "its parts are of another model (config.json differ)" in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert predict(source, tmp_path / "mine") == 2
    assert "parts need a folder of their own, found notes.txt" in capsys.readouterr().err
    assert os.listdir(tmp_path / "mine") == ["notes.txt"]


def test_several_json_lines_files_and_a_file_within_the_output(tmp_path, predict, capsys):
    folder = tmp_path / "posts"
    (folder / "b").mkdir(parents=True)
    for name, count in (("b/x.jsonl", CHUNK_ROWS + 3), ("a.jsonl", 7)):
        rows = [{"text": text, "file": name} for text in texts(count)]
        # A key that comes late changes the names of the other rows' predictions too
        rows[-1]["label"] = "old"
        (folder / name).write_text("\n\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "_SUCCESS.csv").write_text("")
    # As in training, a folder has the files in it, and not those in folders of it
    assert predict(folder, folder_name(tmp_path / "some"), "--on_bad_row", "skip") == 0
    said = capsys.readouterr().err
    assert "are left out (b); name a pattern" in said
    assert "7 rows in 1 parts" in said
    pattern = f"{folder}/**/*.jsonl"
    assert predict(pattern, folder_name(tmp_path / "labels"), "--on_bad_row", "skip") == 0
    lines = merged(tmp_path / "labels", tmp_path / "all.jsonl").decode().splitlines()
    rows = list(map(json.loads, lines))
    assert [row["file"] for row in rows] == ["a.jsonl"] * 7 + ["b/x.jsonl"] * (CHUNK_ROWS + 3)
    assert {"predicted_label"} == {name for row in rows for name in row if name.endswith("label")} - {"label"}
    # Without the other columns, a row says which file it is of
    options = ("--only_labels", "--output_format", "csv", "--on_bad_row", "skip")
    assert predict(pattern, folder_name(tmp_path / "only"), *options) == 0
    only = list(csv.DictReader(merged(tmp_path / "only", tmp_path / "only.csv").decode().splitlines()))
    assert list(only[0])[:3] == ["file", "line", "text"]
    assert [row["file"] for row in only] == [row["file"] for row in rows]
    assert predict(folder / "b" / "x.jsonl", tmp_path / "x.jsonl", "--on_bad_row", "skip") == 0
    assert (tmp_path / "x.jsonl").read_text(encoding="utf-8").splitlines() == lines[7:]
    assert input_files(pattern, tmp_path / "no") == [folder / "a.jsonl", folder / "b" / "x.jsonl"]
    assert predict(pattern, folder_name(folder / "labels")) == 0
    assert predict(pattern, folder_name(folder / "labels")) == 2
    assert "is in the folder of the output" in capsys.readouterr().err


def test_parquet_and_a_part_that_cannot_be_read(tmp_path, predict, capsys):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    source = tmp_path / "posts.parquet"
    table = pyarrow.table({"id": range(COUNT), "text": texts(COUNT)})
    parquet.write_table(table, source, row_group_size=1000, compression="none", write_page_checksum=True)
    assert predict(source, folder_name(tmp_path / "labels")) == 0
    merged(tmp_path / "labels", tmp_path / "all.parquet")
    assert predict(source, tmp_path / "one.parquet", "--on_bad_row", "skip") == 0
    found = parquet.read_table(tmp_path / "all.parquet")
    assert found.drop(["reason"]).equals(parquet.read_table(tmp_path / "one.parquet"))
    # What reads a folder of Parquet files reads the parts only
    assert parquet.read_table(tmp_path / "labels").num_rows == COUNT

    content, damaged = bytearray(source.read_bytes()), tmp_path / "damaged.parquet"
    column = parquet.read_metadata(source).row_group(2).column(1)
    for offset in range(column.data_page_offset + 200, column.data_page_offset + 300):
        content[offset] ^= 0xFF
    damaged.write_bytes(content)
    capsys.readouterr()
    assert predict(damaged, folder_name(tmp_path / "some")) == 2
    said = capsys.readouterr().err
    assert (
        f"error: damaged.parquet, {CHUNK_ROWS:,} rows from 1 on: {damaged}: not a readable Parquet file"
        in said
    )
    assert "2 of 3 parts are not finished" in said
    assert [path.name for path in (tmp_path / "some").glob("part-*")] == ["part-00002.parquet"]
    assert "not a readable" in (tmp_path / "some" / "_part-00001.error").read_text(encoding="utf-8")
    assert main(["--merge", str(tmp_path / "some"), "--output", str(tmp_path / "some.parquet")]) == 2
    assert not (tmp_path / "some.parquet").exists()


def test_a_replaced_file_is_computed_again_and_the_others_stay(tmp_path, predict, capsys):
    folder, output = tmp_path / "posts", tmp_path / "labels"
    folder.mkdir()
    lines = ["text\n", *(f'"{text}"\n' for text in texts(CHUNK_ROWS + 9))]

    def write(name: str, lines: list[str]) -> None:
        (folder / name).write_text("".join(lines), encoding="utf-8")

    def run() -> tuple[int, str]:
        status = predict(folder, folder_name(output), "--on_bad_row", "error")
        return status, capsys.readouterr().err

    def times() -> dict[str, int]:
        paths = (*output.glob("part-*"), *output.glob("_part-*"))
        return {path.name: path.stat().st_mtime_ns for path in paths}

    for name, content in (("a.csv", lines), ("b.csv", [*lines[:-1], '" "\n']), ("c.csv", lines)):
        write(name, content)
    status, said = run()
    assert status == 2
    assert "1 of 6 parts are not finished: b.csv, 9 rows from 2050 on" in said
    before = times()
    # With another number of parts, those of c.csv would have other numbers
    write("b.csv", lines[:5])
    status, said = run()
    assert status == 2
    assert "another input (b.csv differ), with so many rows more or less that the parts of other" in said
    assert times() == before
    # Rows may be longer, and there may be some more
    finished = (output / "part-00002.csv").read_bytes()
    write("b.csv", ["text\n", "今天真开心今天\n", *lines[2:], "讨厌\n"])
    status, said = run()
    assert status == 0, said
    assert "note: b.csv changed since the last run; 2 parts are computed again" in said
    [earlier] = output.glob("_replaced-*-part-00002.csv")
    assert earlier.read_bytes() == finished
    kept = {f"{start}part-0000{n}.{end}" for n in (0, 1, 4, 5) for start, end in (("", "csv"), ("_", "json"))}
    assert {name for name, time in times().items() if time == before.get(name)} == kept
    assert predict(folder, folder_name(tmp_path / "once"), "--on_bad_row", "error") == 0
    assert merged(output, tmp_path / "all.csv") == merged(tmp_path / "once", tmp_path / "once.csv")
    # What is finished stays until the user removes it
    write("b.csv", lines)
    before = times()
    status, said = run()
    assert status == 2
    assert "(b.csv differ), and all are finished; choose another folder, or remove a part" in said
    assert times() == before
    (output / "part-00003.csv").unlink()
    assert run()[0] == 0
    assert {name for name, time in times().items() if time == before.get(name)} == kept


def test_a_part_that_another_process_computes_is_not_computed_again(tmp_path, predict, capsys):
    source, output = tmp_path / "posts.txt", tmp_path / "labels"
    source.write_text("今天\n" * CHUNK_ROWS + "好\n", encoding="utf-8")
    assert predict(source, folder_name(output)) == 0
    (output / "part-00000.csv").unlink()
    source.write_text("今天\n" * CHUNK_ROWS + "坏\n", encoding="utf-8")
    hold = "file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX, 1, 2); print(flush=True)"
    hold = f"import fcntl, sys; {hold}; sys.stdin.read()"
    command = [sys.executable, "-c", hold, str(output / ".locks")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert predict(source, folder_name(output)) == 2
        process.stdin.close()
    said = capsys.readouterr().err
    assert "another process computes posts.txt, 1 rows from 2049 on; end it, and" in said
    assert (output / "part-00001.csv").exists()
    # A process that goes on with the old plan
    parts = PartsFolder(output)
    parts.read_plan()
    assert predict(source, folder_name(output)) == 0
    (output / "part-00001.csv").unlink()
    with pytest.raises(InputError, match="another process has laid another plan; the same command continues"):
        parts.compute(lambda part, file: pytest.fail("computed"), print)


def test_a_bad_row_with_error_fails_its_part_only(tmp_path, posts, predict, capsys):
    assert predict(posts, folder_name(tmp_path / "labels"), "--on_bad_row", "error") == 2
    assert "posts.csv, line 2: the text is empty" in capsys.readouterr().err
    assert predict(posts, folder_name(tmp_path / "skipped"), "--on_bad_row", "skip") == 0
    assert f"{COUNT - 5:,} rows in 3 parts, 5 invalid rows left out" in capsys.readouterr().err
    lines = [f"{text}\n" for text in texts(CHUNK_ROWS + 1)]
    (tmp_path / "a.txt").write_text("".join(lines), encoding="utf-8")
    assert predict(tmp_path / "a.txt", folder_name(tmp_path / "texts"), "--on_bad_row", "error") == 0


def test_a_full_disk_ends_with_one_and_the_same_command_goes_on(tmp_path, posts, predict, capsys):
    folder, limits = tmp_path / "labels", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        status = predict(posts, folder_name(folder))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    said = capsys.readouterr().err
    assert status == 1, said
    assert "part-00000.csv: cannot be written: File too large; free space on the disk" in said
    assert not list(folder.glob("*part*"))
    assert predict(posts, folder_name(folder)) == 0
    assert predict(posts, tmp_path / "one.csv") == 0
    assert merged(folder, tmp_path / "all.csv") == (tmp_path / "one.csv").read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--nprocs", "2", "--output", "a.csv"],
            "several processes write parts into a folder, found --nprocs 2",
        ),
        (["--nprocs", "0", "--output", "labels/"], "--nprocs must be at least 1, found 0"),
        (
            ["--output", "labels/", "--output_format", "xlsx"],
            "parts are csv, jsonl, parquet, found --output_f",
        ),
        (["--output", "labels/", "--output_format", "parquet"], "is for all columns of Parquet files"),
        (["--output", "labels/", "--report", "out"], "parts are of files"),
        (["--merge", "labels", "--output", "all.csv"], "--merge FOLDER needs --output FILE"),
    ],
)
def test_options_that_do_not_go_together(tmp_path, monkeypatch, posts, checkpoint, capsys, options, message):
    monkeypatch.chdir(tmp_path)
    assert main(["--checkpoint", str(checkpoint), "--input", str(posts), *options]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
