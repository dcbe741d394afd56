"""Many files, GPUs or machines: `predict --engine ray`, and the same in Python.

Ray Data deals out the files to readers and their rows to actors with the model, repeats what a lost process
or machine had, and notes which rows are written, so that a job that was stopped as a whole continues.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout
from pyarrow import compute, parquet

from ..config.schema import DataConfig
from ..data.bad_row import BadRow
from ..data.cache import content_key
from ..data.cells import as_text, valid_text
from ..data.column_files import python_values
from ..data.files import files_of
from ..data.read import FORMATS, ReadOptions
from ..data.rows import Row, RowBatch
from ..errors import InputError, TrainingError, excerpt, listed, needed, shorten
from ..runtime.disk import checksum, write_text
from . import ON_BAD_ROW
from .added_columns import AddedColumns
from .export_record import is_exported
from .open_model import ComputeOptions, open_model
from .predictor import CHUNK_ROWS
from .sources import Source, open_file
from .trained_model import choose_run, model_files, read_trained_model

# The column that tells the rows of all files apart: the number of the file, then that of its line in it
ROW_ID, LINE_BITS = "row_id", 40
# The actors get the texts of a row, or what is wrong with it, in this column
HELD, HELD_TYPE = "__row__", pa.struct(dict.fromkeys(("text", "pair", "problem"), pa.string()))
BLOCK_BYTES = 1 << 22  # about 20,000 short texts; after a kill, what is not written is computed again
CORES_OF_FILES = 0.25  # of one that reads or writes
CORES_OF_RAY = 1.5  # of each machine: its filter of finished rows, and who reads and writes


@dataclass(frozen=True)
class Job:
    """Classify files with the model in `folder` into files of a new folder `output`. `asked` are settings of
    reading; `actors` (None: one for each GPU, else for each machine) have the model."""

    folder: Path
    names: list[str]
    output: Path
    output_format: str
    actors: int | None
    asked: dict[str, Any]
    on_bad_row: str
    threshold: float | None
    compute: ComputeOptions

    def key(self) -> str:
        """Return a digest of all that the rows depend on; other actors and devices may continue the job."""
        files = []
        for name in self.names:
            state = os.stat(name)
            files.append((name, state.st_size, state.st_mtime_ns))
        model = [(path.name, checksum(path)) for path in model_files(self.folder)]
        settings = [self.output_format, self.asked, self.on_bad_row, self.threshold, self.compute.precision]
        return content_key(files, model, settings)

    def tables(self, number: int, schema: pa.Schema | None = None) -> Iterator[pa.Table]:
        """Yield the rows of a file, read as `predict` does: their columns, in Parquet with their types, else
        as text, then row_id and what the actors need. Raises InputError for other columns than `schema`."""
        name = self.names[number]
        trained = read_trained_model(self.folder)
        source = open_file(name, trained, self.asked)
        trained.check_pairs(source.has_pairs, "name files of that form")
        has_types = FORMATS[source.format].batches is not None
        wanted_names = schema.names[:-2] if schema else []
        names = dict.fromkeys([*wanted_names, *source.names])
        for batch in source.reader.batches():
            columns = batch.columns
            if not has_types:
                # Objects may have more keys in later rows
                names.update(dict.fromkeys(columns.schema.names))
                columns = text_columns(columns, list(names))
            indices, held = self._held(source, batch)
            if not len(indices) and not has_types:
                continue
            row_ids = (number << LINE_BITS) + np.asarray(batch.lines, np.int64)[indices]
            table = pa.table(columns).take(pa.array(indices))
            table = table.append_column(ROW_ID, pa.array(row_ids)).append_column(HELD, held)
            try:
                table = table.cast(schema or table.schema)
            except (ValueError, pa.ArrowException) as error:
                raise InputError(
                    f"{name}: all rows need the columns of the first one ({listed(wanted_names)}), found "
                    f"{listed(table.column_names[:-2])}; classify the others in a folder of their own"
                ) from error
            yield table

    def _held(self, source: Source, batch: RowBatch) -> tuple[np.ndarray, pa.Array]:
        """Return which rows of a batch are classified, and the texts of each, or what is wrong with it.
        Raises InputError for an invalid row where those are errors."""
        indices = []
        held = []
        for index, row in enumerate(batch.rows()):
            if isinstance(row, Row):
                indices.append(index)
                held.append((row.text, row.pair, None))
                continue
            if self.on_bad_row == "error":
                raise source.bad_row_error(row)
            if self.on_bad_row == "keep":
                indices.append(index)
                held.append((None, None, source.problem_of(row)))
        return np.array(indices, np.int64), pa.array(held, HELD_TYPE)


def text_columns(columns: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """Return the columns of these names as text, empty where there is no value or no such column."""
    arrays = []
    for name in names:
        texts = [""] * columns.num_rows
        if name in columns.schema.names:
            texts = [valid_text(value) for value in columns.column(name).to_pylist()]
        arrays.append(pa.array(texts, pa.string()))
    return pa.record_batch(arrays, names=names)


def csv_column(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return a column with the values that `predict` writes into CSV. Arrow would write durations, times with
    zones and NaN in another way, and lists, objects and bytes not at all."""
    column_type = column.type
    if pa.types.is_floating(column_type):
        return compute.if_else(compute.is_nan(column), None, column)
    has_zone = pa.types.is_timestamp(column_type) and column_type.tz is not None
    is_bytes = pa.types.is_binary(column_type) or pa.types.is_large_binary(column_type)
    is_bytes = is_bytes or pa.types.is_fixed_size_binary(column_type)
    if has_zone or is_bytes or pa.types.is_nested(column_type) or pa.types.is_duration(column_type):
        return pa.array(map(as_text, python_values(column)), pa.string())
    return column


