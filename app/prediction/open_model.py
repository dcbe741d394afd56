"""A folder with a model -> its predictor, and what texts it expects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InputError

if TYPE_CHECKING:
    # They import numpy, which --help does without
    import numpy as np

    from ..data.rows import Row
    from .predictor import Predictor


@dataclass(frozen=True)
class OpenedModel:
    """A model that can classify. `recorded` are the `data` settings that it was trained with, as far as they
    are known; from `threshold` on its labels are accepted."""

    folder: Path
    predictor: Predictor
    recorded: dict[str, Any] = field(default_factory=dict)
    threshold: float | None = None

    @property
    def has_pairs(self) -> bool | None:
        """Whether it was trained on pairs of texts, None where that is not known."""
        known = "text_pair_column" in self.recorded
        return self.recorded["text_pair_column"] is not None if known else None

    @property
    def text_columns(self) -> list[str] | None:
        """The columns whose texts it reads as one, where it was trained on several."""
        columns = self.recorded.get("text_column")
        return list(map(str, columns)) if isinstance(columns, list) else None

    @property
    def remove_spaces(self) -> bool:
        """Whether the spaces of its texts were removed in training."""
        return bool(self.recorded.get("remove_spaces"))

    def vectors(self, rows: Sequence[Row]) -> np.ndarray:
        """Return vectors of rows, (num_rows, size) float32; raises InputError for an exported folder."""
        from ..vectors.text_vectors import text_vectors

        predictor, about = self.predictor, self.predictor.runtime.description
        if about["runtime"] != "torch":
            raise InputError(f"vectors need the run itself, found the exported folder {self.folder}")
        texts = [row.text if row.pair is None else (row.text, row.pair) for row in rows]
        return text_vectors(predictor.runtime.model, predictor.encoder, texts, about["device"])


@dataclass(frozen=True)
class ComputeOptions:
    """On what a model computes: `device` and `precision` as in training, `batch_tokens` (None: as usual
    there), whether to `calibrate` probabilities as fitted on dev."""

    device: str = "auto"
    precision: str = "fp32"
    batch_tokens: int | None = None
    calibrate: bool = True


def open_model(folder: Path | None, options: ComputeOptions) -> OpenedModel:
    """Return the model in `folder`, None for the run that finished last: exports by ONNX Runtime, without
    importing torch, all others by torch. Raises InputError saying what is wrong."""
    from .model_folder import choose_run, is_exported, run_long_texts, run_settings

    folder = folder or choose_run()
    if is_exported(folder):
        from .onnx_runtime import load_exported

        if options.device not in ("auto", "cpu") or options.precision != "fp32":
            raise InputError(
                f"{folder}: an exported model computes on the CPU, in the precision of its export, found "
                f"--device {options.device} --precision {options.precision}; leave them out"
            )
        predictor, record = load_exported(folder, options.batch_tokens, options.calibrate)
        return OpenedModel(folder, predictor, record.data)
    from .torch_runtime import load_predictor

    settings = run_settings(folder)
    length, long = settings.get("max_length"), run_long_texts(folder)
    predictor = load_predictor(folder, length, long, **asdict(options))
    return OpenedModel(folder, predictor, settings)


class WantedPrecision(NamedTuple):
    """Stands for the lowest threshold with this share of right decisions."""

    precision: float


def decision_threshold(
    opened: OpenedModel, wanted: float | WantedPrecision | None, say: Callable[[str], None]
) -> float | None:
    """Return the threshold for decisions, or None. One for a precision is chosen on the run's dev rows, and
    said with how well it does on others; raises InputError without these, and for a model of numbers."""
    task = opened.predictor.task
    if wanted is not None and not task.has_confidence:
        raise InputError("this model gives no probability; leave out --threshold")
    if not isinstance(wanted, WantedPrecision):
        return wanted
    from ..report.confidence import choose_threshold
    from ..report.logits_file import LOGITS, read_logits
    from ..tasks.task import FITTED_ON

    path = opened.folder / LOGITS
    # Dev has chosen the thresholds of several labels a row
    splits = read_logits(path)[0] if path.exists() and not task.form.has_several else {}
    if FITTED_ON not in splits:
        raise InputError(
            f"--threshold precision=P needs a model of one label a row, and the logits of its run for dev "
            f"rows in {path}; train again with dev rows, or set --threshold to a probability"
        )
    dev, task.recall_at = splits[FITTED_ON], wanted.precision
    scores = task.score(dev.labels, dev.logits, calibrated=True)
    rows = scores.confidence, scores.correct, dev.hashes
    value, bound, said = choose_threshold(*rows, wanted.precision)
    say(said)
    if bound < wanted.precision:
        say(f"warning: that bound is below {wanted.precision:g}; more dev rows, or a higher precision, help")
    return value
