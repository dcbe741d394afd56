"""Exporting a model: graph, tokenizer and record into a new folder, which gets its name once compared."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from ..batching.token_limit import token_batches
from ..data.read import options_of_run
from ..data.rows import Row, read_rows
from ..errors import InputError, listed
from ..prediction.model_folder import (
    GRAPH,
    TOKENIZER,
    WEIGHTS,
    ExportRecord,
    dataset_of_run,
    run_long_texts,
    run_settings,
    settings_of_reading,
    write_record,
)
from ..prediction.onnx_runtime import cuts_off_sums, load_exported, padded
from ..prediction.torch_runtime import check_folder, load_checkpoint, load_predictor
from ..report.logits_file import LOGITS
from ..runtime.disk import sync
from ..tasks.task import DECISION
from .graph import move_weights, write_graph
from .proof import problem, prove, render
from .quantise import quantise

NUM_ROWS = 1000  # that are compared
CALIBRATION_ROWS, CALIBRATION_TOKENS = 128, 512  # in all, and of a batch
TOLERANCE, LOGIT_TOLERANCE = {"fp32": 0.001, "int8": 0.01}, {"fp32": 0.001, "int8": None}


def export(
    folder: Path,
    output: Path,
    say: Callable[[str], None],
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
    settings = run_settings(folder)
    original = load_predictor(folder, settings.get("max_length"), run_long_texts(folder), device="cpu")
    rows, labels = rows_of(folder, rows_file, original.label_names, NUM_ROWS)
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
        # A prediction reads these files, and so does --threshold precision=P.
        beside = [name for name in (DECISION, LOGITS) if (folder / name).is_file()]
        for name in beside:
            shutil.copyfile(folder / name, aside / name)
        made = {"from": folder.resolve().name, "at": datetime.now(UTC).isoformat(timespec="seconds")}
        if precision == "int8":
            made["weight_bits"] = 7 if cuts_off_sums() else 8
            known, _ = rows_of(folder, rows_file, original.label_names, CALIBRATION_ROWS, ("train",))
            tokens = original.tokenize(known).windows()
            order = token_batches(np.array([len(row) for row in tokens.rows]), CALIBRATION_TOKENS)
            arrays = [padded(tokens.take(some), pad_id) for some in order]
            quantise(aside / GRAPH, [{name: batch[name] for name in inputs} for batch in arrays])
        move_weights(aside / GRAPH, aside / WEIGHTS)
        sizes = {name: (aside / name).stat().st_size for name in (GRAPH, WEIGHTS)}
        record = ExportRecord(
            labels=original.label_names,
            max_length=original.max_length,
            truncation_side=tokenizer.truncation_side,
            pad_id=pad_id,
            inputs=inputs,
            precision=precision,
            data=settings_of_reading(settings),
            problem_type=original.task.problem_type,
            files=dict.fromkeys((TOKENIZER, *beside)) | sizes,
            proof={},
            made=made,
        )
        write_record(aside, record)
        say(f"comparing {len(rows):,} rows")
        proof = prove(original.logits(original.tokenize(rows)), load_exported(aside)[0], rows, labels)
        allowed = TOLERANCE[precision] if tolerance is None else tolerance
        why = problem(proof, allowed, LOGIT_TOLERANCE[precision])
        if why is None:
            write_record(aside, replace(record, proof=proof | {"rows_of": rows_file or "dev"}))
            sync(aside)
            aside.rename(output)
        return render(proof), why
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def rows_of(
    folder: Path,
    file: str | None,
    label_names: list[str],
    count: int,
    splits: tuple[str, ...] = ("dev", "test", "train"),
) -> tuple[list[Row], np.ndarray | None]:
    """Return up to `count` rows, chosen at random, of a file, or with their labels of the first of `splits`
    that the run has. Raises InputError for an invalid file, a folder that is no run, and data that is gone or
    has other labels."""
    random = np.random.default_rng(0)
    if file is not None:
        options = options_of_run(Path(file), run_settings(folder))
        rows = [row for row in read_rows(file, options, need_label=False) if isinstance(row, Row)]
        if not rows:
            raise InputError(f"{file}: there are no valid rows; name another file with --rows")
        return [rows[at] for at in np.sort(random.permutation(len(rows))[:count])], None
    remedy = "name a file of texts with --rows"
    dataset = dataset_of_run(folder, "a comparison needs", remedy)
    if dataset.label_names != label_names:
        raise InputError(
            f"{folder}: its data has the labels {listed(dataset.label_names)}, the model "
            f"{listed(label_names)}; {remedy}"
        )
    split = next(dataset.splits[name] for name in splits if name in dataset.splits)
    at, table = np.sort(random.permutation(len(split))[:count]), split.table
    rows = [Row(int(row), table.text(row), table.pair(row), None) for row in split.rows[at]]
    return rows, np.asarray(split.labels[at])
