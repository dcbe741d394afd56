"""The quality benchmarks on tiny data."""

import json
from shlex import split

import numpy as np
import pytest

from benchmarks.few_labels.__main__ import share_needed
from benchmarks.harness.command import run_benchmark
from benchmarks.quality import networks
from benchmarks.quality.__main__ import build_parser, differences, measure, scores, summarise
from benchmarks.quality.texts import open_job, rows_by_part
from tests.tiny import write_tiny


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return str(write_tiny(tmp_path / "rows.tsv", 30))


def main(*words: str) -> int:
    return run_benchmark(build_parser(), measure, list(words))


def test_baselines_learn_and_finished_results_are_kept(job, tmp_path, capsys):
    systems = ["ngrams+svm", "ngrams+logistic", "hashed-bag"]
    command = ["--jobs", job, "--seeds", "2", "--output", "quality.json", "--systems", *systems]
    assert main(*command) == 0
    table = capsys.readouterr().out
    results = json.loads((tmp_path / "quality.json").read_text(encoding="utf-8"))["results"][job]
    for system in systems:
        assert system in table
        assert results[system]["accuracy"] > 0.9
        assert results[system]["interval"][0] <= results[system]["accuracy"] <= results[system]["interval"][1]
    cells = sorted((tmp_path / ".cache" / "quality").glob("*/seed-*.json"))
    assert len(cells) == 6
    result = json.loads(cells[0].read_text(encoding="utf-8"))
    cells[0].write_text(json.dumps(result | {"minutes": 99.0}), encoding="utf-8")
    cells[1].unlink()
    assert main(*command) == 0
    # The mean of a kept result and one that was measured again
    assert "49.5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("splits", "names"),
    [
        ("", {"train", "dev", "test"}),
        ("dev_size: 0", {"train", "test"}),
        ("dev: published_dev.tsv, test_size: 0", {"train", "test"}),
    ],
)
def test_settings_are_chosen_on_rows_that_are_not_test_rows(splits, names, job, tmp_path):
    """On dev rows, else on some training rows; the rows of a lone dev file are test rows."""
    write_tiny(tmp_path / "published_dev.tsv", 12, seed=1)
    (tmp_path / "job.yaml").write_text(f"data: {{train: {job}, {splits}}}\n", encoding="utf-8")
    settings, dataset = open_job("job.yaml")
    rows = rows_by_part(dataset)
    texts = {name: set(part.text) for name, part in rows.items()}
    assert set(dataset.splits) == names
    assert settings.dev is None
    assert len(rows["test"]) == len(dataset.splits["test"]) > 0
    if "dev" in names:
        assert len(rows["choose"]) == len(dataset.splits["dev"])
    else:
        assert len(rows["choose"]) + len(rows["train"]) == len(dataset.splits["train"])
    assert not texts["choose"] & texts["train"]
    assert not texts["test"] & (texts["train"] | texts["choose"])


def test_a_job_without_test_rows_is_refused_before_any_job_is_measured(job, tmp_path, capsys):
    job_file = tmp_path / "job.yaml"
    job_file.write_text(f"data: {{train: {job}, test_size: 0}}\n", encoding="utf-8")
    assert main("--jobs", job, str(job_file), "--systems", "ngrams+svm") == 2
    assert f"{job_file}: a job with test rows or a dev file is needed" in capsys.readouterr().err
    assert not list(tmp_path.rglob("seed-*.json"))


def test_systems_are_compared_on_the_same_rows():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 600)

    def cell(right: float) -> dict:
        guesses = generator.integers(0, 3, len(labels))
        return scores(labels, np.where(generator.random(len(labels)) < right, labels, guesses), 3)

    good = [cell(0.8), cell(0.8)]
    bad = [cell(0.3)]
    for metric, (value, (low, high)) in differences(labels, good, bad, 3).items():
        mean = (good[0][metric] + good[1][metric]) / 2
        assert value == pytest.approx(mean - bad[0][metric])
        assert 0.2 < low < value < high < 0.5
    same = differences(labels, bad, bad, 3)
    assert same == {"accuracy": (0.0, (0.0, 0.0)), "macro_f1": (0.0, (0.0, 0.0))}
    timed = [result | {"minutes": minutes} for result, minutes in zip(good, (1, 3), strict=True)]
    summary = summarise(timed, labels)
    accuracies = [result["accuracy"] for result in good]
    assert summary["accuracy"] == pytest.approx(np.mean(accuracies))
    assert summary["accuracy_spread"] == pytest.approx(np.std(accuracies, ddof=1))
    assert summary["minutes"] == 2.0


def test_other_weights_of_a_folder_are_another_version(tmp_path):
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"one")
    first = networks.program_version(str(tmp_path))
    assert networks.program_version(str(tmp_path)) == first
    weights.write_bytes(b"two")
    assert networks.program_version(str(tmp_path)) != first


@pytest.mark.slow
def test_networks_are_fine_tuned_by_the_published_command(job, tmp_path, capsys):
    words = "--systems ngrams+svm random-bert --seeds 1 --output q.json "
    words += "--set train.max_steps=2 train.device=cpu train.precision=fp32"
    assert main("--jobs", job, *split(words)) == 0
    report = json.loads((tmp_path / "q.json").read_text(encoding="utf-8"))
    _, (system, result) = report["results"][job].items()
    assert system == "random-bert"
    assert result["command"].startswith("python run_single.py --config")
    # Two steps from random weights are no match for them
    assert result["against_ngrams"]["accuracy"]["ngrams"] == "ngrams+svm"
    assert result["against_ngrams"]["accuracy"]["interval"][1] < 0
    assert "minus n-grams" in capsys.readouterr().out


def test_the_share_of_rows_that_a_strategy_needs_is_found():
    rising = np.linspace(0.1, 0.65, 12)
    assert share_needed(rising, rising, 150) == "100%"
    assert share_needed(rising, rising + 0.05, 300) == "92%"
    assert share_needed(rising, rising - 0.3, 300) == "never"
