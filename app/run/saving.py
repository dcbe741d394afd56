"""What a run writes while it trains: its best model, and the training states from which it resumes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from safetensors import SafetensorError

from ..checkpoints.background_writer import BackgroundWriter
from ..checkpoints.parameter_names import strip_prefix
from ..checkpoints.run_contents import MODEL
from ..checkpoints.training_state import Tensors, save_training_state
from ..checkpoints.write_errors import cannot_write
from ..config.schema import OutputConfig
from ..model.pretrained import save_model
from ..strategies.strategy import Strategy
from ..training.progress import RunProgress
from .assembly import Components


def call_all(writes: list[Callable[[], None]]) -> None:
    """Call each."""
    for write in writes:
        write()


class Saver:
    """Copies weights to host memory and writes them in the background; every rank has one, and rank 0, with a
    `folder`, writes.

    `job` is stored in each training state; `before_first_write` is called once, just before the first file is
    written.
    """

    def __init__(
        self,
        strategy: Strategy,
        folder: Path | None,
        components: Components,
        config: OutputConfig,
        job: dict,
        before_first_write: Callable[[], None] | None = None,
    ) -> None:
        self.strategy = strategy
        self.folder = folder
        # Whose configuration is saved, before the strategy wraps it
        self.transformers_model = components.model.model
        self.tokenizer = components.tokenizer
        self.config = config
        self.job = job
        self.before_first_write = before_first_write
        self.writer = BackgroundWriter()

    def save(self, state: RunProgress, is_best: bool, with_state: bool, is_trained: bool) -> None:
        """Copy what has to be written, and write it in the background: the model where `is_best`, a state
        where `with_state`.

        Every rank calls it. The state of a finished training has tensors only to train for longer later.
        """
        with_tensors = with_state and (self.config.keep_final_state or not is_trained)
        weights = strip_prefix(self.strategy.full_state.weights()) if is_best or with_tensors else {}
        optimizer = strip_prefix(self.strategy.full_state.optimizer()) if with_tensors else {}
        if self.folder is None:
            return
        writes = []
        if is_best:
            writes.append(partial(self.write_model, weights))
        if with_state:
            run_state = replace(
                state, loss_window=list(state.loss_window), scaler=self.strategy.full_state.scaler()
            )
            # After the last step the run's model is the best for good, and the state needs no copy of it.
            best_model = self.folder / MODEL if state.best_step and not is_trained else None
            tensors = (weights if with_tensors else {}, optimizer)
            writes.append(partial(self.write_state, run_state, *tensors, best_model))
        self.writer.start(partial(self.write, writes))

    def write(self, writes: list[Callable[[], None]]) -> None:
        """Do all writes of one save; the background thread of rank 0 calls it."""
        if self.before_first_write:
            self.before_first_write()
            self.before_first_write = None
        call_all(writes)

    def write_model(self, weights: Tensors) -> None:
        """Write the run's model."""
        try:
            save_model(self.folder, self.transformers_model, weights, self.tokenizer)
        except (OSError, SafetensorError) as error:
            raise cannot_write("the model", error, self.folder) from error

    def write_state(
        self, run_state: RunProgress, weights: Tensors, optimizer: Tensors, best_model: Path | None
    ) -> None:
        """Write a training state."""
        keep = self.config.keep_states
        save_training_state(self.folder, run_state, self.job, weights, optimizer, keep, best_model)

    def wait(self) -> None:
        """Wait for the running write, and raise its error."""
        self.writer.wait()

    def close(self) -> None:
        """Wait until nothing is being written."""
        self.writer.close()