class BatchClassifier:
    """An actor: it opens the model once, and adds predictions to one table of rows after the other."""

    def __init__(self, job: Job, threads: int) -> None:
        os.environ |= {"OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
        self.job = job
        self.predictor = open_model(job.folder, job.compute).predictor

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the rows with their predictions; no column is replaced."""
        rows: list[Row | BadRow] = []
        for number, held in enumerate(table[HELD].to_pylist()):
            if held["problem"]:
                rows.append(BadRow(number, held["problem"]))
            else:
                rows.append(Row(number, held["text"], held["pair"], None))
        table = table.drop_columns([HELD])
        # The reasons have their file and line already
        place = "" if self.job.on_bad_row == "keep" else None
        added = AddedColumns(self.predictor.task, table.column_names, self.job.threshold, place)
        columns = [*table.columns, *added.arrays(self.predictor.predict(rows))]
        if self.job.output_format == "csv":
            columns = list(map(csv_column, columns))
        return pa.table(columns, [*table.column_names, *added.names])


def predict_files(
    input: str | Path,
    output: str | Path,
    checkpoint: str | Path | None = None,
    *,
    output_format: str = "parquet",
    actors: int | None = None,
    on_bad_row: str = "keep",
    threshold: float | None = None,
    device: str = "auto",
    precision: str = "fp32",
    batch_tokens: int | None = None,
    **reading: Any,
) -> int:
    """Classify a file, a folder or a pattern of files into Parquet or csv files of a new folder, by Ray Data,
    and return the number of rows. The same call continues one that was stopped.

    `checkpoint` is the folder of the model (None: the run that finished last), and `actors` how many
    processes have it (None: one for each GPU, else for each machine). The others are options of predict,
    `reading` those of how the files are read: `text_column`, `format` ... Raises InputError for wrong files,
    folders and values, TypeError for an unknown option, TrainingError for a full disk or where Ray cannot go
    on.
    """
    if output_format not in ("parquet", "csv") or on_bad_row not in ON_BAD_ROW:
        rule = f"output_format must be parquet or csv, and on_bad_row one of {listed(ON_BAD_ROW)}"
        raise InputError(f"{rule}, found {excerpt(output_format)} and {excerpt(on_bad_row)}")
    ReadOptions(**reading)
    with needed("ray"):
        import ray.data  # noqa: F401
    names = [str(Path(name).absolute()) for name in files_of(str(input), DataConfig.cache_dir)]
    output = Path(output).absolute()
    job = Job(
        folder=choose_run() if checkpoint is None else Path(checkpoint),
        names=names,
        output=output,
        output_format=output_format,
        actors=actors,
        asked=reading,
        on_bad_row=on_bad_row,
        threshold=threshold,
        compute=ComputeOptions(device, precision, batch_tokens),
    )
    schema = next((table.schema for table in job.tables(0)), pa.schema([]))
    if schema.names.count(ROW_ID) != 1:
        raise InputError(f"{names[0]}: a valid row is needed, and no column {ROW_ID}; fix it or rename that")
    key = job.key()
    unfinished = output.with_name(f"{output.name}.unfinished")
    begun = unfinished / "job"
    notes = unfinished / "rows"
    has_rows = output.is_file() or (output.is_dir() and any(output.iterdir()))
    if has_rows and not begun.exists():
        raise InputError(f"--output {output}: a new folder is needed, found something; choose another name")
    unfinished.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(unfinished / "lock", timeout=0):
            if has_rows and begun.read_text() != key:
                raise InputError(
                    f"--output {output}: it was begun with another input, model or setting; choose another "
                    "folder, or run the same command as before"
                )
            if not has_rows:
                # Notes without rows are of a folder that was removed
                shutil.rmtree(notes, ignore_errors=True)
                write_text(begun, key)
            count = _classify(job, schema, notes)
            # This file is removed first: while it is there, the next command continues this one
            begun.unlink()
            shutil.rmtree(unfinished)
            return count
    except Timeout:
        raise InputError(f"--output {output}: another process writes into it; wait for its end") from None


def _classify(job: Job, schema: pa.Schema, notes: Path) -> int:
    """Do a job, or the rest of it, noting in a folder which rows are written, and return their number."""
    import ray
    from ray.data import ActorPoolStrategy, Datasource
    from ray.data.block import BlockMetadata
    from ray.data.checkpoint import CheckpointConfig
    from ray.data.datasource import ReadTask

    class Files(Datasource):
        def estimate_inmemory_data_size(self) -> None:
            """Return that it is not known."""

        def get_read_tasks(self, *_args: Any, **_options: Any) -> list[ReadTask]:
            unknown = BlockMetadata(None, None, None, None)
            tasks = []
            for number in range(len(job.names)):
                tasks.append(ReadTask(partial(job.tables, number, schema), unknown))
            return tasks

    starts = not ray.is_initialized()
    try:
        if starts:
            _start_ray()
        cores_of_nodes = []
        for node in ray.nodes():
            if node["Alive"] and node["Resources"].get("CPU"):
                cores_of_nodes.append(node["Resources"]["CPU"])
        num_nodes = len(cores_of_nodes)
        num_cores = min(cores_of_nodes)
        num_gpus = 0
        if job.compute.device != "cpu" and not is_exported(job.folder):
            num_gpus = int(ray.cluster_resources().get("GPU", 0))
        num_actors = job.actors or num_gpus or num_nodes
        actors_a_node = math.ceil(num_actors / num_nodes)
        cores_an_actor = max(num_cores - CORES_OF_RAY, 0.5) / actors_a_node
        data = ray.data.read_datasource(Files(), num_cpus=CORES_OF_FILES, override_num_blocks=len(job.names))
        data.context.target_max_block_size = BLOCK_BYTES
        data.context.enable_progress_bars = sys.stderr is not None and sys.stderr.isatty()
        data.context.checkpoint_config = CheckpointConfig(
            ROW_ID, str(notes), delete_checkpoint_on_success=False
        )
        labelled = data.map_batches(
            BatchClassifier,
            fn_constructor_args=(job, max(1, int(num_cores / actors_a_node))),
            batch_format="pyarrow",
            batch_size=CHUNK_ROWS,
            compute=ActorPoolStrategy(size=num_actors),
            # Ray takes whole ones only, from 1 on
            num_cpus=math.floor(cores_an_actor) or cores_an_actor,
            num_gpus=min(1, num_gpus / num_actors),
        )
        write = labelled.write_parquet
        if job.output_format == "csv":
            write = labelled.write_csv
        write(str(job.output), ray_remote_args={"num_cpus": CORES_OF_FILES})
    except (ConnectionError, ray.exceptions.RayError) as error:
        raise _error_of_ray(error) from error
    finally:
        if starts:
            ray.shutdown()
    return _num_written(job, notes)


def _start_ray() -> None:
    """Start Ray on this machine, or join the cluster that the environment names."""
    import ray

    # Ray would report its use to its makers
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options = {}
    if "RAY_ADDRESS" not in os.environ:
        num_cpus = max(2, joblib.cpu_count())
        options = {"address": "local", "num_cpus": num_cpus, "include_dashboard": False}
    ray.init(**options, logging_level="warning")


def _error_of_ray(error: Exception) -> InputError | TrainingError:
    """Return the error of the project that Ray passes on as text, or within its own; else one that says what
    Ray says."""
    text = "".join(traceback.format_exception(error)).strip()
    messages = re.findall(r"\berrors\.InputError: (.+)", text)
    if messages:
        return InputError(messages[-1])
    last_line = shorten(text.splitlines()[-1], 300)
    return TrainingError(
        f"Ray: {last_line}; the same command continues (RAY_ADDRESS is the address of the cluster, if one "
        "is wanted)"
    )


def _num_written(job: Job, notes: Path) -> int:
    """Return the number of rows that a job wrote. Raises TrainingError unless each is there once."""
    row_ids = parquet.read_table(notes)[ROW_ID]
    # A file of rows has the name of its note; Ray adds a number to that of Parquet
    noted_files = {path.stem for path in notes.glob("*.parquet")}
    written_files = {path.stem.removesuffix("-0") for path in job.output.iterdir()}
    if len(row_ids.unique()) != len(row_ids) or noted_files != written_files:
        raise TrainingError(
            f"{job.output}: each row is needed once, found rows that are missing or there twice; choose "
            "another folder"
        )
    return len(row_ids)
