"""What a run writes while it trains: its best model, and the training states from which it resumes."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from safetensors import SafetensorError

from ..checkpoints.progress import RunProgress
from ..checkpoints.run_folder import cannot_write, check_is_there
from ..checkpoints.training_state import Tensors, best_weights, save_training_state
from ..model.pretrained import save_model, strip_prefix
from ..model.trained_weights import save_adapter
from ..modes.mode import Mode
from .build import Components

KEPT_STATES = 2  # training states of an unfinished run


class BackgroundWriter:
    """Writes in the background, one task at a time; an error is raised by the next call."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self.running: Future | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Call `write` in the background, after the previous one has ended."""
        self.wait()
        self.running = self.pool.submit(write)

    def check(self) -> None:
        """Raise the error of a write that has failed; does not wait."""
        if self.running and self.running.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the running write, and raise its error."""
        running, self.running = self.running, None
        if running:
            running.result()

    def close(self) -> None:
        """Wait until nothing is being written; an error that was not raised yet is dropped."""
        self.pool.shutdown(wait=True)


class Saver(BackgroundWriter):
    """Copies weights and writes them in the background. Each rank has one; that with a `folder` writes. `job`
    is stored in each training state; `first_writes` come once, before the first file."""

    def __init__(
        self,
        mode: Mode,
        folder: Path | None,
        components: Components,
        job: dict,
        first_writes: list[Callable[[], None]],
    ) -> None:
        super().__init__()
        self.mode = mode
        self.folder = folder
        # Whose configuration is saved, before the mode wraps it
        self.transformers_model = components.model.model
        self.adapter = components.model.adapter
        # A run that resumes has them already
        self.frozen = {
            name for name, value in self.transformers_model.named_parameters() if not value.requires_grad
        }
        self.tokenizer = components.tokenizer
        self.job = job
        self.first_writes = first_writes

    def save(self, progress: RunProgress, is_best: bool, with_state: bool, is_trained: bool) -> None:
        """Copy, and write in the background, the model where `is_best`, and a state where `with_state`. Every
        rank calls it."""
        full_state = self.mode.full_state
        weights = strip_prefix(full_state.weights()) if is_best or with_state else {}
        optimizer = strip_prefix(full_state.optimizer()) if with_state else {}
        if self.folder is None:
            return
        writes = []
        if is_best:
            writes.append(partial(self.write_model, weights))
        if with_state:
            saved = replace(progress, loss_window=list(progress.loss_window), scaler=full_state.scaler())
            # After the last step the run's model is the best for good, and the state needs no copy of it.
            best_model = None
            if progress.best_step and not is_trained:
                best_model = best_weights(self.folder, self.adapter is not None)
            trained = {name: value for name, value in weights.items() if name not in self.frozen}
            state = saved, self.job, trained, optimizer, KEPT_STATES, best_model
            writes.append(partial(save_training_state, self.folder, *state))
        self.start(partial(self.write, writes))

    def write(self, writes: list[Callable[[], None]]) -> None:
        """Do all writes of one save; the background thread of rank 0 calls it."""
        try:
            for write in [*self.first_writes, *writes]:
                check_is_there(self.folder)
                write()
            self.first_writes = []
        except (OSError, SafetensorError) as error:
            raise cannot_write("the model", error, self.folder) from error

    def write_model(self, weights: Tensors) -> None:
        """Write the run's model, or what is trained of it."""
        if self.adapter:
            save_adapter(self.folder, self.adapter, weights)
        else:
            save_model(self.folder, self.transformers_model, weights, self.tokenizer)
