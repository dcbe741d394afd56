"""Opening a model: the folder of a run, an export or a checkpoint -> its predictor and its threshold."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..data.tokens import tokenizer_errors
from ..errors import InputError, excerpt, say
from ..ngrams.second_reader import read_second_reader
from ..tasks import task_of_model
from ..tasks.decision_file import FITTED_ON, read_decision_file
from ..tasks.task import Task
from . import WantedPrecision
from .export_record import GRAPH, TOKENIZER, check_export, is_exported, read_record
from .predictor import Predictor
from .trained_model import TrainedModel, choose_run, read_trained_model, warn_without_decision


@dataclass(frozen=True)
class OpenedModel:
    """A model that can classify. `trained` is how it was trained; the `threshold` is the lowest confidence at
    which its labels are accepted (None: all are)."""

    trained: TrainedModel
    predictor: Predictor
    threshold: float | None = None

    @property
    def folder(self) -> Path:
        return self.trained.folder


@dataclass(frozen=True)
class ComputeOptions:
    """On what a model computes: `device` and `precision` as in training, `batch_tokens` (None: as usual
    there), whether to `calibrate` probabilities as fitted on dev."""

    device: str = "auto"
    precision: str = "fp32"
    batch_tokens: int | None = None
    calibrate: bool = True

    def __post_init__(self) -> None:
        if self.precision not in ("fp32", "bf16"):
            raise InputError(f"the precision must be fp32 or bf16, found {excerpt(self.precision)}")


def open_model(
    folder: Path | None, options: ComputeOptions, threshold: float | WantedPrecision | None = None
) -> OpenedModel:
    """Return the model in `folder`, None for the run that finished last: exports by ONNX Runtime, without
    importing torch, all others by torch. Its threshold is as `decision_threshold` says. Raises InputError
    saying what is wrong."""
    folder = folder or choose_run()
    trained = read_trained_model(folder)
    if is_exported(folder):
        predictor = _exported_predictor(trained, options)
    else:
        from .torch_runtime import load_predictor

        predictor = load_predictor(folder, trained.max_length, trained.long_texts, **asdict(options))
    task = predictor.task
    warn_without_decision(trained, task)
    # The model knows its task, also where the folder has no settings of a training
    trained = replace(trained, reading=replace(trained.reading, task=task.name))
    return OpenedModel(trained, predictor, decision_threshold(folder, task, threshold))


def _exported_predictor(trained: TrainedModel, options: ComputeOptions) -> Predictor:
    folder = trained.folder
    if options.device not in ("auto", "cpu") or options.precision != "fp32":
        raise InputError(
            f"{folder}: an exported model computes on the CPU, in the precision of its export, found "
            f"device {options.device} and precision {options.precision}; leave them out"
        )
    from tokenizers import Tokenizer

    from .onnx_runtime import OnnxRuntime, cuts_off_sums

    record = read_record(folder)
    if record.made.get("weight_bits") == 8 and cuts_off_sums():
        raise InputError(
            f"{folder}: its weights have 8 bits, for CPUs with VNNI, which this one has not; export "
            "again on this machine"
        )
    with tokenizer_errors(f"{folder / TOKENIZER}: the tokenizer cannot be read; export again"):
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    task = task_of_model(record.problem_type, record.labels)
    read_decision_file(folder, task, options.calibrate)
    # Before the graph is given to a library that may not survive a damaged one
    check_export(folder, record)
    runtime = OnnxRuntime(
        graph=folder / GRAPH,
        inputs=record.inputs,
        pad_id=record.pad_id,
        precision=record.precision,
        batch_tokens=options.batch_tokens,
    )
    return Predictor(
        runtime=runtime,
        tokenizer=tokenizer,
        task=task,
        max_length=record.max_length,
        truncation_side=record.truncation_side,
        long=trained.long_texts,
        second_reader=read_second_reader(folder, task.label_names),
    )


def decision_threshold(folder: Path, task: Task, wanted: float | WantedPrecision | None) -> float | None:
    """Return the threshold for decisions, or None. One for a precision is chosen on the run's dev rows, and
    said with how well it does on others; raises InputError without these, and for a model of numbers."""
    if wanted is not None and task.predicts_number:
        raise InputError("this model gives no probability; leave out --threshold")
    if not isinstance(wanted, WantedPrecision):
        return wanted
    from ..report.confidence import choose_threshold
    from ..report.logits_file import LOGITS, read_run

    path = folder / LOGITS
    splits = {}
    # The thresholds of several labels a row were chosen on dev, so dev cannot judge them
    if path.exists() and not task.form.has_several:
        _task, splits = read_run(folder)
    if FITTED_ON not in splits:
        raise InputError(
            f"--threshold precision=P needs a model of one label a row, and the logits of its run for dev "
            f"rows in {path}; train again with dev rows, or set --threshold to a probability"
        )
    dev = splits[FITTED_ON]
    task.recall_at = wanted.precision
    scores = task.score(dev.labels, dev.logits, calibrated=True)
    chosen = choose_threshold(scores.confidence, scores.correct, dev.hashes, wanted.precision)
    say(chosen.message)
    if chosen.precision_bound < wanted.precision:
        say(f"warning: that bound is below {wanted.precision:g}; more dev rows, or a higher precision, help")
    return chosen.confidence
