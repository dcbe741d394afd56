"""The end of a run: its report, printed and written into its folder; with LoRA the model without adapter."""

import logging
import re
import warnings
from pathlib import Path

import numpy as np
import torch

from ..checkpoints.decision import copy_decision, is_of_other_weights, remove_decision
from ..checkpoints.model_record import add_finish
from ..checkpoints.progress import RunProgress
from ..checkpoints.run_files import ADAPTER, CARD, MODEL, PAGE, PREDICTIONS, REPORT, TEXT
from ..checkpoints.training_state import drop_states
from ..config.schema import ModelConfig
from ..config.shipped import E5_SMALL, e5_file
from ..model.pretrained import save_model
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
from ..words import N_, _
from .build import Components
from .metrics_file import METRICS_FILE, read_evaluations

logger = logging.getLogger(__name__)
# Models to try where this one is no better than a linear one: the first that is another one
OTHERS = ("hfl/chinese-macbert-base", "hfl/chinese-roberta-wwm-ext")
E5_SMALL_ON_HUB = "intfloat/multilingual-e5-small"


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


def evidence_of(components: Components, split: str, metrics: dict, of_splits: dict, history: list) -> dict:
    """Return what `what_next` gets; `of_splits` are the logits by split, `history` the evaluations."""
    dataset, task, config = components.dataset, components.task, components.config
    train = config.train
    tried = config.model.name
    # Only the cross entropy without class weights can be compared between training and dev rows.
    is_comparable = (train.loss, train.class_weights) == ("cross_entropy", "none")
    other = next(name for name in OTHERS if name != tried)
    held_out = None
    # The thresholds of several labels a row were chosen on dev rows
    if split != "train" and task.has_labels and task.answer_column == "label":
        scores = [task.score(of.labels, of.logits, calibrated=True) for of in of_splits.values()]
        names = ("confidence", "correct")
        held_out = [np.concatenate([getattr(of, name) for of in scores]) for name in names]
    most = train.max_steps
    instead = E5_SMALL if config.model.has_random_weights and e5_file() else other
    return {
        "metrics": metrics,
        "history": [line for line in history if line["split"] == "dev" and is_comparable],
        "held_out": held_out,
        "class_rows": dataset.statistics["train"].get("classes", {}),
        "dev_rows": len(dataset.splits[FITTED_ON]) if FITTED_ON in dataset.splits else 0,
        "longer": f"--train.epochs {2 * train.epochs}" + (f" --train.max_steps {2 * most}" if most else ""),
        "instead": f"--model.name {instead}",
    }


def run_settings(components: Components, progress: RunProgress) -> dict:
    """Return the settings that people ask about, by their names. They say what the model is, not how it was
    computed: they are the same in every mode."""
    config, dataset = components.config, components.dataset
    settings = {
        N_("model"): base_model_of(config.model)[0] or f"{config.model.architecture}, random weights",
        N_("training rows"): f"{len(dataset.splits['train']):,}",
        N_("epochs"): config.train.epochs,
        N_("steps, of them until the best"): f"{progress.step:,}, {progress.best_step:,}",
        N_("rows of a step"): components.plan.batch_size,
        N_("learning rate"): config.train.learning_rate,
        N_("most tokens of a text"): config.data.max_length,
        N_("random seed"): config.train.seed,
    }
    if dataset.relabelled:
        settings[N_("rows with corrected labels")] = dataset.relabelled["changed"]
    return settings


def card_content(name: str, components: Components, split: str, metrics: dict, settings: dict) -> dict:
    """Return the content of the card of a run `name`, whose `metrics` are on the rows of `split`."""
    dataset, data, model = components.dataset, components.config.data, components.config.model
    base_model, hub_name = base_model_of(model)
    return {
        "name": name,
        "task": components.task,
        "split": split,
        "metrics": metrics,
        "data": dataset.statistics,
        "splits": {
            key: (Path(of.table.source).name, len(of), of.table.content) for key, of in dataset.splits.items()
        },
        "model_type": components.model.model.config.model_type,
        "base_model": base_model,
        "hub_name": hub_name,
        "max_length": data.max_length,
        "settings": settings,
        "has_pairs": dataset.splits["train"].table.has_pairs,
        "long": data.long,
        "max_windows": data.max_windows,
    }


def base_model_of(model: ModelConfig) -> tuple[str | None, str | None]:
    """Return how the card names the model that was fine-tuned, a folder by its last part, and its name on the
    hub. Each is None where there is none: random weights have neither."""
    name = model.name
    if model.has_random_weights:
        return None, None
    if name == E5_SMALL:
        return f"{E5_SMALL_ON_HUB} (its tokens for Chinese)", E5_SMALL_ON_HUB
    if Path(name).exists():
        return Path(name).resolve().name, None
    return name, name if re.fullmatch(r"[\w.-]+/[\w.-]+", name) else None


def merge_adapter(folder: Path, components: Components, step: int) -> None:
    """Add the adapter of the best checkpoint in a run folder, that of `step`, to the weights that the run
    began with, and write the sum there as a checkpoint of transformers, with its decision. Rank 0 calls it.
    Everything is read again from the disk, on the CPU in fp32."""
    from peft import PeftModel

    adapter = (folder / ADAPTER).parent

    with torch.random.fork_rng(devices=()), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.manual_seed(components.config.train.seed)
        model = components.task.build_model(components.stores).model
        merged = PeftModel.from_pretrained(model, adapter).merge_and_unload()

    has_other_decision = is_of_other_weights(folder, adapter, step)

    def remove_other_decision() -> None:
        if has_other_decision:
            remove_decision(folder)

    save_model(folder, merged, merged.state_dict(), components.tokenizer, remove_other_decision)
    if has_other_decision:
        copy_decision(adapter, folder, step)
    logger.info("Adapter merged into %s.", folder / MODEL)
