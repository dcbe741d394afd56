"""Exporting a model: graph, tokenizer and record into a new folder, which gets its name once compared."""

from __future__ import annotations

import os
import platform
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..batching.plan import token_batches
from ..errors import InputError
from ..prediction.exported_model import (
    GRAPH,
    TOKENIZER,
    WEIGHTS,
    ExportRecord,
    read_record,
    write_record,
)
from ..prediction.onnx_runtime import cuts_off_sums, load_exported, padded
from ..prediction.recorded_settings import run_long_texts, run_settings, settings_of_reading
from ..prediction.saved_model import check_folder, load_checkpoint
from ..prediction.torch_runtime import load_predictor
from ..report.logits_file import LOGITS
from ..runtime.disk import sync
from ..tasks.task import DECISION
from .onnx_graph import OPSET, move_weights, write_graph
from .proof import Proof, prove
from .proof_rows import rows_of_file, rows_of_run
from .quantized_graph import quantise

if TYPE_CHECKING:
    from ..prediction.predictor import Predictor

LIBRARIES = ("torch", "transformers", "onnx", "onnxruntime", "tokenizers")
# Rows in all, tokens of a batch
CALIBRATION_ROWS, CALIBRATION_TOKENS = 128, 512
# Outlier neurons of a feed-forward layer that int8 leaves in fp32: tried in this order
FP32_NEURONS = (16, 64)
# Of the main metric, by the lower end of the interval of its change
MAX_LOSS = 0.02


@dataclass(frozen=True)
class ExportOptions:
    """`precision` is fp32 or int8. The export is kept under its name if at most the share `tolerance` of the
    predictions changes of which the model was sure, the main metric hardly falls, and no logit differs by
    more than `logit_tolerance` (None: any difference). It is compared on `num_rows` rows, those of the file
    `rows`, or the dev rows of the run.
    """

    precision: str
    tolerance: float
    logit_tolerance: float | None
    rows: str | None = None
    num_rows: int = 1000


@dataclass(frozen=True)
class Export:
    """An export: where it is, how it compares, and why it was not accepted (None: it was)."""

    folder: Path
    proof: Proof
    problem: str | None


def export(folder: Path, output: Path, options: ExportOptions, say: Callable[[str], None]) -> Export:
    """Export the model in `folder` to the new folder `output`, unless accepted to `output`.rejected-XXXXXXXX.
    Raises InputError for an unreadable model or rows, an `output` that exists, missing libraries."""
    check_folder(folder)
    _check_output(output)
    original = load_predictor(
        folder, run_settings(folder).get("max_length"), run_long_texts(folder), device="cpu"
    )
    rows, labels = _rows(folder, original, options, options.num_rows)
    aside = output.with_name(f"{output.name}.rejected-{secrets.token_hex(4)}")
    aside.mkdir()
    try:
        say(f"exporting {folder} in {options.precision}")
        record = _write_model(folder, aside, original, options.precision)
        say(f"comparing {len(rows):,} rows")
        before = original.logits(original.tokenize(rows))

        def tried(record: ExportRecord) -> tuple[Proof, str | None]:
            """Return how what is in the folder now compares, and why it is not accepted."""
            move_weights(aside / GRAPH, aside / WEIGHTS)
            sizes = {name: (aside / name).stat().st_size for name in (GRAPH, WEIGHTS)}
            write_record(aside, replace(record, files=record.files | sizes))
            proof = prove(before, load_exported(aside)[0], rows, labels)
            return proof, _problem(proof, options)

        if options.precision == "int8":
            batches = _calibration_batches(folder, original, options, record)
            proof, problem, details = _quantised(aside, batches, lambda: tried(record), say)
        else:
            (proof, problem), details = tried(record), {}
        said = proof.as_dict() | {"rows_of": options.rows or "dev"}
        last = read_record(aside)
        write_record(aside, replace(last, proof=said, made=last.made | details))
    except BaseException:
        # Nothing that could be used
        shutil.rmtree(aside)
        raise
    if problem is None:
        sync(aside)
        aside.rename(output)
    return Export(aside if problem else output, proof, problem)


