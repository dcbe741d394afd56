"""The report of a finished run: printed, and written into its folder."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from ..checkpoints.run_files import MODEL, PAGE, PREDICTIONS, REPORT, TEXT
from ..checkpoints.run_history import add_finish, read_starts, write_card
from ..config.schema import Config, DataConfig
from ..config.shipped import E5_SMALL, e5_file
from ..data.dataset import Split
from ..evaluation.logits_file import LOGITS, logits_of, write_logits
from ..evaluation.long_rows import cost_of_length, render_cost_of_length, row_readings
from ..evaluation.measures.selective import RowDecisions
from ..evaluation.page.evaluated_rows import rows_of_split, seen_in_train
from ..evaluation.page.report_page import PageContent
from ..model.recipe import fewest_steps
from ..outcomes.advice import Evidence, render_advice, what_next
from ..outcomes.labelled_page import render_page
from ..outcomes.metrics import BY_KEY
from ..outcomes.model_card import render_card
from ..outcomes.outcome import FITTED_ON
from ..outcomes.predictions_file import write_predictions
from ..outcomes.resampling import all_metrics
from ..outcomes.texts import split_texts
from ..runtime.disk import checksum, write_json, write_text
from ..training.loop import RunProgress, planned_steps
from ..words import _, in_language, pgettext
from .assembly import Components
from .card_content import base_model_of, card_content
from .log.metrics_file import METRICS, read_evaluations

# To try where the model is no better than a linear one: the first that was not it
OTHERS = ("hfl/chinese-macbert-base", "hfl/chinese-roberta-wwm-ext")
MAX_TOKENS = 512  # that pretrained models read
# With these the loss of training is that of dev
PLAIN = {
    "loss": "cross_entropy",
    "class_weights": "none",
}


def report_split(components: Components) -> str:
    """Return the split to report on: test, else dev, else train."""
    return next(name for name in ("test", "dev", "train") if name in components.loaders)


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
    outcome = components.outcome
    title = report_title(split, state, outcome.best_metric)
    if outcome.has_labels:
        metrics = fit_and_measure(folder, components, split, results, state.best_step)
    else:
        metrics = outcome.metrics_in_training(components.loaders[split].split, results[split])
    text = outcome.report_text(metrics, state.start_metrics, title)
    if "long_texts" in metrics:
        name = BY_KEY[outcome.right_share].title
        text += f"\n\n{render_cost_of_length(metrics['long_texts'], name)}"
    if "copies_in_train" in metrics:
        name = BY_KEY[outcome.right_share].name
        text += f"\n\n{render_copies(metrics['copies_in_train'], name)}"
    evidence = evidence_of(folder, config, components, split, metrics | {"step": state.best_step}, results)
    advice = what_next(outcome, evidence)
    if advice:
        text += f"\n\n{render_advice(advice)}"
    if is_printed:
        print(f"\n{text}\n")  # noqa: T201
    write_text(folder / TEXT, text + "\n")
    if outcome.has_labels:
        on_page = metrics | {"step": state.best_step}
        write_predictions(folder / PREDICTIONS, components.loaders[split].split, results[split], outcome)
        content = replace(
            page_content(folder, components, split, results[split], on_page, title),
            advice=advice,
            facts=run_facts(folder, config, components, state),
        )
        write_text(folder / PAGE, render_page(outcome, content))
        card = card_content(folder.resolve().name, config, components, split, on_page)
        write_card(folder, render_card(card))
    details = {"split": split, "step": state.best_step, "data": components.dataset.statistics}
    if components.dataset.relabelled:
        details["relabelled"] = components.dataset.relabelled
    with in_language("en"):
        details["what_next"] = [{"what": one.what, "sentence": one.sentence()} for one in advice]
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
) -> Evidence:
    """Return what the advice of a run is made of. `results` (num_rows, any) are those of the split of the
    report and of dev, by name."""
    dataset, train = components.dataset, config.train
    history = [line for line in read_evaluations(folder / METRICS, ("loss",)) if line.get("split") == "dev"]
    if any(getattr(train, name) != value for name, value in PLAIN.items()):
        history = [{key: value for key, value in line.items() if key != "train_loss"} for line in history]
    most = train.max_steps
    classes = dataset.statistics["train"].get("classes", {})
    # A head that is fitted needs no steps
    is_short = config.model.head != "linear" and planned_steps(components.plan, train) < fewest_steps(
        len(classes)
    )
    positions = getattr(components.model.model.config, "max_position_embeddings", MAX_TOKENS)
    return Evidence(
        metrics=metrics,
        history=history,
        decisions=decisions_of(components, split, results),
        class_rows=classes,
        dev_rows=len(dataset.splits[FITTED_ON]) if FITTED_ON in dataset.splits else 0,
        is_pretrained=config.model.name is not None,
        longer=f"--train.max_steps {2 * most}" if most else f"--train.epochs {2 * train.epochs}",
        enough="--train.epochs auto" + " --train.max_steps null" * bool(most) if is_short else None,
        other_model=f"--model.name {next(name for name in OTHERS if name != config.model.name)}",
        pretrained=f"--model.name {OTHERS[0] if e5_file() is None else E5_SMALL}",
        reading_more=reading_more(config.data, dataset.files["train"].has_pairs, min(positions, MAX_TOKENS)),
    )


def reading_more(data: DataConfig, has_pairs: bool, most: int) -> str | None:
    """Return the setting with which more of a long text is read, for a model that reads `most` tokens at
    once; None where there is none."""
    if data.long == "windows":
        return f"--data.max_windows {2 * data.max_windows}"
    if 2 * data.max_length <= most:
        return f"--data.max_length {2 * data.max_length}"
    return None if has_pairs else "--data.long windows"


def decisions_of(components: Components, split: str, results: dict[str, np.ndarray]) -> RowDecisions | None:
    """Return the decisions on the rows that were not trained on; None where there are none."""
    outcome = components.outcome
    if split == "train" or not (outcome.has_labels and outcome.has_confidence):
        return None
    decisions = [
        outcome.held_out_decisions(logits_of(components.loaders[name].split, results[name]))
        for name in results
    ]
    return RowDecisions(
        np.concatenate([part.confidence for part in decisions]),
        np.concatenate([part.correct for part in decisions]),
    )


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


def fit_and_measure(
    folder: Path, components: Components, split: str, logits: dict[str, np.ndarray], step: int
) -> dict:
    """Fit the decision on dev, write it and the logits of the model of `step`; return the metrics of the rows
    of the report, which are those of `split`."""
    outcome, splits = components.outcome, {name: components.loaders[name].split for name in logits}
    of_splits = {name: logits_of(splits[name], logits[name]) for name in logits}
    write_logits(folder / LOGITS, of_splits, outcome.label_names, step, outcome.task)
    if FITTED_ON in of_splits:
        outcome.fit(of_splits[FITTED_ON])
    labels = splits[split].labels
    effect = outcome.effect_of_fit(labels, logits[split], split)
    outcome.write_fitted(folder, step, effect)
    scores = outcome.score(labels, logits[split])
    texts = {name: split_texts(of) for name, of in {**components.dataset.splits, **splits}.items()}
    metrics = all_metrics(outcome, scores)
    metrics["baselines"] = outcome.baselines(texts["train"], texts.get(FITTED_ON), texts[split])
    if effect:
        metrics["calibration"] = outcome.fitted_values() | effect
    elif outcome.unfitted:
        metrics["no_calibration"] = outcome.unfitted
    metrics |= _copies_in_train(components, splits[split], scores.correct)
    return metrics | _long_texts(components, splits[split], scores.correct)


def render_copies(copies: dict, name: str) -> str:
    """Return a line for people, of `copies_in_train` in report.json; `name` is what accuracies are called."""
    without = copies["accuracy_without"]
    return _(
        "{rows:,} rows are copies or near copies of training texts; {metric} without them {without}, with "
        "them {accuracy:.4f}"
    ).format(
        rows=copies["rows"],
        metric=name,
        without=_("unknown") if without is None else f"{without:.4f}",
        accuracy=copies["accuracy"],
    )


def _copies_in_train(components: Components, split: Split, correct: np.ndarray) -> dict:
    """Return how many rows have a text that is nearly in train, and the accuracy without these, if any."""
    train = components.dataset.splits["train"]
    is_new = seen_in_train(split, train) == 0
    if split.name == train.name or is_new.all():
        return {}
    without = float(correct[is_new].mean()) if is_new.any() else None
    return {
        "copies_in_train": {
            "rows": int((~is_new).sum()),
            "accuracy_without": without,
            "accuracy": float(correct.mean()),
        }
    }


def _long_texts(components: Components, split: Split, correct: np.ndarray) -> dict:
    """Return how the rows do whose texts were not read whole, where there are any."""
    store = components.stores[split.name]
    readings = row_readings(store, np.asarray(split.rows))
    long = cost_of_length(readings, correct, store.long.way, store.max_length)
    return {"long_texts": long} if long else {}


def page_content(
    folder: Path, components: Components, split: str, logits: np.ndarray, metrics: dict, title: str
) -> PageContent:
    """Return what the page of the report shows."""
    outcome, dataset, of = components.outcome, components.dataset, components.loaders[split].split
    unknown_id = components.tokenizer.unk_token_id
    scores = outcome.score(of.labels, logits)
    rows = rows_of_split(
        of, dataset.splits["train"], components.stores[split], unknown_id, scores, outcome.label_names
    )
    return PageContent(
        f"{folder.name} · {title}",
        rows,
        metrics,
        outcome.calibrated(of.labels, logits),
        read_evaluations(folder / METRICS, outcome.log_metrics),
        dataset.statistics,
    )
