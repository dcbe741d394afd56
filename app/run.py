"""What every entry script calls: read the command line, then run one job in one mode.

`python -m app.run MODE [settings]` does what run_<mode>.py does, from any folder, and `python -m app train`
starts the processes too.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import re
import signal
import sys
import time
from typing import TYPE_CHECKING

from .errors import InputError, TrainingError, first_line
from .program import training_program
from .runtime.processes import ended_by_ctrl_c, exit_status, launched_rank, refuse
from .words import use_language

if TYPE_CHECKING:
    from .config.schema import Config

# gloo and NCCL say this after a rank has ended.
LOST_RANK = "(closed|reset) by peer|Broken pipe|remote process exited"
LINGER_SECONDS = 2.5  # DeepSpeed's launcher checks its processes once a second, the others more often


def main(name: str, description: str, argv: list[str] | None = None, program: str | None = None) -> int:
    """Run one job in the mode `name` from the command line, whose help calls it `program`; return the exit
    status, see `work`; 130 after Ctrl-C. torch is imported after the command line has been read, so that
    `--help` and errors are quick."""

    def start() -> int:
        from .config.command_line import load_config

        arguments = argv
        if arguments is None:
            arguments = sys.argv[1:]
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--nprocs", type=int)
        options, words = parser.parse_known_args(arguments)
        config = load_config(words, program or f"python run_{name}.py", description)
        return run_in_mode(name, config, options.nprocs)

    return exit_status(start)


def run_in_mode(name: str, config: Config, nprocs: int | None = None) -> int:
    """Run one job in the mode `name`, as a process that the launcher of the mode has started, or in `nprocs`
    processes that this one spawns; return the exit status, see `work`."""
    from .modes import load_mode

    with ended_by_ctrl_c():
        mode = load_mode(name)
        from .modes.launch import launch
    if nprocs is not None and (nprocs < 1 or mode.launcher != "spawn"):
        spawning = " ".join(training_program("mp"))
        raise InputError(f"--nprocs, from 1 on, is for {spawning}; --help names other launchers")
    reason = mode.unavailable_reason()
    if reason:
        raise InputError(reason)
    return launch(mode.launcher, work, (config, name), nprocs)


def work(config: Config, name: str) -> int:
    """Run one job in this process, which is one rank of the mode; return the exit status.

    It is 0; 2 for bad input; 1 for a run that could not continue; 128 + the number of the signal that stopped
    it.
    """
    with ended_by_ctrl_c():
        from .training.open_run import open_run
    from .checkpoints.ranks import check_same_precision
    from .checkpoints.resume import with_saved_choices
    from .modes import check_world_size, load_mode
    from .modes.signals import Stopped
    from .training.log import start_logging

    use_language(config.output.language)
    try:
        start_logging(launched_rank() == 0)
        for note in config.notes:
            logging.getLogger(__name__).info(note)
        with load_mode(name)(with_saved_choices(config)) as mode:
            check_world_size(name, mode.group.world_size)
            if mode.group.rank != launched_rank():
                # Not every launcher of MPI gives the rank in the environment
                start_logging(mode.group.rank == 0)
            check_same_precision(mode.group, config)
            with open_run(name, mode, ends_process=True) as run:
                return run.run()
    except InputError as error:
        return refuse(error, 2)
    except TrainingError as error:
        return refuse(error, 1)
    except (RuntimeError, MemoryError, OSError) as error:
        message = message_of_failure(error)
        if message is None:
            raise
        return refuse(message, 1)
    except (Stopped, KeyboardInterrupt) as stop:
        # After the training, or before it, when there is nothing to save
        return 128 + getattr(stop, "number", signal.SIGINT)


def message_of_failure(error: Exception) -> str | None:
    """Return what people read of an error of the machine, or None for an error of the program. For a lost
    connection it waits first."""
    from .runtime.disk import OF_THE_SYSTEM
    from .training.out_of_memory import is_out_of_memory

    if is_out_of_memory(error):
        remedy = "end other programs, lower train.micro_batch_tokens, or choose a smaller model"
        return f"memory ran out: {first_line(error)}; {remedy}, and resume with --resume auto"
    if isinstance(error, OSError):
        if error.errno in OF_THE_SYSTEM:
            return f"a file cannot be read or written: {error}; start again with --resume auto"
        return None
    if re.search(LOST_RANK, str(error)):
        # Launchers report the first process that ends: let that be the rank that failed, not this one
        time.sleep(LINGER_SECONDS)
        return "the connection to another rank is lost, because it has ended; see its message"
    return None


def main_of_module(argv: list[str]) -> int:
    """Run one job from the command line of `python -m app.run`, which begins with the mode."""
    from .modes import MODES

    program = f"python -m {__name__} MODE"
    description = f"The mode is one of {', '.join(MODES)}."
    if argv and argv[0] in MODES:
        return main(argv[0], description, argv[1:], program)
    if argv and argv[0] in ("-h", "--help"):
        return main("single", description, argv, program)
    mode = argv[0] if argv else "nothing"
    return refuse(f"{program}: a mode must come first ({', '.join(MODES)}), found {mode}", 2)


if __name__ == "__main__":
    # Processes that are started import `work` by the name of this module.
    module = importlib.import_module(__spec__.name)
    sys.exit(module.main_of_module(sys.argv[1:]))
