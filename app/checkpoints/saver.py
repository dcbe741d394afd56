"""Models and training states are written in the background, while the run trains on."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from pathlib import Path

from ..model.classifier import PackedModel
from ..model.lora import save_adapter
from ..model.saving import save_model
from ..modes.mode import Mode, Tensors
from .decision import remove_decision, write_decision
from .progress import RunProgress
from .run_files import best_weights
from .training_state import save_training_state


class Saver:
    """Copies weights and writes them in the background, one write at a time.

    Each rank has one, and the one with a `folder` writes. `job` is stored in each training state, and
    `record_start` is called first in each write. The error of a write is raised by the next call of `save`,
    `check` or `wait`.
    """

    def __init__(
        self,
        mode: Mode,
        folder: Path | None,
        model: PackedModel,
        tokenizer,
        job: dict,
        record_start: Callable[[], None],
    ) -> None:
        self.mode = mode
        self.folder = folder
        # The configuration of this model is saved; the mode has wrapped it
        self.model = model
        self.tokenizer = tokenizer
        self.job = job
        self.record_start = record_start
        # Training states leave these out: a run that resumes has them already
        self.frozen = {name for name, value in model.model.named_parameters() if not value.requires_grad}
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self.running: Future | None = None

    def save(
        self,
        progress: RunProgress,
        is_best: bool,
        with_state: bool,
        fit_decision: Callable[[], dict],
    ) -> None:
        """Copy the weights, and write in the background what is asked for; every rank calls it.

        Where `is_best`, the model is written, with its decision, which `fit_decision` returns. Where
        `with_state`, a training state is written.
        """
        weights: Tensors = {}
        optimizer: Tensors = {}
        if is_best or with_state:
            weights = self.mode.weights()
        if with_state:
            optimizer = self.mode.optimizer_state()
        folder = self.folder
        if folder is None:
            return
        # The training changes its progress while the copy is written
        progress = deepcopy(progress)
        progress.scaler = self.mode.scaler.state_dict()
        adapter = self.model.adapter
        best_path = best_weights(folder, has_adapter=adapter is not None)

        def write() -> None:
            self.record_start()
            if is_best:
                self._write_model(folder, adapter, best_path.parent, weights, fit_decision())
            if with_state:
                trained = {name: value for name, value in weights.items() if name not in self.frozen}
                save_training_state(
                    folder,
                    progress,
                    self.job,
                    weights=trained,
                    optimizer=optimizer,
                    best=best_path if progress.has_best else None,
                )

        self.wait()
        self.running = self.pool.submit(write)

    def _write_model(
        self, folder: Path, adapter: object | None, best_folder: Path, weights: Tensors, decision: dict
    ) -> None:
        """Write weights and decision of the best model so far; with an adapter only the adapter's weights.
        The decision before is removed before its weights are replaced."""
        if adapter:
            remove_decision(best_folder)
            save_adapter(folder, adapter, weights)
        else:
            remove_old_decision = partial(remove_decision, best_folder)
            save_model(folder, self.model.model, weights, self.tokenizer, before_move=remove_old_decision)
        write_decision(best_folder, decision)

    def close(self) -> None:
        """Let the write that is going on come to its end."""
        self.pool.shutdown()

    def check(self) -> None:
        """Raise the error of a write that has ended, where there is one."""
        if self.running and self.running.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the write that is going on, and raise its error, where there is one."""
        running = self.running
        self.running = None
        if running:
            running.result()
