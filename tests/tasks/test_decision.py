"""Losses; how answers follow from logits; what is fitted on dev, temperatures and thresholds, and its file
decision.json."""

import json
import os
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.metrics import average_precision_score, f1_score, precision_recall_curve, roc_auc_score
from sklearn.utils.class_weight import compute_class_weight
from torch.nn.functional import cross_entropy, logsigmoid

from app.config.schema import TASKS, Config, TrainConfig
from app.errors import InputError
from app.report.bootstrap import all_metrics
from app.report.confidence import calibration_effect
from app.tasks import open_task
from app.tasks.columns import prediction_columns, ranked_labels
from app.tasks.decision_file import read_decision_file, write_decision_file
from app.tasks.losses import CLASS_LOSSES, LIST_LOSSES, NUMBER_LOSSES, ClassLoss, ListLoss, Loss, NumberLoss
from app.tasks.probabilities import sigmoid
from app.tasks.temperature import fit_temperature
from app.tasks.thresholds import choose_thresholds
from tests.report.test_metrics import PATHS, task_of
from tests.tiny import LABELS as LABEL_NAMES


def overconfident(num_rows: int, temperature: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose labels are drawn from softmax(logits / temperature)."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 3, (num_rows, 4)).astype(np.float32)
    cumulated = softmax(logits / temperature, axis=1).cumsum(axis=1)
    return (generator.random((num_rows, 1)) > cumulated).sum(axis=1).clip(max=3), logits


def test_a_temperature_is_that_of_another_optimizer_and_of_the_rows_that_were_drawn_with_it():
    for temperature in (0.5, 1.0, 2.5):
        labels, logits = overconfident(20_000, temperature)
        assert fit_temperature(labels, logits) == pytest.approx(temperature, rel=0.04)
    labels, logits = overconfident(300, 3)

    def loss(inverse):
        return -log_softmax(logits * inverse[0], axis=1)[np.arange(300), labels].mean()

    tolerances = {"xatol": 1e-6, "fatol": 1e-12}
    best_inverse = minimize(loss, [1.0], method="Nelder-Mead", options=tolerances).x[0]
    assert fit_temperature(labels, logits) == pytest.approx(1 / best_inverse, rel=1e-3)
    assert fit_temperature(np.zeros(5, int), np.array([[3.0, 0]] * 5, np.float32)) == 1, "all are right"


def test_calibrated_rows_that_were_not_seen_are_better():
    dev_labels, dev_logits = overconfident(2000, 3, seed=1)
    test_labels, test_logits = overconfident(2000, 3, seed=2)
    task = open_task("single_label", list("abcd"))
    task.fit(dev_labels, dev_logits, np.arange(2000))
    figures = task.state() | calibration_effect(task, test_labels, test_logits, "test")
    assert figures["after"]["loss"] < figures["before"]["loss"] - 0.2
    assert figures["after"]["ece"] < figures["before"]["ece"] / 3


@pytest.mark.parametrize(("num_rows", "why"), [(6, "few_rows"), (99, "few_rows"), (120, "no_better")])
def test_a_temperature_that_few_rows_or_held_out_rows_do_not_support_is_not_used(num_rows, why):
    """Six rows once gave a temperature of 19.999; and rows whose logits fit have nothing to gain."""
    task = open_task("single_label", list("abcd"))
    labels, logits = overconfident(num_rows, 1.0, seed=3)
    task.fit(labels, logits, np.arange(num_rows, dtype=np.uint64))
    assert task.no_calibration == {"why": why, "rows": num_rows}
    assert (task.temperature, task.state()) == (1, {})


def best_f1(has_label: np.ndarray, scores: np.ndarray) -> float:
    """Return the best F1 over all cuts between different scores."""
    precision, recall, _ = precision_recall_curve(has_label, scores)
    return float((2 * precision * recall / (precision + recall).clip(1e-9)).max())


def test_a_threshold_is_the_best_of_all_that_could_be():
    generator = np.random.default_rng(0)
    labels = generator.random((200, 5)) < [0.5, 0.3, 0.1, 0.02, 0.0]
    # So that some are equal
    probabilities = sigmoid(labels * 2.0 - 1 + generator.normal(0, 2, labels.shape)).round(2)
    chosen = choose_thresholds(labels, probabilities)
    assert chosen[4] == 0.5, "no row has the label"
    for label in range(4):
        has_label = labels[:, label]
        column = probabilities[:, label]
        assert f1_score(has_label, column >= chosen[label]) == pytest.approx(best_f1(has_label, column))


def near_rows(num_rows: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Return four labels a row, and float32 logits that are so near to each other as those of a model that
    has not learned much."""
    generator = np.random.default_rng(0)
    labels = generator.random((num_rows, 4)) < [0.5, 0.3, 0.1, 0.02]
    logits = 0.2 * labels + generator.normal(0, 0.2, labels.shape) - 1
    return labels, logits.astype(np.float32)


def test_a_threshold_is_the_best_also_between_logits_that_are_near():
    labels, logits = near_rows()
    thresholds = choose_thresholds(labels, sigmoid(logits))
    decided = sigmoid(logits) >= thresholds
    for label in range(4):
        has_label = labels[:, label]
        best = best_f1(has_label, logits[:, label])
        assert f1_score(has_label, decided[:, label]) == pytest.approx(best, rel=1e-12)


def test_near_logits_are_decided_alike_in_any_precision_after_writing_and_in_other_batches(tmp_path):
    labels, logits = near_rows()
    task = open_task("multi_label", list("abcd"))
    task.fit(labels, logits)
    decided = task.decide(logits)
    write_decision_file(tmp_path, task, 1, {})
    again = open_task("multi_label", list("abcd"))
    read_decision_file(tmp_path, again)
    # Logits move by less than half of what is between them at the threshold
    odds = np.log(task.thresholds / (1 - task.thresholds))
    moved = logits.astype(np.float64) + 0.9 * np.abs(logits - odds).min(axis=0)
    for values in (logits, logits.astype(np.float64), moved, 2 * logits.astype(np.float64) - moved):
        assert (again.decide(values) == decided).all()


def test_rows_of_neighbouring_probabilities_are_decided_on_both_sides_of_the_threshold():
    """Between them is no other number, and halfway is rounded to one of them."""
    labels = np.array([[1], [0]])
    for probability in (0.1, 0.3, 0.5, 0.9, 1.0, 1e-300):
        two = np.array([[probability], [np.nextafter(probability, 0)]])
        assert (two >= choose_thresholds(labels, two)).ravel().tolist() == [True, False]


def test_of_equally_good_thresholds_one_between_far_logits_and_the_nearest_to_a_half_is_chosen():
    labels = np.array([[1], [1], [0], [0]])
    assert choose_thresholds(labels, np.array([[0.9], [0.7], [0.2], [0.1]])).tolist() == [pytest.approx(0.45)]
    everything = np.ones((3, 1), dtype=np.uint8)
    assert choose_thresholds(everything, np.array([[0.9], [0.4], [0.2]])).tolist() == [pytest.approx(0.1)]
    # F1 is 2/3 with one row, which is near to the next one, and with the four that come first
    labels = np.array([[1], [0], [0], [1], [0]])
    logits = np.array([[1.0 + 1e-6], [1.0], [0.5], [-1.0], [-3.0]])
    assert sigmoid(-3.0) < choose_thresholds(labels, sigmoid(logits))[0] < sigmoid(-1.0)
    assert sigmoid(-43.0) < choose_thresholds(labels, sigmoid(logits - 40))[0] < sigmoid(-41.0)
    # Where only a threshold between near ones is the best, it is chosen
    labels = np.array([[1], [1], [0], [0]])
    logits = np.array([[3.0], [1.0 + 1e-6], [1.0], [-2.0]])
    assert sigmoid(1.0) < choose_thresholds(labels, sigmoid(logits))[0] < sigmoid(1.0 + 1e-6)


def rare_rows(num_rows: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Return labels of which one in ten is 1, and logits with which argmax seldom says so."""
    generator = np.random.default_rng(0)
    labels = (generator.random(num_rows) < 0.1).astype(np.int64)
    odds = generator.normal(0, 1.5, num_rows) + 2 * labels - 3
    return labels, np.c_[np.zeros(num_rows), odds].astype(np.float32)


@pytest.mark.parametrize("recall_at", [0.9, 0.5])
def test_figures_of_the_rarer_class_are_those_of_scikit_learn_and_have_intervals(recall_at):
    labels, logits = rare_rows()
    task = open_task("single_label", ["a", "b"])
    task.recall_at = recall_at
    metrics = all_metrics(task, task.score(labels, logits))
    chances = task.probabilities(logits)[:, 1]
    precision, recall, _ = precision_recall_curve(labels, chances)
    expected = {
        "rare_f1": f1_score(labels, logits.argmax(axis=1)),
        "average_precision": average_precision_score(labels, chances),
        "roc_auc": roc_auc_score(labels, chances),
        "recall_at_precision": recall[precision >= recall_at].max(),
    }
    for key, value in expected.items():
        assert metrics[key] == pytest.approx(value)
        low, high = metrics["intervals"][key]
        assert low < metrics[key] < high
    three = open_task("single_label", ["a", "b", "c"])
    assert "roc_auc" not in all_metrics(three, three.score(labels, np.c_[logits, logits[:, 0] - 9]))
    scores_of_one_class = task.score(np.zeros(5, int), logits[:5])
    assert all_metrics(task, scores_of_one_class)["roc_auc"] == 0.5, "there is no pair to compare"


def test_the_threshold_of_dev_has_the_best_f1_and_is_independent_of_the_temperature(tmp_path):
    labels, logits = rare_rows(2000)
    # Too sure, so that there is a temperature
    logits = 2 * logits
    task = open_task("single_label", ["a", "b"])
    task.rare_class = 1
    task.best_metric = "rare_f1"
    task.fit(labels, logits, np.arange(len(labels)))
    assert task.temperature != 1
    chances = task.probabilities(logits, calibrated=False)[:, 1]
    decided = task.decide(logits)
    thresholds = np.unique(chances.round(3))
    best = max(f1_score(labels, chances >= threshold) for threshold in thresholds)
    assert f1_score(labels, decided) >= best - 1e-3
    assert best - 1e-3 > f1_score(labels, logits.argmax(axis=1)) + 0.1
    assert task.decide_by_probabilities(task.probabilities(logits)).tolist() == decided.tolist()
    write_decision_file(tmp_path, task, 1, {})
    for calibrate in (True, False):
        again = open_task("single_label", ["a", "b"])
        read_decision_file(tmp_path, again, calibrate)
        assert again.decide(logits).tolist() == decided.tolist()
        assert (again.temperature == 1) == (not calibrate)
    answer = int(decided[0])
    assert ranked_labels(task, task.probabilities(logits)[0]).tolist() == [answer, 1 - answer]


@pytest.mark.parametrize("first_has_a_threshold", [True, False])
def test_runs_that_answer_together_have_the_mean_threshold_of_the_rarer_class(first_has_a_threshold):
    """In any order of their labels; a run without one takes the most probable label, from one half on."""
    task = open_task("single_label", ["a", "b"])
    task.load({"rare_class": "b", "rare_threshold": 0.2, "temperature": 2.0})
    other = open_task("single_label", ["b", "a"])
    tasks = (task, other) if first_has_a_threshold else (other, task)
    together = tasks[0].together_with(tasks[1:])
    # The temperature divides the log odds of 0.2, which are those of 1 to 4, so that they are 1 to 2
    threshold = (1 / 3 + 1 / 2) / 2
    rare_chances = np.array([threshold - 1e-6, threshold + 1e-6])
    probabilities = np.c_[1 - rare_chances, rare_chances]
    if not first_has_a_threshold:
        probabilities = probabilities[:, ::-1]
    names = [together.label_names[label] for label in together.decide_by_probabilities(probabilities)]
    assert names == ["a", "b"]
    assert task.temperature == 2


def test_probabilities_of_ordered_labels_add_up_and_gradients_are_finite_where_outputs_are_large():
    stars = open_task("ordinal", list("12345"))
    outputs = np.random.default_rng(0).normal(0, 5, (200, 5)).astype(np.float32)
    probabilities = stars.probabilities(outputs)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(200))
    assert (probabilities > 0).all()
    assert 1 - probabilities[:, 0] == pytest.approx(1 / (1 + np.exp(-outputs[:, 0].astype(np.float64))))
    again = stars.class_logits(torch.from_numpy(outputs).double(), torch).exp().numpy()
    assert again == pytest.approx(probabilities)
    scores = stars.score(np.arange(200) % 5, outputs)
    assert (scores.predicted == stars.decide(outputs)).all()
    assert scores.confidence == pytest.approx(stars.confidence(probabilities))
    large = torch.tensor([[90.0, -200.0, 50.0, 0.0], [-90.0, 50.0, -200.0, 0.0]], requires_grad=True)
    for label in range(4):
        loss = -stars.class_logits(large, torch)[:, label].sum()
        (gradient,) = torch.autograd.grad(loss, large)
        assert loss.isfinite()
        assert gradient.isfinite().all()


def test_of_ordered_labels_the_decision_is_the_median_and_says_how_sure_it_is():
    task = open_task("ordinal", list("abc"))
    probabilities = np.array([[0.4, 0.25, 0.35], [0.6, 0.3, 0.1], [0.1, 0.3, 0.6]])
    assert task.decide_by_probabilities(probabilities).tolist() == [1, 0, 2]
    assert task.confidence(probabilities).tolist() == [0.25, 0.6, 0.6]
    assert prediction_columns(task, probabilities[0], 0.3)["decision"] == "abstain"
    for row, ranked in zip(probabilities, ([1, 0, 2], [0, 1, 2], [2, 1, 0]), strict=True):
        assert ranked_labels(task, row).tolist() == ranked


STOPS = [
    (0.4, "accept", "体育-球类-篮球", 0.45),
    (0.8, "partial", "体育-球类", 0.85),
    (0.9, "partial", "体育", 0.95),
    (0.96, "abstain", "", 0.0),
]


@pytest.mark.parametrize(("threshold", "decision", "sure_label", "sure_probability"), STOPS)
def test_a_path_stops_at_the_deepest_level_that_is_sure_enough(
    threshold, decision, sure_label, sure_probability
):
    task = task_of("single_path")
    columns = prediction_columns(task, np.array([0.1, 0.45, 0.4, 0.03, 0.02]), threshold)
    assert columns["decision"] == decision
    assert columns["sure_label"] == sure_label
    assert columns["sure_probability"] == sure_probability
    assert list(columns)[:5] == ["probability", "decision", "sure_label", "sure_probability", "margin"]
    parents = {key: value for key, value in columns.items() if key.endswith("*")}
    assert parents == {"p_体育-*": 0.95, "p_体育-球类-*": 0.85, "p_财经-*": 0.05}


def test_of_a_path_and_one_that_ends_above_it_the_longer_one_is_predicted():
    task = task_of("multi_path")
    predicted = task.decide(np.array([[3.0, 3, -3, -3, 3], [3.0, -3, -3, -3, -3]]))
    assert predicted.tolist() == [[False, True, False, False, True], [True, False, False, False, False]]


def test_the_file_of_a_run_is_read(tmp_path):
    path = tmp_path / "decision.json"
    names = ["a", "b"]
    single_label = open_task("single_label", names)
    multi_label = open_task("multi_label", names)
    read_decision_file(tmp_path, single_label)
    read_decision_file(tmp_path, multi_label)
    assert single_label.temperature == 1
    assert multi_label.thresholds.tolist() == [0.5, 0.5]
    path.write_text(json.dumps({"temperature": 1.5}))
    read_decision_file(tmp_path, single_label)
    assert single_label.temperature == 1.5
    path.write_text(json.dumps({"thresholds": {"b": 0.25, "a": 0.125}, "chosen_on": "dev", "rows": 20}))
    read_decision_file(tmp_path, multi_label)
    assert multi_label.thresholds.tolist() == [0.125, 0.25]
    assert (multi_label.chosen_on, multi_label.num_fitted_rows) == ("dev", 20)
    single_path = task_of("single_path")
    single_path.calibration = {"temperature": 2.0}
    write_decision_file(tmp_path, single_path, 1, {})
    again = open_task("single_path", PATHS)
    read_decision_file(tmp_path, again)
    assert (again.tree.separator, again.temperature) == ("-", 2)


DAMAGED = [
    "",
    "[]",
    "{}",
    '{"thresholds": {"a": 0.5}}',
    '{"rare_class": "x"}',
    '{"rare_class": "a", "rare_threshold": 2}',
]


@pytest.mark.parametrize("name", ["single_label", "multi_label"])
@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_an_error(tmp_path, content, name):
    (tmp_path / "decision.json").write_text(content)
    with pytest.raises(InputError, match=r"fitted for the decision is needed.*to decide without"):
        read_decision_file(tmp_path, open_task(name, ["a", "b"]))


@pytest.mark.parametrize("name", ["single_label", "multi_label"])
def test_a_pipe_in_the_place_of_the_file_is_an_error_and_does_not_hang(tmp_path, name):
    os.mkfifo(tmp_path / "decision.json")
    rule = r"fitted for the decision is needed.*a regular file is needed.*to decide without"
    with pytest.raises(InputError, match=rule):
        read_decision_file(tmp_path, open_task(name, ["a", "b"]))


@pytest.mark.parametrize("value", ["-0.1", "1e300", "NaN", "Infinity", '"0.5"', "true", "null"])
def test_a_number_that_no_fit_gives_is_an_error_with_file_and_value(tmp_path, value):
    path = tmp_path / "decision.json"
    message = re.escape(f"found {json.loads(value)!r}")
    path.write_text(f'{{"temperature": {value}, "thresholds": {{"a": 0.5, "b": {value}}}}}')
    with pytest.raises(InputError, match=f"{path}.*: .*temperature must be from 0.05 to 20, {message}"):
        read_decision_file(tmp_path, open_task("single_label", ["a", "b"]))
    with pytest.raises(InputError, match=f"{path}.*: .*the threshold of b must be from 0 to 1, {message}"):
        read_decision_file(tmp_path, open_task("multi_label", ["a", "b"]))


LOGITS = torch.tensor([[0.5, -1.0, 0.2], [2.0, 0.0, 1.0], [-1.0, 0.3, 0.1]])
LABELS = torch.tensor([0, 2, 1])
LISTS = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
SHARES = torch.tensor([0.7, 0.2, 0.1])
WEIGHTS = torch.tensor([0.5, 1.0, 3.0])
ADJUSTED = LOGITS + SHARES.log()
# The probabilities of what is true
OF_LABEL = torch.softmax(LOGITS.double(), dim=1)[torch.arange(3), LABELS]
OF_LISTS = torch.sigmoid(torch.where(LISTS.bool(), LOGITS.double(), -LOGITS.double()))
LIST_WEIGHTS = torch.where(LISTS.bool(), WEIGHTS.double(), 1.0)
CPU = torch.device("cpu")
NAN = float("nan")
INF = float("inf")


# A number is predicted 1.5 too low, 0.25 too high and 3 too high
NUMBERS = torch.tensor([2.0, 1.75, -4.0])
PREDICTED_NUMBERS = LOGITS[:, :1]
ERRORS = torch.tensor([1.5, 0.25, 3.0])
SQUARES = ERRORS**2
# Linear from an error of 1 on
HUBER = torch.where(ERRORS < 1, SQUARES / 2, ERRORS - 0.5)
# Distributions of labels, and probabilities of several
SHARES_OF_ROWS = torch.tensor([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]])
PROBABILITIES_OF_LISTS = torch.tensor([[0.7, 0.2, 0.0], [1.0, 1.0, 0.5], [0.25, 0.9, 0.5]])
# The loss, outputs of the model, labels, and the value of each row or label by its formula
FORMULAS = [
    (
        ClassLoss("cross_entropy", WEIGHTS),
        LOGITS,
        SHARES_OF_ROWS,
        -SHARES_OF_ROWS * WEIGHTS * LOGITS.log_softmax(1),
    ),
    (
        ClassLoss("logit_adjusted", class_shares=SHARES),
        LOGITS,
        SHARES_OF_ROWS,
        -SHARES_OF_ROWS * ADJUSTED.log_softmax(1),
    ),
    (
        ListLoss("cross_entropy"),
        LOGITS,
        PROBABILITIES_OF_LISTS,
        -PROBABILITIES_OF_LISTS * logsigmoid(LOGITS) - (1 - PROBABILITIES_OF_LISTS) * logsigmoid(-LOGITS),
    ),
    (ClassLoss("cross_entropy", WEIGHTS), LOGITS, LABELS, -OF_LABEL.log() * WEIGHTS[LABELS]),
    (ClassLoss("focal"), LOGITS, LABELS, -OF_LABEL.log() * (1 - OF_LABEL) ** 2),
    (ClassLoss("logit_adjusted", class_shares=SHARES), LOGITS, LABELS, cross_entropy(ADJUSTED, LABELS) * 3),
    (ListLoss("cross_entropy", WEIGHTS), LOGITS, LISTS, -OF_LISTS.log() * LIST_WEIGHTS),
    (ListLoss("focal", WEIGHTS), LOGITS, LISTS, -OF_LISTS.log() * LIST_WEIGHTS * (1 - OF_LISTS) ** 2),
    (NumberLoss("cross_entropy"), PREDICTED_NUMBERS, NUMBERS, SQUARES),
    (NumberLoss("huber"), PREDICTED_NUMBERS, NUMBERS, HUBER),
]
LOSS_TABLES = {ClassLoss: CLASS_LOSSES, ListLoss: LIST_LOSSES, NumberLoss: NUMBER_LOSSES}


