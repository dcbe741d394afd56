"""The end of a run: its report, printed and written into its folder; with LoRA the model without adapter."""

import logging
import warnings
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import torch

from ..checkpoints.run_folder import ADAPTER, MODEL, PAGE, PREDICTIONS, REPORT, TEXT
from ..checkpoints.run_history import add_finish, read_starts, write_card
from ..checkpoints.training_state import RunProgress
from ..config.schema import Config
from ..config.shipped import E5_SMALL, e5_file
from ..model.pretrained import save_model
from ..model.recipe import fewest_steps
from ..report.advice import render_advice, what_next
from ..report.baselines import baselines, sample
from ..report.bootstrap import all_metrics
from ..report.card import render_card
from ..report.logits_file import LOGITS, logits_of, write_logits, write_predictions
from ..report.metrics import metrics_in_training
from ..report.page import render_page, rows_of_split, seen_in_train
from ..report.text import calibration_effect, cost_of_length, report_text, row_readings
from ..runtime.disk import checksum, write_json, write_text
from ..tasks.task import FITTED_ON, Scores
from ..words import _, in_language, pgettext
from .build import Components
from .card_content import base_model_of, card_content
from .log import METRICS_FILE, read_evaluations
from .step import planned_steps

logger = logging.getLogger(__name__)
# To try where the model is no better than a linear one: the first that was not it
OTHERS = ("hfl/chinese-macbert-base", "hfl/chinese-roberta-wwm-ext")


def report_title(split: str, state: RunProgress, best_metric: str) -> str:
    """Return the first line of the report: which rows, which checkpoint, and how it was chosen."""
    chosen = note = ""
    if state.best_value is not None:
        chosen = _(", chosen by {metric} on dev {value:.4f}")
        chosen = chosen.format(metric=best_metric, value=state.best_value)
    if split == "dev":
        note = _("; there is no test split, so these rows also chose the checkpoint")
    elif split == "train":
        note = _("; the rows it was trained on")
    return _("Report on {split}: checkpoint of step {step}{chosen}{note}").format(
        split=split, step=state.best_step, chosen=chosen, note=note
    )


def print_and_write(
    folder: Path,
    config: Config,
    components: Components,
    split: str,
    state: RunProgress,
    results: dict[str, np.ndarray],
    is_printed: bool,
) -> dict:
    """Print the report, if it `is_printed`; write the logits, what was fitted on dev, report.txt,
    predictions.csv, report.html, the model card and, last, report.json, which marks the run as finished.
    Return the metrics.

    `results` (num_rows, any) are of the split of the report, and of dev where there is one, by name.
    """
    task, of = components.task, components.loaders[split].split
    title = report_title(split, state, task.best_metric)
    if task.has_labels:
        of_splits = {name: logits_of(components.loaders[name].split, results[name]) for name in results}
        write_logits(folder / LOGITS, of_splits, task.label_names, state.best_step, task.name)
        if FITTED_ON in of_splits:
            dev = of_splits[FITTED_ON]
            task.fit(dev.labels, dev.logits, dev.hashes)
        task.write(folder, state.best_step, calibration_effect(task, of.labels, results[split], split))
        scores = task.score(of.labels, results[split])
        metrics = report_metrics(components, split, scores, results[split])
    else:
        metrics = metrics_in_training(task, of, results[split])
    text = report_text(task, metrics, state.start_metrics, title)
    evidence = evidence_of(folder, config, components, split, metrics | {"step": state.best_step}, results)
    advice = what_next(task, **evidence)
    if advice:
        text += f"\n\n{render_advice(advice)}"
    if is_printed:
        print(f"\n{text}\n")  # noqa: T201
    write_text(folder / TEXT, text + "\n")
    if task.has_labels:
        on_page = metrics | {"step": state.best_step}
        write_predictions(folder / PREDICTIONS, of, results[split], task)
        dataset = components.dataset
        page = render_page(
            task,
            scores,
            on_page,
            **rows_of_split(of, dataset.splits["train"], components.stores[split]),
            calibrated=task.score(of.labels, results[split], calibrated=True) if task.fitted else None,
            page_title=f"{folder.name} · {title}",
            history=read_evaluations(folder / METRICS_FILE),
            data=dataset.statistics,
            advice=advice,
            facts=run_facts(folder, config, components, state),
        )
        write_text(folder / PAGE, page)
        card = card_content(folder.resolve().name, config, components, split, on_page)
        write_card(folder, render_card(card))
    details = {"split": split, "step": state.best_step, "data": components.dataset.statistics}
    if components.dataset.relabelled:
        details["relabelled"] = components.dataset.relabelled
    with in_language("en"):
        said = what_next(task, **evidence).items()
        details["what_next"] = [{"what": what, "sentence": sentence} for what, sentence in said]
    if state.start_metrics:
        details["before_training"] = state.start_metrics
    add_finish(folder, checksum(folder / MODEL))
    write_json(folder / REPORT, details | metrics)
    return metrics


