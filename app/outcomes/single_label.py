"""One label a row: the most probable one, with a probability that is calibrated by a temperature."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..evaluation.logits_file import SplitLogits
from ..evaluation.page.report_page import PageContent
from ..evaluation.text_table import short_label
from ..words import _
from .baselines import LinearModel, measured
from .class_scores import ClassScores, score_classes, softmax
from .label_counts import LabelCounts, distinct_classes
from .label_issues import class_quality, flag_classes, in_chunks
from .label_metrics import MixedPair, confusions, label_metrics, mixed_pairs
from .label_report import classes_table, confusion_lines, interval_lines, never_predicted
from .labelled_outcome import LabelledOutcome
from .metrics import BY_KEY
from .outcome import FITTED_ON
from .single_label_page import page_sections
from .temperature import LARGEST, SMALLEST, choose_temperature, effect, render_calibration
from .texts import Texts

if TYPE_CHECKING:
    import torch

# Frequent mistakes in JSON, and printed
MAX_PATTERNS, MAX_PRINTED = 1000, 10
AVERAGES = ("macro", "weighted")


class SingleLabel(LabelledOutcome):
    """Labels and predictions are class ids, (num_rows,) int64. Probabilities are softmax(logits /
    `temperature`)."""

    task = "single_label"
    problem_type = "single_label_classification"
    log_metrics = ("loss", "accuracy", "macro_f1", "weighted_f1")
    beside_baselines = ("accuracy", "macro_f1")
    fitted_file = "calibration.json"
    fitted_rule = "a temperature above 0 is needed"
    fitted_remedy = "restore it, or classify without it: --calibrate none"

    def __init__(self, label_names: list[str]) -> None:
        super().__init__(label_names)
        self.temperature = 1.0
        self.fitted: dict = {}

    def prepare(self, config, dataset, tokenizer, device) -> None:
        super().prepare(config, dataset, tokenizer, device)
        from .losses import single_label_loss

        labels = dataset.splits["train"].labels
        self.loss = single_label_loss(config.train, labels, self.label_names, device)

    def class_logits(self, logits: np.ndarray) -> np.ndarray:
        """Return logits whose softmax are the probabilities of the labels, of the model's outputs."""
        return logits

    def scores(self, labels: np.ndarray, logits: np.ndarray, temperature: float = 1.0) -> ClassScores:
        """Return the scores of rows, their probabilities at a temperature."""
        return score_classes(labels, self.class_logits(logits), temperature)

    def probabilities(self, logits: np.ndarray, calibrated: bool = True) -> np.ndarray:
        classes = self.class_logits(logits)
        return softmax(classes / self.temperature if calibrated else classes)

    def decide(self, logits: np.ndarray) -> np.ndarray:
        return np.asarray(logits).argmax(axis=1)

    def chosen(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the label of each row, (num_rows,), that follows from its probabilities."""
        return probabilities.argmax(axis=1)

    def confidence(self, probabilities: np.ndarray) -> np.ndarray:
        return probabilities[np.arange(len(probabilities)), self.chosen(probabilities)]

    def held_out_decisions(self, dev: SplitLogits) -> ClassScores:
        """Return the scores of dev rows: a single temperature for all rows does not overfit."""
        return self.scores(dev.labels, dev.logits, self.temperature)

    def fit(self, dev: SplitLogits) -> None:
        temperature = choose_temperature(dev.labels, self.class_logits(dev.logits), dev.hashes)
        if isinstance(temperature, str):
            self.unfitted = {"why": temperature, "rows": len(dev)}
        else:
            self.use_fitted({"temperature": temperature, "rows": len(dev)})

    def fitted_values(self) -> dict:
        return self.fitted

    def use_fitted(self, values: dict) -> None:
        temperature = values["temperature"]
        if not (type(temperature) in (int, float) and SMALLEST <= temperature <= LARGEST):
            raise ValueError(f"temperature must be from {SMALLEST} to {LARGEST:g}, found {temperature!r}")
        self.temperature = float(temperature)
        rows = int(values.get("rows", 0))
        self.fitted = {"temperature": temperature, "fitted_on": FITTED_ON, "rows": rows}

    def read_fitted(self, folder: Path, calibrate: bool = True) -> None:
        if calibrate:
            super().read_fitted(folder)

    def effect_of_fit(self, labels: np.ndarray, logits: np.ndarray, measured_on: str) -> dict:
        classes = self.class_logits(logits)
        return effect(self.temperature, labels, classes, measured_on) if self.fitted else {}

    def score(
        self, labels: np.ndarray, logits: np.ndarray, predicted: np.ndarray | None = None
    ) -> ClassScores:
        return self.scores(labels, logits)

    def calibrated(self, labels: np.ndarray, logits: np.ndarray) -> ClassScores | None:
        return self.scores(labels, logits, self.temperature) if self.fitted else None

    def measure(self, scores: ClassScores) -> dict:
        """Return accuracy, loss, the metrics of each class, macro and weighted averages, and confusions.
        `loss` is the mean cross entropy over rows, without label smoothing or class weights."""
        return {
            "rows": len(scores),
            "loss": float(scores.loss.mean()),
            "accuracy": float(scores.correct.mean()),
            **label_metrics(scores, self.label_names, AVERAGES),
            **confusions(scores.labels, scores.predicted, self.label_names),
        }

    def distinct_rows(
        self, labels: np.ndarray, *predicted: np.ndarray
    ) -> tuple[list[np.ndarray], np.ndarray]:
        return distinct_classes(len(self.label_names), labels, *predicted)

    def count(self, labels: np.ndarray, predicted: np.ndarray) -> LabelCounts:
        return LabelCounts.of_classes(labels, predicted, len(self.label_names))

    def baselines(self, train: Texts, dev: Texts | None, report: Texts) -> dict[str, dict]:
        num_labels = len(self.label_names)
        majority = np.full(len(report.labels), np.bincount(train.labels).argmax())
        linear = LinearModel(train, num_labels)
        return {
            "majority class": measured(self, report.labels, majority),
            linear.name: measured(self, *linear.predict(report)),
        }

    def label_quality(self, scores: ClassScores, logits: np.ndarray) -> np.ndarray:
        return in_chunks(
            lambda *rows: class_quality(rows[0], softmax(self.class_logits(rows[1]))), scores.labels, logits
        )

    def flag_labels(self, scores: ClassScores, logits: np.ndarray) -> tuple[np.ndarray, dict]:
        flagged, overlaps = flag_classes(scores.labels, softmax(self.class_logits(np.asarray(logits))))
        names = self.label_names
        pairs = [{"classes": [names[a], names[b]], "rows": rows} for a, b, rows in overlaps[:MAX_PATTERNS]]
        return flagged, {"overlapping_classes": pairs}

    def pattern_lines(self, patterns: dict) -> list[str]:
        pairs = patterns.get("overlapping_classes", ())[:MAX_PRINTED]
        return [f"  {' / '.join(map(short_label, pair['classes']))}  {pair['rows']:,}" for pair in pairs]

    def answer(self, label: np.ndarray) -> str:
        return self.label_names[int(label)]

    def answers(self, predicted: np.ndarray) -> np.ndarray:
        return np.array(self.label_names)[predicted]

    def columns(self, probabilities: np.ndarray, threshold: float | None = None) -> dict[str, Any]:
        """Return `probability`, with a threshold also `decision` and `margin`, to the next largest one."""
        label = self.chosen(probabilities[None])[0]
        first = float(probabilities[label])
        record: dict[str, Any] = {"probability": round(first, 6)}
        if threshold is not None:
            record |= {"decision": "accept" if first >= threshold else "abstain"}
            record |= {"margin": round(first - float(np.delete(probabilities, label).max()), 6)}
        return record | self.probability_columns(probabilities)

    def arrow_array(self, labels: np.ndarray) -> Any:
        import pyarrow as pa

        return pa.DictionaryArray.from_arrays(
            np.asarray(labels, np.int32), pa.array(self.label_names, pa.string())
        )

    def explained_labels(self, probabilities: np.ndarray) -> list[int]:
        return self.chosen(probabilities[None]).tolist()

    def log_odds(self, logits: torch.Tensor, label: int) -> torch.Tensor:
        import torch

        others = torch.cat([logits[:, :label], logits[:, label + 1 :]], dim=1)
        return logits[:, label] - others.logsumexp(dim=1)

    def scale_logits(self, logits: torch.Tensor) -> torch.Tensor:
        return logits / self.temperature

    def line(self, answer: str, probabilities: np.ndarray) -> str:
        return f"{short_label(answer)} {self.confidence(probabilities[None])[0]:.4f}"

    def listed_labels(self, probabilities: np.ndarray) -> np.ndarray:
        # The first is the answer
        return self.ranked_labels(probabilities)[1:]

    def report_text(self, metrics: dict, start: dict, title: str) -> str:
        rows = metrics["rows"]
        lines = [title, *classes_table(metrics, AVERAGES, rows), ""]
        accuracy, loss = (f"{BY_KEY[key].name} {metrics[key]:.4f}" for key in ("accuracy", "loss"))
        counted = _("rows {rows:,}").format(rows=rows)
        lines += [f"{accuracy}   {counted}   {loss}", ""]
        lines += [
            *confusion_lines(metrics),
            *never_predicted(metrics),
            "",
            interval_lines(metrics, self.beside_baselines),
        ]
        if "calibration" in metrics:
            lines += ["", render_calibration(metrics["calibration"])]
        elif "no_calibration" in metrics:
            lines += ["", self.no_calibration(metrics)]
        return "\n".join(lines)

    def mixed_up(self, metrics: dict) -> list[MixedPair]:
        return mixed_pairs(metrics)

    def decision_paragraph(self, metrics: dict) -> str:
        if "calibration" not in metrics:
            return _("**Calibration.** {why}").format(why=self.no_calibration(metrics))
        return _(
            "**Calibration.** Divide the logits by {temperature:.3f}, fitted on {rows:,} rows of dev: the "
            "calibration error on {measured_on} goes from {before[ece]:.4f} to {after[ece]:.4f}, the loss "
            "from {before[loss]:.4f} to {after[loss]:.4f}. The pipeline above does not do this; the number "
            "is in `calibration.json`."
        ).format(**metrics["calibration"])

    def no_calibration(self, metrics: dict) -> str:
        """Return why probabilities are as the model gives them."""
        reason = metrics.get("no_calibration", {"why": "no_rows", "rows": 0})
        if reason["why"] == "no_rows":
            return _("Probabilities are as the model gives them: no temperature was fitted on dev rows.")
        if reason["why"] == "few_rows":
            why = _(
                "Probabilities are as the model gives them: {rows:,} dev rows are too few to fit a "
                "temperature."
            )
        else:
            why = _(
                "Probabilities are as the model gives them: on {rows:,} dev rows no temperature lowers the "
                "loss of rows it was not fitted on."
            )
        return why.format(rows=reason["rows"])

    def card_words(self) -> dict[str, str]:
        return {
            "what": _("A classifier of Chinese {texts} with {labels:,} labels"),
            "label": _("class"),
            "labels": _("Classes"),
            "conflicting": _("more than one label"),
        }

    def card_limits(self) -> list[str]:
        return [
            _(
                "Every text gets a label, also one that fits none. `predict.py --abstain` leaves out what is "
                "not sure enough."
            )
        ]

    def page_titles(self) -> dict[str, str]:
        return {
            "classes": _("Classes"),
            "confusions": _("Which class is taken for which"),
            "calibration": _("May one trust a probability"),
            "examples": _("The errors it was surest of"),
        }

    def page_sections(self, content: PageContent) -> dict:
        return page_sections(content) | {"no_calibration": partial(self.no_calibration, content.metrics)}
