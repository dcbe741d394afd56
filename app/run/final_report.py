"""The report of a finished run: printed, and written into its folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..checkpoints.model_card import write_card
from ..checkpoints.run_contents import PAGE, PREDICTIONS, REPORT, TEXT
from ..config.schema import Config
from ..evaluation.card.card import render_card
from ..evaluation.long_rows import cost_of_length, render_cost_of_length, row_parts
from ..runtime.disk import write_json, write_text
from ..training.progress import RunProgress
from .assembly import Components
from .model_card import card_content

NOTES = {
    "test": "",
    "dev": "; there is no test split, so these rows also chose the checkpoint",
    "train": "; the rows it was trained on",
}


def report_split(components: Components) -> str:
    """Return the split to report on: test, else dev, else train."""
    return next(name for name in NOTES if name in components.loaders)


def report_title(split: str, state: RunProgress, best_metric: str) -> str:
    """Return the first line of the report: which rows, which checkpoint, and how it was chosen."""
    chosen = "" if state.best_value is None else f", chosen by {best_metric} on dev {state.best_value:.4f}"
    return f"Report on {split}: checkpoint of step {state.best_step}{chosen}{NOTES[split]}"


def print_and_write(
    folder: Path,
    config: Config,
    components: Components,
    split: str,
    state: RunProgress,
    metrics: dict,
    results: dict[str, np.ndarray],
) -> None:
    """Print the report; write the logits, calibration.json, report.txt,
    predictions.csv, report.html, the model card and, last, report.json, which marks the run as finished.

    `metrics` are the task's for the split of the report; `results` (num_rows, any) of this split, and of dev
    where there is one, by name.
    """
    task = components.task
    splits = {name: components.loaders[name].split for name in results}
    metrics = metrics | task.final_metrics(splits[split], results[split])
    metrics |= task.write_results(folder, splits, results, split, state.best_step)
    store, right = components.stores[split], task.right_rows(splits[split], results[split])
    if right is not None:
        parts = row_parts(store, np.asarray(splits[split].rows))
        long = cost_of_length(parts, right, store.long.way, store.max_length)
        metrics |= {"long_texts": long} if long else {}
    title = report_title(split, state, task.best_metric)
    text = task.report(metrics, state.start_metrics, title)
    if "long_texts" in metrics:
        text += f"\n\n{render_cost_of_length(metrics['long_texts'])}"
    print(f"\n{text}\n")  # noqa: T201
    write_text(folder / TEXT, text + "\n")
    task.write_predictions(folder / PREDICTIONS, splits[split], results[split])
    page = {"metrics": metrics | {"step": state.best_step}, "title": f"{folder.name} · {title}"}
    unknown_id = components.tokenizer.unk_token_id
    task.write_page(folder / PAGE, splits[split], results[split], store, unknown_id, **page)
    if task.has_card:
        content = card_content(folder.resolve().name, config, components, split, page["metrics"])
        write_card(folder, render_card(content, config.output.language))
    details = {"split": split, "step": state.best_step, "data": components.dataset.statistics}
    if components.dataset.relabelled:
        details["relabelled"] = components.dataset.relabelled
    if state.start_metrics:
        details["before_training"] = state.start_metrics
    write_json(folder / REPORT, details | metrics)
