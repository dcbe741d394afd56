"""Files of any number and size -> files of predictions, by Ray Data: on one machine, or a cluster of them.

Ray deals out the files to readers and their rows to actors with the model, repeats what a lost process or
machine had, and notes which rows are written, so that a job that was stopped as a whole continues.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
from filelock import FileLock, Timeout
from pyarrow import parquet
from ray.data import ActorPoolStrategy, Datasource
from ray.data.block import BlockMetadata
from ray.data.checkpoint import CheckpointConfig
from ray.data.datasource import ReadTask

from ..config.data_settings import DataConfig
from ..data.files import files_of
from ..data.read import BUFFER, BadRow, bad_row_message, parquet_batches
from ..data.rows import Row
from ..errors import InputError, TrainingError, listed, shorten
from ..runtime.disk import checksum, read_json, write_json
from ..runtime.processes import num_cores
from .open_model import ComputeOptions, open_model
from .output import REPLACED, AddedColumns
from .predictor import CHUNK_ROWS
from .recorded_settings import check_pairs, is_exported, model_files, recorded_settings
from .sources import Source, as_text, open_file

# The column that tells the rows of all files apart: the number of the file, then that of its line in it
ROW_ID, LINE_BITS = "row_id", 40
# What the actors need of a row beside its columns
HELD, HELD_TYPE = "__row__", pa.struct(dict.fromkeys(("text", "pair", "problem"), pa.string()))
BLOCK_BYTES = 1 << 22  # about 20,000 short texts; after a kill, what is not written is computed again
CORES_OF_FILES = 0.25  # of one that reads or writes
CORES_OF_RAY = 1.5  # of each machine: its filter of finished rows, and who reads and writes


@dataclass(frozen=True)
class RayJob:
    """Classify the files of `input` with the model in `folder` into files of a new folder `output`. `asked`
    are settings of reading; `actors` (None: one for each GPU, else for each machine) have the model."""

    folder: Path
    input: str
    output: Path
    output_format: str
    actors: int | None
    asked: dict[str, Any]
    on_bad_row: str
    threshold: float | None
    compute: ComputeOptions


def classify_files(job: RayJob) -> int:
    """Do a job, or the rest of one that was stopped, and return how many rows the output has.

    Raises InputError for bad input, a folder that has something else in it, and a job that is another one
    than before; TrainingError for a full disk, or where Ray cannot go on.
    """
    files, unfinished = _Files(job), job.output.with_name(f"{job.output.name}.unfinished")
    record, has_rows = unfinished / "job.json", job.output.is_dir() and any(job.output.iterdir())
    if not record.exists() and (has_rows or job.output.is_file()):
        raise InputError(
            f"--output {job.output}: a new folder is needed, found something; choose another name"
        )
    unfinished.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(unfinished / "lock", timeout=0):
            now = json.loads(json.dumps(_what_decides(files), default=str))
            if has_rows and read_json(record) != now:
                raise InputError(
                    f"--output {job.output}: it was begun with another input, model or setting; choose "
                    "another folder, or run the same command as before"
                )
            if not has_rows:
                # Nothing was written that could be of another job
                shutil.rmtree(unfinished / "rows", ignore_errors=True)
                write_json(record, now)
            with _ray():
                _write(files, unfinished)
            rows = _count_written(job.output, unfinished)
            # First what makes the next command continue
            record.unlink()
            shutil.rmtree(unfinished)
            return rows
    except Timeout:
        raise InputError(f"--output {job.output}: another process writes into it; wait for its end") from None


def _what_decides(files: _Files) -> dict[str, Any]:
    """Return what the predictions depend on; another number of actors on other machines may continue."""
    states = {name: os.stat(name) for name in files.names}
    return asdict(files.job) | {
        "actors": None,
        "compute": files.job.compute.precision,
        "folder": {path.name: checksum(path) for path in model_files(files.job.folder)},
        "input": {name: [state.st_size, state.st_mtime_ns] for name, state in states.items()},
    }


@contextmanager
def _ray() -> Iterator[None]:
    """Work with Ray, which is started where it is not: on this machine, or in the cluster of RAY_ADDRESS."""
    starts = not ray.is_initialized()
    try:
        if starts:
            # Ray would report its use to its makers
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            own = {"address": "local", "num_cpus": max(2, num_cores()), "include_dashboard": False}
            ray.init(**({} if "RAY_ADDRESS" in os.environ else own), logging_level="warning")
        yield
    except (ConnectionError, ray.exceptions.RayError) as error:
        # Ray passes on errors of the project as text, or within its own
        text = "".join(traceback.format_exception(error)).strip()
        if found := re.findall(r"\berrors\.InputError: (.+)", text):
            raise InputError(found[-1]) from error
        last = shorten(text.splitlines()[-1], 300)
        raise TrainingError(
            f"Ray: {last}; the same command continues (RAY_ADDRESS is the address of the cluster, if one is "
            "wanted)"
        ) from error
    finally:
        if starts:
            ray.shutdown()


def _write(files: _Files, unfinished: Path) -> None:
    job = files.job
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    is_on_cpu = job.compute.device == "cpu" or is_exported(job.folder)
    gpus = 0 if is_on_cpu else int(sum(node.get("GPU", 0) for node in nodes))
    actors = job.actors or gpus or len(nodes)
    of_node, cores = math.ceil(actors / len(nodes)), min(node["CPU"] for node in nodes)
    cpus = max(cores - CORES_OF_RAY, 0.5) / of_node
    data = ray.data.read_datasource(files, num_cpus=CORES_OF_FILES, override_num_blocks=len(files.names))
    data.context.target_max_block_size = BLOCK_BYTES
    data.context.enable_progress_bars = sys.stderr is not None and sys.stderr.isatty()
    data.context.checkpoint_config = CheckpointConfig(
        ROW_ID, str((unfinished / "rows").absolute()), delete_checkpoint_on_success=False
    )
    labelled = data.map_batches(
        _Classifier,
        fn_constructor_args=(job, max(1, int(cores / of_node)), [*files.schema.names, ROW_ID]),
        batch_format="pyarrow",
        batch_size=CHUNK_ROWS,
        compute=ActorPoolStrategy(size=actors),
        # Ray takes whole ones only, from 1 on
        num_cpus=math.floor(cpus) or cpus,
        num_gpus=min(1, gpus / actors),
    )
    write = labelled.write_csv if job.output_format == "csv" else labelled.write_parquet
    write(str(job.output), ray_remote_args={"num_cpus": CORES_OF_FILES})


class _Files(Datasource):
    """The files of a job. All have the columns of the first one, those of Parquet with their types, all
    others as text."""

    def __init__(self, job: RayJob) -> None:
        super().__init__()
        self.job = job
        self.names = [str(Path(name).absolute()) for name in files_of(job.input, DataConfig.cache_dir)]
        self.recorded = recorded_settings(job.folder)
        source = self.open(self.names[0])
        source.started("keep")
        if source.first is None:
            raise InputError(f"there are no valid rows; {source.summary()}")
        of_texts = pa.schema([(name, pa.string()) for name in source.names])
        self.schema = parquet.read_schema(source.name) if source.format == "parquet" else of_texts
        if taken := {ROW_ID, HELD} & set(self.schema.names):
            raise InputError(
                f"{source.name}: the column name {taken.pop()} is needed, and the file has it; rename it"
            )

    def estimate_inmemory_data_size(self) -> int:
        """Return about how many bytes the rows have."""
        return sum(map(os.path.getsize, self.names))

    def get_read_tasks(self, parallelism: int, *_args: Any, **_options: Any) -> list[ReadTask]:
        """Return a task for each file."""
        return [
            ReadTask(partial(self.read, number), BlockMetadata(None, os.path.getsize(name), None, None))
            for number, name in enumerate(self.names)
        ]

    def open(self, name: str) -> Source:
        """Return a file as a source; columns of Parquet are copied as they are."""
        job, keeps_columns = self.job, not name.lower().endswith(".parquet")
        source = open_file(name, self.recorded, job.asked, keeps_columns=keeps_columns)
        check_pairs(job.folder, self.recorded, source.has_pairs, "name files of that form")
        return source

    def read(self, number: int) -> Iterator[pa.Table]:
        """Yield the rows of a file, read as `predict` does, with their columns, which are those of `schema`,
        what the actors need, and where they are."""
        source, on_bad_row = self.open(self.names[number]), self.job.on_bad_row
        rows = source.started("error" if on_bad_row == "error" else "keep")
        for table, some in self.tables(source, rows):
            try:
                table = table.cast(self.schema)
            except (ValueError, pa.ArrowException) as error:
                raise InputError(
                    f"{source.name}: all files need the columns of the first one "
                    f"({listed(self.schema.names)}), found {listed(table.column_names)}; classify the others "
                    "in a folder of their own"
                ) from error
            held = [
                {"text": row.text, "pair": row.pair}
                if isinstance(row, Row)
                else {"problem": bad_row_message(source.name, source.place, row.line, row.problem)}
                for row in some
            ]
            ids = pa.array([(number << LINE_BITS) + row.line for row in some], pa.int64())
            table = table.append_column(ROW_ID, ids).append_column(HELD, pa.array(held, HELD_TYPE))
            if on_bad_row == "skip":
                table = table.filter(pa.array([isinstance(row, Row) for row in some], pa.bool_()))
            yield table

    def tables(
        self, source: Source, rows: Iterator[Row | BadRow]
    ) -> Iterator[tuple[pa.Table, list[Row | BadRow]]]:
        """Yield the columns of a file, and the rows of each of these tables."""
        if source.format == "parquet":
            path = Path(source.name)
            with path.open("rb") as opened:
                for batch in parquet_batches(path, parquet.ParquetFile(opened, buffer_size=BUFFER)):
                    yield pa.table(batch), list(islice(rows, batch.num_rows))
            # Whether the file has changed shows at its end
            if next(rows, None) is not None:
                raise InputError(f"{path}: a file must not change while it is read; start again")
            return
        while some := list(islice(rows, CHUNK_ROWS)):
            # Objects may lack keys, and have others
            used, records = source.reader.used, list(map(source.record, some))
            names = self.schema.names if used and used.width is None else source.names
            texts = [[as_text(record.get(name)) for record in records] for name in names]
            whole = [[text.encode(errors=REPLACED).decode() for text in column] for column in texts]
            yield pa.table([pa.array(column, pa.string()) for column in whole], names), some


class _Classifier:
    """An actor: it opens the model once, and adds predictions to one table of rows after the other."""

    def __init__(self, job: RayJob, threads: int, names: list[str]) -> None:
        os.environ |= {"OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
        self.predictor = open_model(job.folder, job.compute).predictor
        place = "row" if job.on_bad_row == "keep" else None
        self.added = AddedColumns(self.predictor.task, names, job.threshold, place)
        self.is_csv = job.output_format == "csv"

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the rows with their predictions; no column is replaced."""
        held = table[HELD].to_pylist()
        rows = [
            BadRow(number, row["problem"]) if row["problem"] else Row(number, row["text"], row["pair"], None)
            for number, row in enumerate(held)
        ]
        added, kept = self.added.arrays(self.predictor.predict(rows)), table.drop_columns([HELD])
        if self.added.place:
            # With the file and the line
            added[-1] = pa.array([row["problem"] for row in held], pa.string())
        columns = [*kept.columns, *added]
        if self.is_csv:
            # A file of CSV has lists as JSON
            nested = [number for number, one in enumerate(columns) if pa.types.is_nested(one.type)]
            for number in nested:
                columns[number] = pa.array(map(as_text, columns[number].to_pylist()), pa.string())
        return pa.table(columns, [*kept.column_names, *self.added.names])


def _count_written(output: Path, unfinished: Path) -> int:
    """Return how many rows are written; raises TrainingError unless each is there once."""
    noted = sorted((unfinished / "rows").glob("*.parquet"))
    ids = pa.concat_arrays([parquet.read_table(path)[ROW_ID].combine_chunks() for path in noted])
    # A file of rows has the name of its note, and maybe another number
    written = {re.sub(r"(-\d+)?\.(parquet|csv)$", "", path.name) for path in output.iterdir()}
    if len(ids.unique()) != len(ids) or {path.stem for path in noted} != written:
        raise TrainingError(
            f"{output}: each row is needed once, found rows that are missing or there twice; choose another "
            "folder"
        )
    return len(ids)
