"""Memory that runs out outside of a training step: where, and what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from ..errors import TrainingError, first_line
from ..training.out_of_memory import is_out_of_memory


class Remedy(StrEnum):
    """What to do where memory ran out, by the kind of work."""

    PREPARING = "choose a smaller model (model.name, model.config), or a machine with more memory"
    LOADING = "end other programs, or choose a machine with more memory, and start again with --resume auto"
    TRAINING = "resume from the last training state with --resume auto and a smaller train.micro_batch_tokens"
    EVALUATION = "set or lower train.micro_batch_tokens, and resume with --resume auto"
    SAVING = "end other programs, or choose a machine with more memory, and resume with --resume auto"


@contextmanager
def memory_for(work: str, remedy: str) -> Iterator[None]:
    """Return a context in which memory that runs out raises TrainingError with the `work` and the remedy."""
    try:
        yield
    except TrainingError:
        raise
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(f"memory ran out while {work}: {first_line(error)}; {remedy}") from error
