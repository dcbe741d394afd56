"""Exporting a model: graph, tokenizer and record into a new folder, which gets its name once it is compared
with the original, on rows of the user."""

import os
import secrets
import shutil
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from ..batching import token_batches
from ..errors import InputError, listed, needed, say
from ..ngrams.second_reader import FILES as SECOND_READER
from ..prediction.export_record import GRAPH, RECORD, TOKENIZER, WEIGHTS, ExportRecord
from ..prediction.load_checkpoint import check_folder, load_checkpoint
from ..prediction.onnx_runtime import cuts_off_sums, padded
from ..prediction.open_model import ComputeOptions, OpenedModel, open_model
from ..prediction.output_files import check_parent
from ..report.logits_file import LOGITS
from ..runtime.disk import checksum, replace_folder, sync, write_json
from ..tasks import open_task
from ..tasks.decision_file import DECISION, read_decision_file
from .graph import write_graph
from .proof import proof_text, prove, reason_to_refuse
from .quantisation import quantise
from .rows import rows_of_file, rows_of_run

NUM_ROWS = 1000  # that are compared
CALIBRATION_ROWS = 128
CALIBRATION_TOKENS = 512  # of a batch
TOLERANCE = {"fp32": 0.001, "int8": 0.01}  # share of the predictions that may change, by precision
# The files of an exported model
WRITTEN = {GRAPH, WEIGHTS, TOKENIZER, RECORD, DECISION, LOGITS, "config.json", *SECOND_READER}
LOGIT_TOLERANCE = {"fp32": 0.001, "int8": None}


def export(
    folder: Path,
    output: Path,
    precision: str = "fp32",
    tolerance: float | None = None,
    rows_file: str | None = None,
    overwrite: bool = False,
    encoder_alone: bool = False,
) -> tuple[str, str | None]:
    """Export the model in `folder` in fp32 or int8 to the folder `output`, a new one, or with `overwrite` in
    the place of an earlier export; return how it compares, and why it was not accepted, or None. A second
    reader of the model goes with it, unless the encoder is wanted alone.

    Where more than the share `tolerance` of the predictions changes of which the model was sure, the main
    metric falls, or in fp32 a logit differs, nothing is written. It is compared on the dev rows of the run,
    or on those of a file. Raises InputError for an unreadable model or
    rows, an `output` that may not be written, missing libraries."""
    check_folder(folder)
    check_output_folder(output, overwrite)
    if overwrite:
        # A link stays, and its folder is replaced
        output = Path(os.path.realpath(output))
    with needed("onnx"):
        import onnx  # noqa: F401 - so that the error comes before the work
    opened = open_model(folder, ComputeOptions("cpu"))
    if rows_file is None:
        rows, labels, source = rows_of_run(opened, NUM_ROWS, ("dev", "test", "train"))
    else:
        rows = rows_of_file(opened, rows_file, NUM_ROWS)
        labels = None
        source = rows_file
    aside = output.with_name(f"{output.name}.{secrets.token_hex(4)}")
    aside.mkdir()
    try:
        say(f"exporting {folder} in {precision}")
        copied = (DECISION, LOGITS, "config.json", *SECOND_READER)
        if opened.predictor.second_reader is not None:
            if encoder_alone:
                opened = without_second_reader(opened, aside)
                copied = ("config.json",)
            else:
                say(
                    f"the answers are those of {GRAPH} and of the character n-grams in {SECOND_READER[0]} "
                    "together; for programs that read the graph only: --encoder_alone"
                )
        record = write_model(aside, opened, precision, rows_file, copied)
        digests = {name: checksum(aside / name) for name in record.files}
        record = replace(record, sha256=digests | {RECORD: record.answers_digest()})
        write_json(aside / RECORD, asdict(record))
        say(f"comparing {len(rows):,} rows")
        original = opened.predictor
        before = original.logits(original.tokenize(rows))
        exported = open_model(aside, ComputeOptions()).predictor
        proof = prove(before, exported, rows, labels)
        if tolerance is None:
            tolerance = TOLERANCE[precision]
        refused = reason_to_refuse(proof, tolerance, LOGIT_TOLERANCE[precision])
        if refused is None:
            record = replace(record, proof=proof | {"rows_of": source})
            write_json(aside / RECORD, asdict(record))
            sync(aside)
            check_output_folder(output, overwrite)
            replace_folder(aside, output)
        return proof_text(proof), refused
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_output_folder(output: Path, overwrite: bool) -> None:
    """Raise InputError unless `output` can be made, or `overwrite` is asked for and it has nothing but the
    files of an export."""
    name = f"--output {output}"
    check_parent(output, name)
    if not os.path.lexists(output):
        return
    if not overwrite:
        raise InputError(
            f"{name}: a new folder is needed, and this one exists; choose another name, or replace an "
            "earlier export with --overwrite"
        )
    if not output.is_dir():
        raise InputError(f"{name}: a folder is needed, found something else; choose another name")
    names = {path.name for path in output.iterdir()}
    other_names = sorted(names - WRITTEN)
    if other_names or (names and RECORD not in names):
        found = listed(other_names or names)
        raise InputError(
            f"{name}: --overwrite replaces the folder of an export with nothing else in it, found {found}; "
            "choose another name"
        )


