"""The report at the end of a run, printed and written into its folder."""

from pathlib import Path

import numpy as np

from ..checkpoints.model_record import add_finish
from ..checkpoints.progress import RunProgress
from ..checkpoints.run_files import CARD, PAGE, PREDICTIONS, REPORT, TEXT
from ..checkpoints.training_state import drop_states
from ..report.advice import render_advice, what_next
from ..report.baselines import baselines, sample
from ..report.bootstrap import all_metrics
from ..report.card import render_card
from ..report.confidence import calibration_effect
from ..report.logits_file import LOGITS, logits_of, write_logits, write_predictions
from ..report.measure import metrics_in_training
from ..report.page import RunDetails, render_page, rows_of_split
from ..report.row_groups import cost_of_length, row_readings, seen_in_train
from ..report.text_report import report_text
from ..runtime.disk import write_json, write_text
from ..tasks.decision_file import FITTED_ON, write_decision_file
from ..tasks.scores import Scores
from ..words import _
from .advice_evidence import evidence_of
from .build import Components
from .card_content import card_content, run_settings
from .metrics_file import METRICS_FILE, read_evaluations


def write_report(
    folder: Path, components: Components, split: str, progress: RunProgress, results: dict[str, np.ndarray]
) -> tuple[str, dict]:
    """Write the logits, what was fitted on dev, report.txt, predictions.csv, report.html, the model card and,
    last, report.json, which marks the run as finished. Return the report's text and its metrics. `results`
    (num_rows, any) are of the split of the report, and of dev where there is one, by name."""
    task, dataset, loaders = components.task, components.dataset, components.loaders
    of, logits, best_step = loaders[split].split, results[split], progress.best_step
    title = report_title(split, progress, task.best_metric)
    of_splits = {}
    if task.has_labels:
        of_splits = {name: logits_of(loaders[name].split, results[name]) for name in results}
        write_logits(folder / LOGITS, of_splits, task, best_step)
        if FITTED_ON in of_splits:
            dev = of_splits[FITTED_ON]
            task.fit(dev.labels, dev.logits, dev.hashes)
        effect = calibration_effect(task, of.labels, logits, split)
        write_decision_file(folder, task, best_step, effect)
        scores = task.score(of.labels, logits)
        metrics = report_metrics(components, split, scores, effect)
    else:
        metrics = metrics_in_training(task, of, logits)
    history = read_evaluations(folder / METRICS_FILE, task.log_metrics)
    on_page = metrics | {"step": best_step}
    evidence = evidence_of(components, split, on_page, of_splits, history)
    advice = what_next(task, **evidence, folder=folder)
    text = report_text(task, metrics, progress.start_metrics, title)
    text += f"\n\n{render_advice(advice)}" if advice else ""
    write_text(folder / TEXT, text + "\n")
    if task.has_labels:
        write_predictions(folder / PREDICTIONS, of, logits, task)
        settings = run_settings(components, progress)
        page = render_page(
            task,
            scores,
            on_page,
            rows_of_split(of, dataset.splits["train"], components.stores[split]),
            calibrated=task.score(of.labels, logits, calibrated=True) if task.calibration else None,
            page_title=f"{folder.name} · {title}",
            details=RunDetails(
                history=history,
                data=dataset.statistics,
                advice=advice,
                facts={_(name): value for name, value in settings.items()},
            ),
        )
        write_text(folder / PAGE, page)
        content = card_content(folder.resolve().name, components, split, on_page, settings)
        write_text(folder / CARD, f"---\n{render_card(content)}")
    details = {"split": split, "step": best_step, "data": dataset.statistics}
    if dataset.relabelled:
        details["relabelled"] = dataset.relabelled
    # Equal runs shall leave an equal report.json, whatever their folders are called
    advice = what_next(task, **evidence, folder=Path("RUN"))
    details["what_next"] = [{"what": what, "sentence": sentence} for what, sentence in advice.items()]
    if progress.start_metrics:
        details["before_training"] = progress.start_metrics
    add_finish(folder)
    write_json(folder / REPORT, details | metrics)
    drop_states(folder, keep=1)
    return text, metrics


def report_title(split: str, progress: RunProgress, best_metric: str) -> str:
    """Return the first line of the report: which rows, which checkpoint, and how it was chosen."""
    chosen = note = ""
    if progress.best_value is not None:
        chosen = _(", chosen by {metric} on dev {value:.4f}")
        chosen = chosen.format(metric=best_metric, value=progress.best_value)
    if split == "dev":
        note = _("; there is no test split, so these rows also chose the checkpoint")
    elif split == "train":
        note = _("; the rows it was trained on")
    return _("Report on {split}: checkpoint of step {step}{chosen}{note}").format(
        split=split, step=progress.best_step, chosen=chosen, note=note
    )


def report_metrics(components: Components, split: str, scores: Scores, effect: dict) -> dict:
    """Return all that report.json says of the rows of a split, given their scores and `calibration_effect`"""
    task, of, train = components.task, components.loaders[split].split, components.dataset.splits["train"]
    texts = {name: sample(rows) for name, rows in components.dataset.splits.items()}
    metrics = all_metrics(task, scores)
    metrics["baselines"] = baselines(task, texts["train"], texts.get(FITTED_ON), texts[split])
    if task.calibration:
        metrics["calibration"] = task.state() | effect
    elif task.no_calibration:
        metrics["no_calibration"] = task.no_calibration
    is_new = seen_in_train(of, train) == 0
    if split != train.name and not is_new.all():
        metrics["copies_in_train"] = {
            "rows": int((~is_new).sum()),
            "accuracy_without": float(scores.correct[is_new].mean()) if is_new.any() else None,
            "accuracy": float(scores.correct.mean()),
        }
    store = components.stores[split]
    readings = row_readings(store, np.asarray(of.rows))
    if long := cost_of_length(readings, scores.correct, store.long.way, store.max_length):
        metrics["long_texts"] = long
    return metrics
