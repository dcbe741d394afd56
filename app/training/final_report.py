"""The report at the end of a run, printed and written into its folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoints.model_record import add_finish
from ..checkpoints.progress import RunProgress
from ..checkpoints.run_files import CARD, PAGE, PREDICTIONS, REPORT, TEXT
from ..checkpoints.training_state import drop_states, share_weights
from ..ngrams.character_model import CharacterModel
from ..ngrams.fit import fit_characters
from ..ngrams.second_reader import write_second_reader
from ..report.advice import Advice, render_advice, what_next
from ..report.baselines import Sample, baselines, sample, sample_positions
from ..report.bootstrap import all_metrics
from ..report.card import render_card
from ..report.confidence import calibration_effect
from ..report.logits_file import LOGITS, SplitLogits, logits_of, write_logits, write_predictions
from ..report.measure import metrics_in_training
from ..report.page import RunDetails, render_page, rows_of_split
from ..report.row_groups import cost_of_length, row_readings, seen_in_train
from ..report.split_gap import lead_of_dev
from ..report.start_of_training import before_and_after
from ..report.text_report import report_text
from ..runtime.disk import write_json, write_text
from ..tasks.decision_file import FITTED_ON, write_decision_file
from ..tasks.scores import Scores
from ..words import _
from .advice_evidence import evidence_of, is_loss_of_dev
from .build import Components
from .card_content import card_content, run_settings
from .metrics_file import METRICS_FILE, read_evaluations
from .two_readers import fit_second_reader, metrics_of_readers, with_second_reader


def write_report(
    folder: Path, components: Components, split: str, progress: RunProgress, results: dict[str, np.ndarray]
) -> tuple[str, dict]:
    """Write the logits, what was fitted on dev, report.txt, predictions.csv, report.html, the model card and,
    last, report.json, which marks the run as finished. Return the report's text and its metrics. `results`
    (num_rows, any) are of the split of the report, and of dev where there is one, by name."""
    task = components.task
    report_rows = components.loaders[split].split
    best_step = progress.best_step
    split_logits: dict[str, SplitLogits] = {}
    if task.has_labels:
        encoder_logits = {}
        for name, logits in results.items():
            encoder_logits[name] = logits_of(components.loaders[name].split, logits)
        samples = {name: sample(rows) for name, rows in components.dataset.splits.items()}
        train_rows = samples["train"]
        characters = fit_characters(
            train_rows.texts, train_rows.labels, len(task.label_names), train_rows.targets
        )
        second_reader = fit_second_reader(components, encoder_logits, characters)
        split_logits = with_second_reader(components, encoder_logits, second_reader)
        results = {name: rows.logits for name, rows in split_logits.items()}
        readers = {}
        if second_reader:
            readers = {"readers": metrics_of_readers(task, encoder_logits, split_logits, split)}
        write_second_reader(folder, second_reader, task.label_names, best_step)
        write_logits(folder / LOGITS, split_logits, task, best_step)
        effect = fit_and_write_decision(folder, components, split, split_logits, best_step)
        scores = task.score(report_rows.labels, results[split])
        metrics = report_metrics(components, split, scores, effect, samples, characters) | readers
        if split != FITTED_ON and FITTED_ON in split_logits:
            dev = split_logits[FITTED_ON]
            lead = lead_of_dev(task, task.score(dev.labels, dev.logits), metrics)
            if lead:
                metrics["dev_is_better"] = lead
    else:
        metrics = metrics_in_training(task, report_rows, results[split])
    evaluations = read_evaluations(folder / METRICS_FILE, task.log_metrics)
    if task.has_labels:
        is_linear_head = components.config.model.head == "linear"
        start_on_dev = before_and_after(task, evaluations, best_step, is_linear_head)
        if start_on_dev:
            metrics["start_on_dev"] = start_on_dev
    metrics_of_step = metrics | {"step": best_step}
    evidence = evidence_of(components, split, metrics_of_step, split_logits, evaluations)
    advice = what_next(task, evidence, folder)

    title = report_title(split, progress, task.best_metric)
    other_seeds = evidence.commands.other_seeds(folder)
    text = report_text(task, metrics, progress.start_metrics, title, other_seeds)
    if advice:
        text += f"\n\n{render_advice(advice)}"
    write_text(folder / TEXT, text + "\n")
    if task.has_labels:
        write_predictions(folder / PREDICTIONS, report_rows, results[split], task)
        settings = run_settings(components, progress)
        details = RunDetails(
            history=evaluations,
            is_same_loss=is_loss_of_dev(components.config.train, components.dataset.splits["train"]),
            data=components.dataset.statistics,
            advice=advice,
            facts={_(name): value for name, value in settings.items()},
        )
        calibrated_scores = None
        if task.calibration:
            calibrated_scores = task.score(report_rows.labels, results[split], calibrated=True)
        page = render_page(
            task,
            scores,
            metrics_of_step,
            rows_of_split(report_rows, components.dataset.splits["train"], components.stores[split]),
            page_title=f"{folder.name} · {title}",
            calibrated=calibrated_scores,
            details=details,
        )
        write_text(folder / PAGE, page)
        content = card_content(folder.resolve().name, components, split, metrics_of_step, settings)
        write_text(folder / CARD, f"---\n{render_card(content)}")
    # Equal runs shall leave an equal report.json, whatever their folders are called
    advice = what_next(task, evidence, Path("RUN"))
    report = report_details(components, split, progress, advice) | metrics
    add_finish(folder)
    write_json(folder / REPORT, report)
    # From the last state the run can train for longer
    drop_states(folder, keep=1)
    share_weights(folder)
    return text, metrics


def fit_and_write_decision(
    folder: Path, components: Components, split: str, split_logits: dict[str, SplitLogits], best_step: int
) -> dict:
    """Fit the decision on dev, where there are such rows, and write it. Return what calibration changes on
    the rows of `split`, see `calibration_effect`."""
    task = components.task
    if FITTED_ON in split_logits:
        dev = split_logits[FITTED_ON]
        task.fit(dev.labels, dev.logits, dev.hashes)
    labels = components.loaders[split].split.labels
    effect = calibration_effect(task, labels, split_logits[split].logits, split)
    write_decision_file(folder, task, best_step, effect)
    return effect


def report_details(
    components: Components, split: str, progress: RunProgress, advice: Mapping[str, Advice]
) -> dict[str, Any]:
    """Return what report.json has beside the metrics."""
    details = {"split": split, "step": progress.best_step, "data": components.dataset.statistics}
    if components.dataset.relabelled:
        details["relabelled"] = components.dataset.relabelled
    details["what_next"] = [
        {"what": key, "sentence": item.text, "command": item.command} for key, item in advice.items()
    ]
    if progress.start_metrics:
        details["before_training"] = progress.start_metrics
    return details


def report_title(split: str, progress: RunProgress, best_metric: str) -> str:
    """Return the first line of the report: which rows, which checkpoint, and how it was chosen."""
    chosen = ""
    if progress.best_value is not None:
        chosen = _(", chosen by {metric} on dev {value:.4f}")
        chosen = chosen.format(metric=best_metric, value=progress.best_value)
        if progress.best_step == 0:
            chosen += _("; no step of the training made it better")
    note = ""
    if split == "dev":
        note = _("; there is no test split, so these rows also chose the checkpoint")
    elif split == "train":
        note = _("; the rows it was trained on")
    title = _("Report on {split}: checkpoint of step {step}{chosen}{note}")
    return title.format(split=split, step=progress.best_step, chosen=chosen, note=note)


def report_metrics(
    components: Components,
    split: str,
    scores: Scores,
    effect: dict,
    samples: Mapping[str, Sample],
    characters: CharacterModel,
) -> dict:
    """Return what report.json says of the rows of a split, given their scores and `calibration_effect`;
    `samples` of all splits are for the baselines, of which `characters` is one."""
    task = components.task
    metrics = all_metrics(task, scores)
    metrics["baselines"] = baselines(
        task,
        samples["train"],
        samples.get(FITTED_ON),
        samples[split],
        characters,
        model_answers=scores.predicted[sample_positions(len(scores))],
    )
    if task.calibration:
        metrics["calibration"] = task.state() | effect
    elif task.no_calibration:
        metrics["no_calibration"] = task.no_calibration
    report_rows = components.loaders[split].split
    train_rows = components.dataset.splits["train"]
    is_new = seen_in_train(report_rows, train_rows) == 0
    if split != "train" and not is_new.all():
        metrics["copies_in_train"] = accuracy_without_copies(scores.correct, is_new)
    store = components.stores[split]
    readings = row_readings(store, np.asarray(report_rows.rows))
    long_texts = cost_of_length(readings, scores.correct, store.long.way, store.max_length)
    if long_texts:
        metrics["long_texts"] = long_texts
    return metrics


def accuracy_without_copies(correct: np.ndarray, is_new: np.ndarray) -> dict[str, Any]:
    """Return the accuracy on all rows, and on those whose text `is_new`; None where there are no such rows.
    Arrays are (num_rows,) bool."""
    accuracy_without = None
    if is_new.any():
        accuracy_without = float(correct[is_new].mean())
    return {
        "rows": int((~is_new).sum()),
        "accuracy_without": accuracy_without,
        "accuracy": float(correct.mean()),
    }
