"""Exporting a model: graph, tokenizer and record into a new folder, which gets its name once it is compared
with the original, on rows of the user."""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from ..batching import token_batches
from ..data.rows import Row, RowReader
from ..errors import InputError, listed, needed, say
from ..prediction.onnx_runtime import cuts_off_sums, padded
from ..prediction.open_model import (
    GRAPH,
    READING,
    RECORD,
    TOKENIZER,
    WEIGHTS,
    ComputeOptions,
    ExportRecord,
    OpenedModel,
    dataset_of_run,
    open_model,
)
from ..prediction.predictor import Predictor
from ..prediction.sources import options_of_run
from ..prediction.torch_runtime import check_folder, load_checkpoint
from ..report.bootstrap import differences
from ..report.logits_file import LOGITS
from ..report.metrics import BY_KEY, measure
from ..report.shown import page_environment
from ..runtime.disk import checksum, sync, write_json
from ..tasks.task import DECISION
from .graph import quantise, write_graph

NUM_ROWS = 1000  # that are compared
CALIBRATION_ROWS, CALIBRATION_TOKENS = 128, 512  # in all, and of a batch
TOLERANCE, LOGIT_TOLERANCE = {"fp32": 0.001, "int8": 0.01}, {"fp32": 0.001, "int8": None}
OTHER_BATCHES = 64  # rows that are also computed one by one, and as one batch of mixed lengths
SURE, MIN_SURE = 0.6, 50  # the model is sure of a row from this probability on; fewer sure rows say little
MAX_LOSS = 0.02  # of the main metric, by the lower end of the interval of its change


def export(
    folder: Path,
    output: Path,
    precision: str = "fp32",
    tolerance: float | None = None,
    rows_file: str | None = None,
) -> tuple[str, str | None]:
    """Export the model in `folder` in fp32 or int8 to the new folder `output`; return how it compares, and
    why it was not accepted, or None: where more than the share `tolerance` of the predictions changes of
    which the model was sure, the main metric falls, or in fp32 a logit differs, there is no folder. It is
    compared on the dev rows of the run, or on those of a file. Raises InputError for an unreadable model or
    rows, an `output` that exists, missing libraries."""
    check_folder(folder)
    if os.path.lexists(output) or not output.parent.is_dir():
        raise InputError(f"--output {output}: a new folder is needed, in one that exists; name another")
    with needed("onnx"):
        import onnx
    opened = open_model(folder, ComputeOptions("cpu"))
    original = opened.predictor
    rows, labels, source = rows_of(opened, rows_file, NUM_ROWS)
    aside = output.with_name(f"{output.name}.{secrets.token_hex(4)}")
    aside.mkdir()
    try:
        say(f"exporting {folder} in {precision}")
        # Loaded once more, because the predictor's model has layers of this project
        model, tokenizer = load_checkpoint(folder)
        inputs, pad_id = write_graph(model, aside / GRAPH), model.config.pad_token_id or 0
        tokenizer.backend_tokenizer.no_padding()
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.save(str(aside / TOKENIZER))
        # A prediction and --threshold precision=P read these; the last one has the unit of numbers
        beside = [name for name in (DECISION, LOGITS, "config.json") if (folder / name).is_file()]
        for name in beside:
            shutil.copyfile(folder / name, aside / name)
        made = {"from": folder.resolve().name, "at": datetime.now(UTC).isoformat(timespec="seconds")}
        if precision == "int8":
            made["weight_bits"] = 7 if cuts_off_sums() else 8
            known, *_ = rows_of(opened, rows_file, CALIBRATION_ROWS, ("train",))
            tokens = original.tokenize(known)
            order = token_batches(np.array(list(map(len, tokens.windows))), CALIBRATION_TOKENS)
            arrays = [padded(tokens.take(some), pad_id) for some in order]
            quantise(aside / GRAPH, [{name: batch[name] for name in inputs} for batch in arrays])
        graph = onnx.load(str(aside / GRAPH))
        # It stays empty where all weights are smaller than what onnx moves
        (aside / WEIGHTS).touch()
        onnx.save(graph, str(aside / GRAPH), save_as_external_data=True, location=WEIGHTS)
        data = {name: opened.recorded[name] for name in READING if name in opened.recorded}
        if train := data.get("train"):
            # Only the name of the train file, or of the first of several
            data["train"] = Path(train if isinstance(train, str) else train[0]).name
        sizes = {name: (aside / name).stat().st_size for name in (GRAPH, WEIGHTS)}
        record = ExportRecord(
            labels=original.task.label_names,
            max_length=original.max_length,
            truncation_side=tokenizer.truncation_side,
            pad_id=pad_id,
            inputs=inputs,
            precision=precision,
            data=data,
            problem_type=original.task.problem_type,
            files=dict.fromkeys((TOKENIZER, *beside)) | sizes,
            proof={},
            made=made,
        )
        checked = [aside / name for name in record.files]
        digests = {path.name: checksum(path) for path in checked} | {RECORD: record.answers_digest()}
        record = replace(record, sha256=digests)
        write_json(aside / RECORD, asdict(record))
        say(f"comparing {len(rows):,} rows")
        allowed = TOLERANCE[precision] if tolerance is None else tolerance
        before = original.logits(original.tokenize(rows))
        exported = open_model(aside, ComputeOptions()).predictor
        proof, why = prove(before, exported, rows, labels, allowed, LOGIT_TOLERANCE[precision])
        if why is None:
            record = replace(record, proof=proof | {"rows_of": source})
            write_json(aside / RECORD, asdict(record))
            sync(aside)
            aside.rename(output)
        template = page_environment(Path(__file__).parent, autoescape=False).get_template("proof.txt.jinja")
        return template.render(proof=proof, threshold=SURE).rstrip(), why
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def rows_of(
    opened: OpenedModel, file: str | None, count: int, splits: tuple[str, ...] = ("dev", "test", "train")
) -> tuple[list[Row], np.ndarray | None, str]:
    """Return up to `count` rows, chosen at random, of a file, or with their labels of the first of `splits`
    that the run has; and the name of that. Raises InputError for an invalid file, a folder that is no run,
    and data that is gone or has other labels."""
    random = np.random.default_rng(0)
    if file is not None:
        options = options_of_run(Path(file), opened.recorded)
        rows = [row for row in RowReader(file, options, need_label=False).rows() if isinstance(row, Row)]
        if not rows:
            raise InputError(f"{file}: there are no valid rows; name another file with --rows")
        return [rows[at] for at in np.sort(random.permutation(len(rows))[:count])], None, file
    remedy = "name a file of texts with --rows"
    dataset = dataset_of_run(opened.folder, "a comparison needs", remedy)
    label_names = opened.predictor.task.label_names
    if dataset.label_names != label_names:
        raise InputError(
            f"{opened.folder}: its data has the labels {listed(dataset.label_names)}, the model "
            f"{listed(label_names)}; {remedy}"
        )
    split = next(dataset.splits[name] for name in splits if name in dataset.splits)
    at = np.sort(random.permutation(len(split))[:count])
    return [split.table.row(row) for row in split.rows[at]], np.asarray(split.labels[at]), split.name


