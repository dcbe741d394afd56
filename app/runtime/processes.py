"""This process and its children: its exit status, the launcher that started it, and the environment of its
children. A process ends with its launcher."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import InputError, TrainingError, say, show, write_out
from ..program import install_command
from .disk import OF_THE_SYSTEM

PACKAGE_FOLDER = Path(__file__).resolve().parents[2]
# Variables of torchrun and our own mp.spawn, horovodrun, deepspeed
OF_LAUNCHERS = ("TORCHELASTIC_", "HOROVOD_RANK", "CROSS_RANK")
# Launchers give a process its rank, and the number of processes, in these variables; the first that is set
# counts. Open MPI sets OMPI_COMM_WORLD_*, MPICH, Intel MPI and `srun --mpi=pmi2` set PMI_*. A torchrun that
# mpirun started sets RANK beside them, so that comes first.
RANK_VARIABLES = ("RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
SIZE_VARIABLES = ("WORLD_SIZE", "HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
# `accelerate launch` always sets this one, and neither of those above for one process
OF_ACCELERATE = "ACCELERATE_MIXED_PRECISION"
# The modules of requirements.txt, without which nothing runs
REQUIRED = (
    "accelerate",
    "babel",
    "filelock",
    "jinja2",
    "joblib",
    "numpy",
    "pandas",
    "psutil",
    "pyarrow",
    "pydantic",
    "safetensors",
    "scipy",
    "sklearn",
    "tensorboard",
    "tokenizers",
    "torch",
    "tqdm",
    "transformers",
    "yaml",
)
# Held while a model is built, loaded or fitted: transformers' switch that leaves weights uninitialised, its
# verbosity, and torch's random generator belong to the whole process, so two threads would get wrong models.
# `fit` also loads, so the same thread may take it again.
MODEL_LOCK = threading.RLock()


def exit_status(work: Callable[[], int | None]) -> int:
    """Call `work` and return its status, 0 for None: 2 for bad input, 1 for what failed, 130 after Ctrl-C,
    141 where standard output was closed by its reader, 1 where it is full. Errors go to standard error."""
    with suppress(AttributeError):
        # Where its encoding is not UTF-8, characters that it lacks are written as \uXXXX
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        Path.cwd()
    except FileNotFoundError:
        # Libraries would end the process there
        problem = (
            "the working folder must exist, but it was removed; change to another one (cd) and run it again"
        )
        return refuse(problem, 2)
    try:
        status = work() or 0
    except (InputError, TrainingError) as error:
        status = refuse(error, 2 if isinstance(error, InputError) else 1)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in REQUIRED:
            raise
        say(
            f"error: the package {name} is not installed for {sys.executable}; activate the environment of "
            f"the project (. .venv/bin/activate), or: {install_command()}"
        )
        status = 2
    except SystemExit as request:
        # The help has been printed
        status = request.code or 0
    except KeyboardInterrupt:
        say("interrupted")
        status = 130
    except BrokenPipeError:
        status = 141
    except OSError as error:
        if error.filename is None and error.errno not in OF_THE_SYSTEM:
            raise
        status = refuse(f"a file cannot be read or written: {error}; fix that and start again", 1)
    if status == 0:
        return show("")
    # One error is enough: this may be the one that standard output has given
    write_out("")
    return status


def refuse(error: Exception | str, status: int) -> int:
    """Print an error, with the rank of a process that is not rank 0, and return the exit status."""
    rank = launched_rank()
    if rank == 0:
        say(f"error: {error}")
    else:
        say(f"error (rank {rank}): {error}")
    return status


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """While libraries are imported, let Ctrl-C end this process with status 130: there is nothing to save,
    and transformers would make an ImportError of the KeyboardInterrupt."""
    handler = signal.getsignal(signal.SIGINT)
    # Where it is ignored, as after `nohup`, it stays so
    is_ours = handler is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if is_ours:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, handler)


def end_with_launcher() -> None:
    """End this process when the launcher that started it has ended: a killed launcher leaves no orphan. A
    process without a launcher is left alone: its parent is a shell, which may end before the run."""
    launcher = os.getppid()
    has_launcher = any(name.startswith(OF_LAUNCHERS) for name in os.environ)
    if not has_launcher:
        return

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(1)
        message = (
            f"error (rank {launched_rank()}): the launcher that started this process (number {launcher}) has "
            "ended, so this process ends too; resume from the last training state with --output.resume auto\n"
        )
        # This is the pipe to the launcher; another thread may hold the lock of sys.stderr
        with suppress(OSError):
            os.write(2, message.encode())
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def child_environment() -> dict[str, str]:
    """Return the environment of this process, changed so that `python -m app` runs this package in any
    folder. PYTHONSAFEPATH keeps the working folder, which may have an `app`, off the module path."""
    paths = [str(PACKAGE_FOLDER)]
    if os.environ.get("PYTHONPATH"):
        paths.append(os.environ["PYTHONPATH"])
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


def is_launched() -> bool:
    """Return whether a launcher started this process, as one of the ranks of a run."""
    return any(name in os.environ for name in (*RANK_VARIABLES, *SIZE_VARIABLES, OF_ACCELERATE))


def launched_rank() -> int:
    """Return the rank that the launcher gave this process: torchrun, horovodrun or mpirun; 0 without one."""
    _name, rank = first_number(RANK_VARIABLES)
    return rank or 0


def launched_size() -> tuple[str, int]:
    """Return how many processes the launcher started, and the variable that says it; 1 without a launcher."""
    name, size = first_number(SIZE_VARIABLES)
    return name, size or 1


def first_number(variables: tuple[str, ...]) -> tuple[str, int | None]:
    """Return the name and the value of the first of some environment variables that is set; the value is None
    where it is no number from 0 on, or none is set."""
    for name in variables:
        value = os.environ.get(name)
        if value is None:
            continue
        if value.isdecimal():
            return name, int(value)
        return name, None
    return "", None


def launcher_id() -> str | None:
    """Return what all processes of one torchrun on a machine share, restarted ones too, and no others: the
    folder that it makes for their errors; None without torchrun."""
    error_file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not error_file:
        return None
    return str(Path(error_file).parents[2])
