"""predict --engine ray, with a real Ray."""

import csv
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyarrow import parquet

from app.errors import InputError
from app.prediction.many_files import Job, predict_files
from app.prediction.open_model import ComputeOptions
from app.prediction.predictor import CHUNK_ROWS
from tests.multi_label_runs import read_predictions
from tests.processes import ROOT, finish, wait_until
from tests.saved_classifier import random_texts
from tests.verbs import predict as main

COUNT = 60_000
FILES = 12
NEEDS_RAY = "needs Ray: pip install -r requirements/ray.txt -c constraints.txt"
OPTIONS = {"address": "local", "num_cpus": 2, "object_store_memory": 100 << 20, "include_dashboard": False}
START = f"import ray, sys; ray.init(**{OPTIONS}, logging_level='warning')"
START += "; from app.commands import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def local_ray():
    """Start Ray for one test, on two cores."""
    ray = pytest.importorskip("ray", reason=NEEDS_RAY)
    ray.init(**OPTIONS, logging_level="warning")
    try:
        yield
    finally:
        ray.shutdown()


def write_csv(path: Path, rows: list[list]) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


@pytest.fixture
def posts(tmp_path) -> Path:
    """Return a folder of CSV files, with line ends in quotes, numbers that begin with 0 and an empty text."""
    rows = [[f"00{at}", f'{text}\n"好' if at else " ", "old"] for at, text in enumerate(random_texts(70))]
    for name in ("b", "a"):
        write_csv(tmp_path / "posts" / f"{name}.csv", [["id", "text", "label"], *rows])
    return tmp_path / "posts"


def words(checkpoint, source, output, *options: str) -> list[str]:
    files = ["--input", str(source), "--output", str(output)]
    return ["--checkpoint", str(checkpoint), "--device", "cpu", "--engine", "ray", *files, *options]