def prove(
    before: np.ndarray,
    exported: Predictor,
    rows: list[Row],
    labels: np.ndarray | None,
    tolerance: float,
    logit_tolerance: float | None,
) -> tuple[dict, str | None]:
    """Compare a predictor with the logits `before`, (num_rows, num_labels), of the original: all rows in
    batches of similar length, some also alone and in one batch of mixed lengths.

    Return what is kept of that, with the change of the main metric where `labels` (num_rows, ...) are known,
    its 95 % interval by a paired bootstrap; and why the predictor is not accepted, or None: see `export`.
    """
    task, few = exported.task, rows[:OTHER_BATCHES]
    after = exported.logits(exported.tokenize(rows))
    alone = np.concatenate([exported.logits(exported.tokenize([row])) for row in few])
    mixed = exported.logits(exported.tokenize(few), sort=False)
    changed, largest = np.zeros(len(rows), dtype=bool), 0.0
    for logits in (after, alone, mixed):
        same = before[: len(logits)]
        changed[: len(logits)] |= task.differ(same, logits)
        # Not a number counts as an endless difference
        largest = max(largest, float(np.nan_to_num(np.abs(same - logits), nan=np.inf).max()))
    sure = task.confidence(task.probabilities(before)) >= SURE
    proof = {"rows": len(rows), "largest_logit_difference": largest, "flipped": int(changed.sum())}
    proof |= {"sure": int(sure.sum()), "sure_flipped": int((sure & changed).sum())}
    metric, low, high = None, 0.0, 0.0
    if labels is not None:
        metric = task.main_metric
        scores = [task.score(labels, np.nan_to_num(logits)) for logits in (before, after)]
        values = [measure(task, one)[metric] for one in scores]
        low, high = differences(task, *scores)[metric][1]
        proof |= {"metric": metric, f"{metric}_before": values[0], f"{metric}_after": values[1]}
        proof[f"{metric}_change"] = [low, high]
    which, wrong = f" of which the model was sure (from {SURE:g} on)", proof["sure_flipped"]
    of = proof["sure"]
    if of < MIN_SURE:
        which, wrong, of = "", proof["flipped"], proof["rows"]
    why = None
    if wrong > tolerance * of:
        why = f"{wrong:,} of {of:,} predictions{which} changed, allowed is a share of {tolerance:g}"
    elif -low > MAX_LOSS:
        name = BY_KEY[metric].english
        why = f"{name} changed by {low:+.4f} to {high:+.4f} (95 %), allowed is a loss of {MAX_LOSS:g}"
    elif logit_tolerance is not None and not largest <= logit_tolerance:
        why = f"a logit differs by {largest:.3g}, allowed is {logit_tolerance:g}"
    return proof, why