@pytest.mark.parametrize(("loss", "outputs", "labels", "expected"), FORMULAS)
def test_a_loss_is_its_formula_and_the_gradient_of_sure_rows_is_finite(loss, outputs, labels, expected):
    assert float(loss(outputs, labels)) == pytest.approx(float(expected.sum()), rel=1e-6)
    assert float(loss(outputs[:0], labels[:0])) == 0
    sure = torch.tensor([[200.0, 0.0, 0.0], [0.0, -200.0, 0.0], [-200.0, 200.0, 0.0]], requires_grad=True)
    loss(sure[:, : outputs.shape[1]], labels).backward()
    assert sure.grad.isfinite().all()


def test_every_loss_is_compared_with_its_formula():
    assert set(Loss.__subclasses__()) == set(LOSS_TABLES)
    compared = {(type(loss), loss.name) for loss, *_ in FORMULAS}
    for loss_class, table in LOSS_TABLES.items():
        assert {name for name in table if (loss_class, name) not in compared} == set(), "add it to FORMULAS"


def test_balanced_weights_of_classes_are_those_of_scikit_learn():
    labels = np.repeat([0, 1, 2], [30, 6, 30])
    task = open_task("single_label", LABEL_NAMES)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    task.device = CPU
    task.config = Config(train=TrainConfig(class_weights="balanced"))
    assert task.build_loss(labels).weights.tolist() == pytest.approx(expected)
    task.config = Config()
    assert task.build_loss(labels).weights is None


