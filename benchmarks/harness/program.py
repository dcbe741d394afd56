"""A process for each program, and rounds in which one after the other runs.

Taking turns (A B C, A B C, ...) spreads the noise of the machine evenly over them, and ratios are taken
within a round.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Self

from app.errors import TrainingError, say

PRODUCTS, COPIES = "matrix_products", "copies"


class ProgramFailed(TrainingError):
    """A program's process ended; the message has the last line of its log."""


class Program:
    """The process of one program; a context manager that ends it. `details` is its own description.

    `main` is "module:function" in `benchmarks`, called with `job` and a meter; a job has a `device`.
    """

    def __init__(self, name: str, main: str, job: Any, folder: Path) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(main, job, theirs, self.log))
        self.process.start()
        theirs.close()
        try:
            self.details = self._answer()
        except BaseException:
            self.__exit__()
            raise

    def run(self, steps: int, untimed: int = 0, outcomes: bool = False) -> dict:
        """Let it make `steps` steps, after `untimed` ones, and return its answer; with `outcomes`, each
        step's are in it. Raises ProgramFailed where its process has ended."""
        with suppress(OSError):
            self.connection.send({"steps": steps, "untimed": untimed, "outcomes": outcomes})
        return self._answer()

    def _answer(self) -> dict:
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
        if self.process.exitcode == -signal.SIGKILL:
            raise ProgramFailed(f"{self.name} was killed; was the machine out of memory?")
        raise ProgramFailed(f"{self.name} ended with status {self.process.exitcode}: {last_line(self.log)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: Any) -> None:
        self.connection.close()
        self.process.join(timeout=20)
        self.process.kill()
        self.process.join()


def _serve(main: str, job: Any, connection: Connection, log: Path) -> None:
    """Answer commands until the connection is closed, as it also is when the parent is gone."""
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    # Imports torch, which --help does without
    from .meter import Finished, Meter

    with suppress(Finished):
        resolve_name(f"benchmarks.{main}")(job, Meter(connection.recv, connection.send, job.device))


def last_line(log: Path) -> str:
    """Return the last line of a log that says something."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "(it said nothing)"


def run_rounds(
    jobs: dict[str, tuple[str, Any]],
    shapes: Any,
    folder: Path,
    rounds: int,
    steps: dict[str, int],
    untimed: int = 0,
    warmup: int = 0,
) -> Iterator[dict[str, dict]]:
    """Start a program for each of `jobs` (see `Program`) and let them run in turn, each for `untimed` steps
    and then its `steps`; yield each round's answers, with the programs' descriptions, and under `PRODUCTS`
    the rates of matrix products of `shapes`, and of copies."""
    with ExitStack() as stack:
        products = stack.enter_context(Program(PRODUCTS, "harness.matrix_products:main", shapes, folder))
        programs = []
        for name, job in jobs.items():
            programs.append(stack.enter_context(Program(name, *job, folder)))
            if warmup:
                programs[-1].run(warmup)
            say(f"{name}: ready, {programs[-1].details}")
        for number in range(1, rounds + 1):
            answers = {PRODUCTS: products.run(1, outcomes=True)["outcomes"][0]}
            for program in programs:
                answer = program.run(steps[program.name], untimed)
                rate = answer["rows"] / answer["seconds"]
                say(f"round {number}, {program.name}: {answer['seconds']:.2f} s, {rate:.1f} rows/s")
                answers[program.name] = program.details | answer
            yield answers