def _check_output(output: Path) -> None:
    if os.path.lexists(output):
        kind = "a symbolic link to nothing" if not output.exists() else "one"
        raise InputError(
            f"--output {output}: the folder must be new, found {kind}; name another, or remove it"
        )
    if not output.parent.is_dir():
        raise InputError(f"--output {output}: there is no folder {output.parent}; create it first")


def _quantised(aside: Path, batches: list[dict], tried: Callable, say: Callable) -> tuple:
    """Quantise the graph in `aside`, in part where it must be; return what `tried` does, and the details."""
    fused = (aside / GRAPH).rename(aside / "fused.onnx")
    for count in FP32_NEURONS:
        num_layers = quantise(fused, aside / GRAPH, batches, count)
        proof, problem = tried()
        if problem is None:
            break
        if count != FP32_NEURONS[-1]:
            say(f"{problem}; again with more neurons in fp32")
    fused.unlink()
    bits = 7 if cuts_off_sums() else 8
    return proof, problem, {"layers": num_layers, "fp32_neurons": count, "weight_bits": bits}


def _calibration_batches(
    folder: Path, original: Predictor, options: ExportOptions, record: ExportRecord
) -> list[dict]:
    """Return inputs of the graph: training rows, or rows of the file `rows` where the model is no run's."""
    rows, _ = _rows(folder, original, options, CALIBRATION_ROWS, ("train",))
    tokens = original.tokenize(rows).windows()
    order = token_batches(np.array([len(row) for row in tokens.rows]), CALIBRATION_TOKENS)
    arrays = [padded(tokens.take(some), record.pad_id) for some in order]
    return [{name: batch[name] for name in record.inputs} for batch in arrays]


def _rows(
    folder: Path,
    original: Predictor,
    options: ExportOptions,
    count: int,
    splits: tuple = ("dev", "test", "train"),
) -> tuple[list, np.ndarray | None]:
    if options.rows is None:
        return rows_of_run(folder, original.label_names, count, splits)
    return rows_of_file(options.rows, count, run_settings(folder)), None


def _write_model(folder: Path, aside: Path, original: Predictor, precision: str) -> ExportRecord:
    """Write graph, tokenizer and a record without a proof; return the record."""
    # Once more: the predictor's model has layers of this project
    model, tokenizer = load_checkpoint(folder)
    inputs = write_graph(model, aside / GRAPH)
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.save(str(aside / TOKENIZER))
    # What a prediction reads, and --abstain
    beside = [name for name in (DECISION, LOGITS) if (folder / name).is_file()]
    for name in beside:
        shutil.copyfile(folder / name, aside / name)
    if DECISION not in beside and original.task.state():
        # Of a run that is not finished
        original.task.write(aside, 0, {})
        beside.append(DECISION)
    record = ExportRecord(
        labels=original.label_names,
        max_length=original.max_length,
        truncation_side=tokenizer.truncation_side,
        pad_id=model.config.pad_token_id or 0,
        inputs=inputs,
        precision=precision,
        data=settings_of_reading(run_settings(folder)),
        problem_type=original.task.problem_type,
        files=dict.fromkeys((TOKENIZER, *beside)),
        proof={},
        made={
            "from": folder.resolve().name,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "opset": OPSET,
            "machine": platform.machine(),
            **{library: version(library) for library in LIBRARIES},
        },
    )
    write_record(aside, record)
    return record


def _problem(proof: Proof, options: ExportOptions) -> str | None:
    """Return why an export is not accepted, or None."""
    if problem := proof.problem(options.tolerance, MAX_LOSS):
        return problem
    allowed, largest = options.logit_tolerance, proof.largest_logit_difference
    if allowed is not None and not largest <= allowed:
        return f"a logit differs by {largest:.3g}, allowed is {allowed:g} (--logit_tolerance)"
    return None