def evidence_of(
    folder: Path,
    config: Config,
    components: Components,
    split: str,
    metrics: dict,
    results: dict[str, np.ndarray],
) -> dict:
    """Return what `what_next` gets; `results` are those of `print_and_write`."""
    dataset, task, train = components.dataset, components.task, config.train
    history = [line for line in read_evaluations(folder / METRICS_FILE) if line["split"] == "dev"]
    if (train.loss, train.class_weights) != ("cross_entropy", "none"):
        # The loss of training is another one than that of dev
        history = [{key: value for key, value in line.items() if key != "train_loss"} for line in history]
    classes, most = dataset.statistics["train"].get("classes", {}), train.max_steps
    if config.model.name is None:
        instead = f"--model.name {OTHERS[0] if e5_file() is None else E5_SMALL}"
    elif config.model.head != "linear" and planned_steps(components.plan, train) < fewest_steps(len(classes)):
        instead = "--train.epochs auto" + " --train.max_steps null" * bool(most)
    else:
        instead = f"--model.name {next(name for name in OTHERS if name != config.model.name)}"
    held_out = None
    # The thresholds of several labels a row were chosen on dev rows
    if split != "train" and task.has_labels and task.label_column == "label":
        parts = [logits_of(components.loaders[name].split, results[name]) for name in results]
        scores = [task.score(part.labels, part.logits, calibrated=True) for part in parts]
        names = ("confidence", "correct")
        held_out = [np.concatenate([getattr(of, name) for of in scores]) for name in names]
    return {
        "metrics": metrics,
        "history": history,
        "held_out": held_out,
        "class_rows": classes,
        "dev_rows": len(dataset.splits[FITTED_ON]) if FITTED_ON in dataset.splits else 0,
        "longer": f"--train.max_steps {2 * most}" if most else f"--train.epochs {2 * train.epochs}",
        "instead": instead,
    }


def run_facts(folder: Path, config: Config, components: Components, state: RunProgress) -> dict:
    """Return the settings that people ask about, and how long the run took, by their names."""
    train, plan = config.train, components.plan
    start = read_starts(folder)[-1]
    seconds = (datetime.now().astimezone() - datetime.fromisoformat(start["started"])).total_seconds()
    return {
        _("model"): base_model_of(config.model.name)[0] or f"{config.model.architecture}, random weights",
        _("training rows"): f"{len(components.dataset.splits['train']):,}",
        _("epochs"): train.epochs,
        _("steps, of them until the best"): f"{state.step:,}, {state.best_step:,}",
        _("rows of a step"): plan.batch_size,
        _("learning rate"): train.learning_rate,
        _("most tokens of a text"): config.data.max_length,
        pgettext("of numbers", "precision"): train.precision,
        _("computed on"): f"{start['processes']} × {start['device']}",
        _("random seed"): train.seed,
        _("duration"): str(timedelta(seconds=round(seconds))),
    }


def report_metrics(components: Components, split: str, scores: Scores, logits: np.ndarray) -> dict:
    """Return all that report.json says of the rows of a split, given their scores and logits."""
    task, of, train = components.task, components.loaders[split].split, components.dataset.splits["train"]
    loaded = {name: loader.split for name, loader in components.loaders.items()}
    texts = {name: sample(rows) for name, rows in {**components.dataset.splits, **loaded}.items()}
    metrics = all_metrics(task, scores)
    metrics["baselines"] = baselines(task, texts["train"], texts.get(FITTED_ON), texts[split])
    if task.fitted:
        metrics["calibration"] = task.state() | calibration_effect(task, of.labels, logits, split)
    elif task.unfitted:
        metrics["no_calibration"] = task.unfitted
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


def merge_adapter(folder: Path, components: Components) -> None:
    """Add the adapter of the best checkpoint in a run folder to the weights that the run began with, and
    write the sum there as a checkpoint of transformers. Rank 0 calls it. Everything is read again from the
    disk, on the CPU in fp32."""
    from peft import PeftModel

    with torch.random.fork_rng(devices=()), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.manual_seed(components.config.train.seed)
        model = components.task.build_model(components.stores).model
        merged = PeftModel.from_pretrained(model, (folder / ADAPTER).parent).merge_and_unload()
    save_model(folder, merged, merged.state_dict(), components.tokenizer)
    logger.info("Adapter merged into %s.", folder / MODEL)