WRONG_WEIGHTS = [
    [NAN, 1.0, 1.0],
    [1.0, 1.0, INF],
    [1.0, 1.0, -INF],
    [1.0, -1.0, 1.0],
    [1e39, 1.0, 1.0],
    [0.0, 1.0, 1.0],
    [1e-50, 1.0, 1.0],
    [1.0, 1.0],
    [],
]


@pytest.mark.parametrize("weights", WRONG_WEIGHTS)
def test_class_weights_that_would_spoil_the_training_or_train_nothing_are_refused(weights):
    rule = "must be 3 numbers above 0, in single precision too, one for each of 中性, 正面, 负面; found"
    task = open_task("single_label", LABEL_NAMES)
    # The settings themselves refuse some of these
    task.device = CPU
    task.config = SimpleNamespace(train=SimpleNamespace(class_weights=weights))
    with pytest.raises(InputError, match=rule):
        task.label_weights(np.ones(3))


def test_the_losses_of_the_setting_are_those_of_the_tables():
    """`train.loss` lists names without importing torch."""
    tables = {
        "single_label": CLASS_LOSSES,
        "ordinal": CLASS_LOSSES,
        "multi_label": LIST_LOSSES,
        "regression": NUMBER_LOSSES,
    }
    for task, table in tables.items():
        assert TASKS[task].losses == tuple(table)