@pytest.mark.slow
def test_rows_of_csv_are_those_of_predict(tmp_path, local_ray, posts, checkpoint, capsys):
    output = tmp_path / "labels"
    expected = []
    assert main(words(checkpoint, posts, output)) == 0
    assert f"{output}: 140 rows, each of them once" in capsys.readouterr().err
    for name in ("a", "b"):
        arguments = ["--checkpoint", str(checkpoint), "--device", "cpu"]
        arguments += ["--input", str(posts / f"{name}.csv")]
        assert main([*arguments, "--output", str(tmp_path / f"{name}.csv")]) == 0
        expected += read_predictions(tmp_path / f"{name}.csv")
    table = parquet.read_table(output).sort_by("row_id")
    assert table.column_names[:5] == ["id", "text", "label", "row_id", "predicted_label"]
    rows = table.to_pylist()
    for ray_row, row in zip(rows, expected, strict=True):
        assert [ray_row[name] or "" for name in ("id", "text", "predicted_label")] == [
            row[name] for name in ("id", "text", "predicted_label")
        ]
        if row["probability"]:
            assert ray_row["probability"] == pytest.approx(float(row["probability"]), abs=1e-5)
    reasons = [row["reason"].partition(": ")[0] for row in rows if row["reason"]]
    assert reasons == [f"{posts}/{name}.csv, line 2" for name in "ab"]
    # Nothing of the job is left beside its rows, and no command replaces them
    assert not (tmp_path / "labels.unfinished").exists()
    write_csv(tmp_path / "other" / "a.csv", [["text"], ["好"]])
    write_csv(tmp_path / "other" / "c.csv", [["text", "stars"], ["好", 5]])
    lines = ['{"text": "好"}\n'] * CHUNK_ROWS + ['{"text": "好", "stars": 5}\n']
    (tmp_path / "late.jsonl").write_text("".join(lines), encoding="utf-8")
    for source, target, options, message in [
        (posts, output, [], "a new folder is needed, found something"),
        (posts, tmp_path / "no", ["--on_bad_row", "error"], "a.csv, line 2: the text is empty"),
        (tmp_path / "other", tmp_path / "no", [], "need the columns of the first one (text), found"),
        (tmp_path / "late.jsonl", tmp_path / "no", [], "of the first one (text), found text, stars"),
    ]:
        assert main(words(checkpoint, source, target, *options)) == 2
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_parquet_keeps_its_types_and_json_lines_become_csv(tmp_path, local_ray, checkpoint):
    (tmp_path / "posts").mkdir()
    table = pa.table({"id": pa.array(range(50), pa.int16()), "text": random_texts(50), "tags": [["a"]] * 50})
    parquet.write_table(table, tmp_path / "posts" / "a.parquet", row_group_size=20)
    options = {"device": "cpu", "threshold": 0.9}
    assert predict_files(tmp_path / "posts", tmp_path / "labels", checkpoint, actors=2, **options) == 50
    predictions = parquet.read_table(tmp_path / "labels").sort_by("row_id")
    assert predictions.select(table.column_names).equals(table)
    assert set(predictions["decision"].to_pylist()) <= {"accept", "abstain"}
    lines = [row | {"text": row["text"] if row["id"] else ""} for row in table.to_pylist()]
    (tmp_path / "posts.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    options = {"device": "cpu", "output_format": "csv", "on_bad_row": "skip"}
    assert predict_files(tmp_path / "posts.jsonl", tmp_path / "csv", checkpoint, **options) == 49
    rows = [row for path in (tmp_path / "csv").iterdir() for row in read_predictions(path)]
    texts = {row["id"]: (row["text"], '["a"]') for row in lines[1:]}
    assert {int(row["id"]): (row["text"], row["tags"]) for row in rows} == texts


def end(process: subprocess.Popen, family: list[psutil.Process]) -> None:
    """End a job, and what is left of its Ray: two of its processes outlive a killed driver by a minute."""
    process.kill()
    process.wait()
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()


@pytest.mark.slow
def test_a_cluster_is_joined(tmp_path, posts, checkpoint):
    pytest.importorskip("ray", reason=NEEDS_RAY)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    program = [Path(sys.executable).with_name("ray"), "start", "--head", "--block", "--disable-usage-stats"]
    program += ["--port", port, "--num-cpus", "2", "--object-store-memory", str(100 << 20)]
    # Only who knows it joins the cluster
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with (tmp_path / "log").open("wb") as log:
        program += ["--include-dashboard", "false"]
        cluster = subprocess.Popen(program, stdout=log, stderr=log, env=os.environ | token)
    try:
        wait_until(lambda: cluster.poll() or "runtime started" in (tmp_path / "log").read_text(), 120)
        assert cluster.poll() is None, (tmp_path / "log").read_text()
        address = {"RAY_ADDRESS": f"127.0.0.1:{port}", **token}
        command = [sys.executable, "predict.py", *words(checkpoint, posts, tmp_path / "labels")]
        done = finish(command, timeout=400, status=0, **address)
        assert "140 rows, each of them once" in done.stderr
    finally:
        end(cluster, psutil.Process(cluster.pid).children(recursive=True))
        # Else ray.init would try to join it
        Path("/tmp/ray/ray_current_cluster").unlink(missing_ok=True)


def finished(folder: Path) -> dict[str, int]:
    """Return the files of the output that are noted as written, and when."""
    notes = folder.glob("labels.unfinished/rows/*.parquet")
    return {path.stem: path.stat().st_mtime_ns for path in notes if "pending" not in path.name}


def start(job: list[str], folder: Path, files: int) -> tuple[subprocess.Popen, list[psutil.Process]]:
    """Start a job, wait until so many files of its output are there, and return the processes of Ray too."""
    log = (folder / "log").open("ab")
    process = subprocess.Popen(job, cwd=ROOT, stdout=log, stderr=log)
    wait_until(lambda: len(finished(folder)) >= files or process.poll() is not None, 300)
    assert process.poll() is None, (folder / "log").read_text()
    return process, psutil.Process(process.pid).children(recursive=True)


@pytest.mark.slow
def test_a_killed_job_continues_and_a_killed_worker_loses_no_row(tmp_path, checkpoint):
    """The ids of its many rows are 0, 1, 2 ...; small batches, so that it takes a while."""
    pytest.importorskip("ray", reason=NEEDS_RAY)
    rows = [[number, text] for number, text in enumerate(random_texts(COUNT))]
    for number in range(FILES):
        write_csv(tmp_path / "posts" / f"{number}.csv", [["id", "text"], *rows[number::FILES]])
    options = words(checkpoint, tmp_path / "posts", tmp_path / "labels", "--batch_tokens", "128")
    job = [sys.executable, "-c", START, "predict", *options]
    process, family = start(job, tmp_path, 2)
    try:
        # A second command does not write into the same folder
        assert "another process writes into it" in finish(job, status=2).stderr
        process.send_signal(signal.SIGKILL)
        process.wait()
        before = finished(tmp_path)
        assert 2 <= len(before) < FILES
        written = {path: path.stat().st_mtime_ns for path in (tmp_path / "labels").iterdir()}
        changed = finish([*job, "--threshold", "0.5"], status=2)
        assert "it was begun with another input, model or setting" in changed.stderr
    finally:
        end(process, family)
    process, family = start(job, tmp_path, len(before) + 1)
    try:
        victims = [member for member in family if "MapWorker" in " ".join(member.cmdline())]
        assert victims
        victims[0].kill()
        assert process.wait(400) == 0, (tmp_path / "log").read_text()
    finally:
        end(process, family)
    ids = parquet.read_table(tmp_path / "labels")["id"].to_pylist()
    assert sorted(map(int, ids)) == list(range(COUNT))
    assert not (tmp_path / "labels.unfinished").exists()
    # What was finished is not computed again
    times = {path: at for path, at in written.items() if path.name.startswith(tuple(before))}
    assert len(times) == len(before)
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_ray_that_is_missing_and_an_option_that_there_is_not(
    tmp_path, monkeypatch, posts, checkpoint, capsys
):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(words(checkpoint, posts, tmp_path / "labels")) == 2
    assert "pip install -r requirements/ray.txt -c constraints.txt" in capsys.readouterr().err
    with pytest.raises(TypeError, match="treshold"):
        predict_files(posts, tmp_path / "labels", checkpoint, treshold=0.5)
    with pytest.raises(ValueError, match="on_bad_row one of keep, skip, error, found 'parquet' and 'drop'"):
        predict_files(posts, tmp_path / "labels", checkpoint, on_bad_row="drop")
    assert os.listdir(tmp_path) == ["posts"]


def job_of(checkpoint: Path, *names: Path, on_bad_row: str = "keep") -> Job:
    return Job(
        folder=checkpoint,
        names=list(map(str, names)),
        output=Path("labels"),
        output_format="parquet",
        actors=None,
        asked={},
        on_bad_row=on_bad_row,
        threshold=None,
        compute=ComputeOptions("cpu"),
    )


def test_tables_have_the_columns_as_text_the_ids_of_rows_and_their_texts(tmp_path, checkpoint):
    """What Ray deals out, without Ray."""
    path = tmp_path / "a.csv"
    write_csv(path, [["id", "text"], ["001", "好\n好"], ["002", " "], ["003", "坏"]])
    [table] = job_of(checkpoint, path).tables(0)
    assert table.column_names == ["id", "text", "row_id", "__row__"]
    assert table["id"].to_pylist() == ["001", "002", "003"]
    assert table["row_id"].to_pylist() == [2, 4, 5]
    held = table["__row__"].to_pylist()
    assert [row["text"] for row in held] == ["好\n好", None, "坏"]
    assert held[1]["problem"].startswith(f"{path}, line 4: the text is empty")
    [skipped] = job_of(checkpoint, path, on_bad_row="skip").tables(0)
    assert skipped["id"].to_pylist() == ["001", "003"]
    with pytest.raises(InputError, match="line 4: the text is empty"):
        list(job_of(checkpoint, path, on_bad_row="error").tables(0))


def test_tables_of_parquet_keep_types_and_those_of_objects_need_the_first_keys(tmp_path, checkpoint):
    numbers = pa.array(range(5000), pa.int16())
    expected = pa.table({"id": numbers, "text": random_texts(5000), "tags": [["a"]] * 5000})
    parquet.write_table(expected, tmp_path / "a.parquet")
    tables = list(job_of(checkpoint, tmp_path / "a.parquet").tables(0))
    assert pa.concat_tables(tables).select(["id", "text", "tags"]).equals(expected)
    lines = ['{"text": "好", "n": 1}\n', '{"text": "好", "n": [true, null]}\n'] * 2000
    path = tmp_path / "a.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    tables = list(job_of(checkpoint, path).tables(0))
    assert pa.concat_tables(tables)["n"].to_pylist() == ["1", "[true, null]"] * 2000
    path.write_text("".join([*lines, '{"text": "好", "late": 1}\n']), encoding="utf-8")
    with pytest.raises(InputError, match=r"of the first one \(text, n\), found text, n, late"):
        list(job_of(checkpoint, path).tables(0, tables[0].schema))