def without_second_reader(opened: OpenedModel, aside: Path) -> OpenedModel:
    """Return a model whose encoder answers alone, with its own decision, which is written into the folder
    `aside`."""
    predictor = opened.predictor
    task = open_task(predictor.task.name, predictor.task.label_names)
    decision = predictor.second_reader.encoder_decision
    if decision:
        write_json(aside / DECISION, decision)
    shutil.copyfile(opened.folder / "config.json", aside / "config.json")
    read_decision_file(aside, task)
    return replace(opened, predictor=replace(predictor, task=task, second_reader=None))


def write_model(
    aside: Path, opened: OpenedModel, precision: str, rows_file: str | None, copied: tuple[str, ...]
) -> ExportRecord:
    """Write all files of an exported model into the folder `aside`, except its record, which is returned. The
    files `copied` are taken from the folder of the model, where it has them."""
    folder = opened.folder
    original = opened.predictor
    # Loaded once more, because the predictor's model has layers of this project
    model, tokenizer = load_checkpoint(folder)
    inputs = write_graph(model, aside / GRAPH)
    pad_id = model.config.pad_token_id or 0
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.save(str(aside / TOKENIZER))
    # A prediction reads the first, --threshold precision=P the second; the third one has the unit of a number
    for name in copied:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, aside / name)
    made = {"from": folder.resolve().name, "at": datetime.now(UTC).isoformat(timespec="seconds")}
    if precision == "int8":
        made["weight_bits"] = 7 if cuts_off_sums() else 8
        quantise(aside / GRAPH, calibration_batches(opened, rows_file, inputs, pad_id))
    move_weights_out(aside)
    read_beside_graph = (DECISION, LOGITS, "config.json", *SECOND_READER)
    files = dict.fromkeys([TOKENIZER])
    files |= dict.fromkeys(name for name in read_beside_graph if (aside / name).is_file())
    for name in (GRAPH, WEIGHTS):
        files[name] = (aside / name).stat().st_size
    return ExportRecord(
        labels=original.task.label_names,
        max_length=original.max_length,
        truncation_side=tokenizer.truncation_side,
        pad_id=pad_id,
        inputs=inputs,
        precision=precision,
        data=opened.trained.settings(),
        problem_type=original.task.problem_type,
        files=files,
        proof={},
        made=made,
    )


def calibration_batches(
    opened: OpenedModel, rows_file: str | None, inputs: list[str], pad_id: int
) -> list[dict[str, np.ndarray]]:
    """Return the inputs of the graph, by name, for rows on which outliers are found."""
    if rows_file is None:
        rows, _labels, _source = rows_of_run(opened, CALIBRATION_ROWS, ("train",))
    else:
        rows = rows_of_file(opened, rows_file, CALIBRATION_ROWS)
    tokens = opened.predictor.tokenize(rows)
    lengths = np.array([len(window) for window in tokens.windows])
    batches = []
    for indices in token_batches(lengths, CALIBRATION_TOKENS):
        arrays = padded(tokens.take(indices), pad_id)
        batches.append({name: arrays[name] for name in inputs})
    return batches


def move_weights_out(aside: Path) -> None:
    """Write the graph in the folder `aside` once more, with its weights in a separate file."""
    import onnx

    graph = onnx.load(str(aside / GRAPH))
    # It stays empty where all weights are smaller than what onnx moves
    (aside / WEIGHTS).touch()
    onnx.save(graph, str(aside / GRAPH), save_as_external_data=True, location=WEIGHTS)
