"""benchmarks/gradient_sync.py with a tiny model: that its columns do the same job, not how fast they are."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.namespaces import Unavailable, linked_namespaces

ROOT = Path(__file__).parents[2]
BENCHMARK = ROOT / "benchmarks" / "gradient_sync.py"
COLUMNS = ["baseline", "backward only", "no_sync", "accumulate"]
TINY = shlex.split(
    "--batches 5 --passes 2 --batch_size 2 --tokens 4 --layers 1 --hidden 16 --vocabulary 50 --threads 1"
)


def run(
    output: Path, *options: str, script: Path = BENCHMARK, **environment: str
) -> tuple[subprocess.CompletedProcess, dict]:
    """Run the benchmark; return the finished process and the results it wrote."""
    command = [sys.executable, str(script), *TINY, "--output", str(output), *options]
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=180, env={**os.environ, **environment}
    )
    assert output.exists(), result.stderr
    return result, json.loads(output.read_text())


def check_scene(result: dict) -> None:
    """All columns ended with the same weights, and only two of them saved communication."""
    assert list(result["columns"]) == COLUMNS
    assert result["weights_equal"] is True
    assert result["weights"]["ranks_equal"] is True
    assert result["weights"]["moved"] > 1e-3
    for column in result["columns"].values():
        assert column["max_weight_difference"] <= 1e-6
        # In each pass four micro-batches, and the one that is left
        assert len(column["turns_seconds_per_batch"]) == 4
        assert min(column["turns_seconds_per_batch"]) > 0
        whole = column["turns_seconds_per_batch"][::2]
        assert column["seconds_per_batch"] == pytest.approx(sum(whole) / 2)
    gradients = result["parameters"] * 4 / 1e6
    synchronised = [column["megabytes_per_batch"] for column in result["columns"].values()]
    assert synchronised == pytest.approx([gradients, gradients, gradients / 4, gradients / 4])


@pytest.mark.slow
def test_on_one_machine_all_columns_do_the_same_job(tmp_path):
    process, report = run(tmp_path / "results.json", "--scenes", "machine")
    assert process.returncode == 0
    assert list(report["scenes"]) == ["machine"]
    check_scene(report["scenes"]["machine"])
    assert report["scenes"]["machine"]["published_seconds_per_batch"] == dict(
        zip(COLUMNS, [0.50, 0.50, 0.41, 0.41], strict=True)
    )
    assert "One machine" in process.stdout
    assert "all weights equal" in process.stdout
    for name in COLUMNS:
        assert name in process.stdout


@pytest.mark.slow
def test_a_column_that_does_another_job_is_caught(tmp_path):
    """A control: `no_sync` that never synchronises is the fastest of all, and the benchmark must refuse it."""
    worker, script = tmp_path / "worker.py", tmp_path / "script.py"
    path = f"import sys\nsys.path.insert(0, {str(BENCHMARK.parent)!r})\n"
    worker.write_text(
        f"""{path}import gradient_sync_worker as worker
def micro_batch(self, input_ids, labels, is_last):
    with self.model.no_sync():
        self.loss(input_ids, labels).backward()
worker.NoSync.micro_batch = micro_batch
worker.main()
"""
    )
    script.write_text(
        f"""{path}import gradient_sync, pathlib
gradient_sync.WORKER = pathlib.Path({str(worker)!r})
sys.exit(gradient_sync.main())
"""
    )
    process, report = run(tmp_path / "results.json", "--scenes", "machine", script=script)
    result = report["scenes"]["machine"]
    assert process.returncode == 1
    assert "WEIGHTS DIFFER" in process.stdout
    assert result["weights"]["ranks_equal"] is False
    assert result["columns"]["no_sync"]["megabytes_per_batch"] == 0
    differences = {name: column["max_weight_difference"] for name, column in result["columns"].items()}
    assert differences.pop("no_sync") > 1e-4
    assert max(differences.values()) <= 1e-6


@pytest.mark.slow
def test_over_a_link_between_namespaces(tmp_path):
    process, report = run(tmp_path / "results.json", "--scenes", "network")
    assert process.returncode == 0
    result = report["scenes"]["network"]
    if "skipped" in result:
        assert f"skipped: {result['skipped']}" in process.stdout
        pytest.skip(result["skipped"])
    check_scene(result)


def test_the_namespaces_are_gone_after_a_failure():
    names = []

    def fail() -> None:
        with linked_namespaces("10mbit") as hosts:
            names.extend(host.command[-1] for host in hosts)
            assert set(names) <= set(list_namespaces())
            raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            fail()
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert len(names) == 2
    assert not set(names) & set(list_namespaces())


def test_where_namespaces_cannot_be_made_the_scene_is_skipped_with_a_reason(tmp_path):
    process, report = run(tmp_path / "results.json", "--scenes", "network", PATH=str(tmp_path))
    assert process.returncode == 0
    reason = report["scenes"]["network"]["skipped"]
    assert any(word in reason for word in ("iproute2", "root", "Linux only"))
    assert f"skipped: {reason}" in process.stdout


def list_namespaces() -> list[str]:
    """Return the names of this machine's network namespaces."""
    lines = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [line.split()[0] for line in lines]
