"""Temperature scaling and decision.json: python -m pytest tests/tasks/test_temperature.py"""

import json

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from app.errors import InputError
from app.report.text import calibration_effect, report_text
from app.tasks import open_task
from app.tasks.task import Task, fit_temperature
from tests.report.rows_case import measured


def overconfident(num_rows: int, temperature: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose labels are drawn from softmax(logits / temperature)."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 3, (num_rows, 4)).astype(np.float32)
    cumulated = softmax(logits / temperature, axis=1).cumsum(axis=1)
    return (generator.random((num_rows, 1)) > cumulated).sum(axis=1).clip(max=3), logits


def calibration_line(task: Task, figures: dict) -> str:
    """Return what a report says of the temperature."""
    metrics = measured(np.arange(4), np.eye(4, dtype=np.float32), task.label_names) | {"intervals": {}}
    return report_text(task, metrics | figures, {}, "").splitlines()[-1]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_temperature_is_found_on_rows_that_were_drawn_with_it(temperature):
    assert fit_temperature(*overconfident(20_000, temperature)) == pytest.approx(temperature, rel=0.04)


def test_temperature_is_that_of_another_optimizer():
    labels, logits = overconfident(300, 3)

    def loss(inverse):
        return -log_softmax(logits * inverse[0], axis=1)[np.arange(300), labels].mean()

    expected = 1 / minimize(loss, [1.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12}).x[0]
    assert fit_temperature(labels, logits) == pytest.approx(expected, rel=1e-3)


def test_rows_that_are_all_right_say_nothing_about_the_temperature():
    assert fit_temperature(np.zeros(5, int), np.array([[3.0, 0]] * 5, np.float32)) == 1


def test_calibrated_rows_that_were_not_seen_are_better():
    dev, test = (overconfident(2000, 3, seed) for seed in (1, 2))
    name = open_task("single_label", list("abcd"))
    name.fit(*dev, np.arange(2000))
    figures = name.state() | calibration_effect(name, *test, "test")
    assert figures["after"]["loss"] < figures["before"]["loss"] - 0.2
    assert figures["after"]["ece"] < figures["before"]["ece"] / 3
    assert "fitted on 2,000 rows of dev; on test: loss " in calibration_line(name, {"calibration": figures})
    of_dev = name.state() | calibration_effect(name, *dev, "dev")
    assert "the rows it was fitted on" in calibration_line(name, {"calibration": of_dev})


def test_a_temperature_that_few_rows_or_held_out_rows_do_not_support_is_not_used():
    """Six rows once gave a temperature of 19.999; and rows whose logits fit have nothing to gain."""
    for num_rows, why in ((6, "few_rows"), (99, "few_rows"), (120, "no_better")):
        task, ids = open_task("single_label", list("abcd")), np.arange(num_rows, dtype=np.uint64)
        task.fit(*overconfident(num_rows, 1.0, seed=3), ids)
        assert task.unfitted == {"why": why, "rows": num_rows}
        assert (task.temperature, task.state()) == (1, {})
        assert f"{num_rows} dev rows" in calibration_line(task, {"no_calibration": task.unfitted})


def test_temperature_of_a_run_is_read_or_refused(tmp_path):
    path, task = tmp_path / "decision.json", open_task("single_label", ["a", "b"])
    task.read(tmp_path)
    assert task.temperature == 1
    path.write_text(json.dumps({"temperature": 1.5}))
    task.read(tmp_path, calibrate=False)
    assert task.temperature == 1
    task.read(tmp_path)
    assert task.temperature == 1.5
    for content in ("", "[]", "{}"):
        path.write_text(content)
        with pytest.raises(InputError, match="or remove it to decide without"):
            task.read(tmp_path)


@pytest.mark.parametrize("value", ["0", "1e-300", "-1", "NaN", "Infinity", "1e300", '"2"', "true", "null"])
def test_a_temperature_that_no_fit_gives_is_an_error_with_file_and_value(tmp_path, value):
    path, task = tmp_path / "decision.json", open_task("single_label", ["a", "b"])
    path.write_text(f'{{"temperature": {value}}}')
    with pytest.raises(InputError) as raised:
        task.read(tmp_path)
    message = str(raised.value)
    assert str(path) in message
    assert f"temperature must be from 0.05 to 20, found {json.loads(value)!r}" in message
