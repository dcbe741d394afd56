"""A full disk, a real one: one line says what cannot be written and what helps, the status is 1, and nothing
is left that would stop the second try."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.commands import main as verbs
from app.commands import run_verb
from app.run import main
from tests.processes import ROOT, finish, full_disk
from tests.ranks import settings
from tests.saved_classifier import random_texts
from tests.verbs import compare, explain, predict

PAGE_BYTES = 4096  # a file takes whole pages of a tmpfs
STANDARD_OUTPUT = "error: standard output: cannot be written: No space left on device; free space"


@pytest.fixture
def disk(tmp_path) -> Iterator[Callable[[int], Path]]:
    """Return a function that gives an empty disk of so many bytes."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(size: int) -> Path:
        pages = -(-size // PAGE_BYTES)
        command = ["mount", "-t", "tmpfs", "-o", f"size={pages * PAGE_BYTES}", "tmpfs", str(folder)]
        if os.geteuid() or subprocess.run(command, check=False).returncode:
            pytest.skip("no tmpfs can be mounted here")
        return folder

    yield mount
    # Files of it may still be mapped
    subprocess.run(["umount", "--lazy", str(folder)], check=False)


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory) -> Path:
    """A finished run, which no test changes."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert main("single", "", settings(data, folder, **JOB)) == 0
    return folder


JOB = {"train__max_steps": 4, "data__dev_size": 40, "data__test_size": 30}
FIRST = ("run_history.json", "config.yaml", "train.log", "metrics.jsonl", "config.json", "model.safetensors")
OF_MODEL = [*FIRST, "tokenizer.json", "tokenizer_config.json"]


def pages_of(paths: list[Path]) -> int:
    sizes = [path.stat().st_size for path in paths]
    return sum(-(-size // PAGE_BYTES) * PAGE_BYTES for size in sizes)


def check_one_error(stderr: str) -> None:
    errors = [line for line in stderr.splitlines() if line.startswith("error")]
    assert len(errors) == 1, stderr
    assert "No space left on device" in errors[0]
    assert "free space" in errors[0]
    assert "Traceback" not in stderr


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_checkpoint_that_does_not_fit(data, disk, finished, capsys, name, share):
    """Libraries in Rust write these two, and their errors are no OSError."""
    before = OF_MODEL[: OF_MODEL.index(name)]
    room = int((finished / name).stat().st_size * share)
    folder = disk(pages_of([finished / earlier_file for earlier_file in before]) + room)
    assert main("single", "", settings(data, folder / "run", **JOB)) == 1
    check_one_error(capsys.readouterr().err)
    assert not (folder / "run" / ".model").exists()
    assert not (folder / "run" / name).exists()


@pytest.mark.slow
@pytest.mark.parametrize("share", [number / 16 for number in range(1, 16)])
def test_a_run_that_does_not_fit_says_so_whichever_file_is_the_last(data, disk, finished, capsys, share):
    files = [path for path in finished.rglob("*") if path.is_file()]
    folder = disk(int(pages_of(files) * share))
    assert main("single", "", settings(data, folder / "run", **JOB)) == 1
    check_one_error(capsys.readouterr().err)
    subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
    assert main("single", "", settings(data, folder / "run", **JOB)) == 0


@pytest.mark.parametrize("size", [1000, 20_000])
def test_a_page_is_written_whole_or_not_at_all(checkpoint, disk, capsys, size):
    """So the same command can be run again."""
    pytest.importorskip("captum", reason="needs requirements/explain.txt")
    folder = disk(4096)
    (folder / "rest").write_bytes(bytes(4096 - 4096 * (size > 4096)))
    command = [str(checkpoint), "今天真开心电影好", "--html", str(folder / "why.html"), "--device", "cpu"]
    assert explain(command) == 1
    check_one_error(capsys.readouterr().err)
    assert [path.name for path in folder.iterdir()] == ["rest"]
    subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
    assert explain(command) == 0
    assert (folder / "why.html").read_text(encoding="utf-8").rstrip().endswith("</html>")


def write_input(folder: Path, ending: str) -> Path:
    """Write a file of 3,000 texts."""
    texts = random_texts(3000)
    path = folder / f"texts.{ending}"
    if ending == "parquet":
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.table({"text": texts}), path)
    else:
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("ending", "read"), [("csv", "txt"), ("jsonl", "txt"), ("xlsx", "txt"), ("parquet",) * 2]
)
def test_what_is_left_of_a_table_can_be_opened(checkpoint, disk, tmp_path, capsys, caplog, ending, read):
    if ending == "xlsx":
        pytest.importorskip("xlsxwriter", reason="needs requirements/excel.txt")
    source = write_input(tmp_path, read)
    folder = disk(20_000)
    words = ["--checkpoint", str(checkpoint), "--device", "cpu", "--input", str(source)]
    assert predict([*words, "--output", str(folder / f"out.{ending}")]) == 1
    check_one_error(capsys.readouterr().err)
    parts = list(folder.iterdir())
    if ending in ("csv", "jsonl"):
        assert len(parts) == 1
        assert f"the rows so far are in {parts[0]}" in caplog.text
    else:
        assert parts == []
        assert f"no rows are kept, because half a file of {ending} cannot be opened" in caplog.text


def test_an_export_that_does_not_fit(checkpoint, disk, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    rows = write_input(tmp_path, "txt")
    for size in (8192, 60_000, 120_000, 170_000):
        folder = disk(size)
        status = run_verb("export", [str(checkpoint), "--rows", str(rows), "--output", str(folder / "out")])
        stderr = capsys.readouterr().err
        assert status == 1, stderr
        check_one_error(stderr)
        assert list(folder.iterdir()) == []
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_cache_that_does_not_fit(data, disk, tmp_path, capsys):
    """The vocabulary, the tables and the tokens are there or not."""
    for size in (4096, 24_000, 60_000):
        folder = disk(size)
        words = settings([*data[:2], "--data.cache_dir", str(folder / "cache")], tmp_path / "run", **JOB)
        assert main("single", "", words) == 1
        check_one_error(capsys.readouterr().err)
        assert not list(folder.rglob("*.aside-*"))
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def to_full(call: Callable[..., int], *arguments: object) -> int:
    """Call a program whose standard output is the device that is always full; return its exit status."""
    captured = sys.stdout
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123
        sys.stdout = full
        try:
            return call(*arguments)
        finally:
            sys.stdout = captured


@pytest.mark.parametrize("verb", ["", "predict", "explain", "compare", "tune", "serve", "export", "suggest"])
def test_a_help_that_cannot_be_written(capsys, verb):
    assert to_full(verbs, [verb, "--help"] if verb else []) == 1
    stderr = capsys.readouterr().err
    assert stderr.startswith(STANDARD_OUTPUT)
    assert stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--help", "--print_config"])
def test_settings_that_cannot_be_written(capsys, option):
    assert to_full(main, "single", "", [option]) == 1
    stderr = capsys.readouterr().err
    assert stderr.startswith(STANDARD_OUTPUT)
    assert stderr.count("\n") == 1


@pytest.mark.parametrize("count", [1, 3000])
def test_predictions_that_cannot_be_written(checkpoint, tmp_path, capsys, count):
    """Few wait in memory until the end, and many are refused before it."""
    path = tmp_path / "texts.txt"
    path.write_text("今天\n" * count, encoding="utf-8")
    words = ["--checkpoint", str(checkpoint), "--device", "cpu", "--input", str(path)]
    assert to_full(predict, words) == 1
    check_one_error(capsys.readouterr().err)


def test_an_explanation_that_cannot_be_written(checkpoint, capsys):
    pytest.importorskip("captum", reason="needs requirements/explain.txt")
    assert to_full(explain, [str(checkpoint), "今天真开心电影好", "--device", "cpu"]) == 1
    check_one_error(capsys.readouterr().err)


def test_a_comparison_that_cannot_be_written(finished, capsys):
    assert to_full(compare, [str(finished), str(finished)]) == 1
    check_one_error(capsys.readouterr().err)


def test_a_report_of_a_run_that_cannot_be_printed(data, tmp_path, capsys):
    """The run is finished all the same, and its report is in its folder."""
    assert to_full(main, "single", "", settings(data, tmp_path / "run", **JOB)) == 1
    check_one_error(capsys.readouterr().err)
    assert (tmp_path / "run" / "report.json").exists()


@pytest.mark.parametrize(("end", "wanted"), [("> /dev/full", 1), ("| true", 141)])
def test_a_shell_gets_the_status(end, wanted):
    """A reader that leaves is no error."""
    pipe = f"set -o pipefail; {sys.executable} -m app predict --help {end}"
    done = finish(["bash", "-c", pipe], ROOT)
    assert done.returncode == wanted, done.stderr
    assert (STANDARD_OUTPUT in done.stderr) == (wanted == 1)
    assert len(done.stderr.splitlines()) == (wanted == 1)


def test_errors_that_are_of_the_input_are_not_hidden_by_a_full_output(capsys):
    with full_disk(10**6):
        assert to_full(run_verb, "predict", ["--no_such_option"]) == 2
    assert "unrecognized arguments: --no_such_option" in capsys.readouterr().err
