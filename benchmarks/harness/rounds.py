"""A process for each program, and rounds in which one after the other runs.

Taking turns (A B C, A B C, ...) spreads the noise of the machine evenly over them, and ratios are taken
within a round.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class ProgramFailed(RuntimeError):
    """A program's process ended; the message has its last line and where its log is."""


class Program:
    """The process of one program; a context manager that ends it. `details` is its own description, sent at
    the start."""

    def __init__(self, name: str, module: str, job: Any, folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        job_file = folder / f"{name}.json"
        job_type = f"{type(job).__module__}:{type(job).__name__}"
        job_file.write_text(json.dumps({"job": job_type, **asdict(job)}), encoding="utf-8")
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.harness.worker", module, str(job_file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "TOKENIZERS_PARALLELISM": "true"},
            )
        try:
            self.details = self._answer()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *failure: Any) -> None:
        self.close()

    def run(self, steps: int, untimed: int = 0, outcomes: bool = False) -> dict:
        """Let it make `steps` steps, after `untimed` ones, and return its answer; with `outcomes`, each
        step's are in it.

        Raises ProgramFailed where its process has ended.
        """
        command = {"steps": steps, "untimed": untimed, "outcomes": outcomes}
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None
        return self._answer()

    def _answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise self._failure()
        return json.loads(line)

    def _failure(self) -> ProgramFailed:
        status = self.process.wait()
        if status == -signal.SIGKILL:
            return ProgramFailed(f"{self.name} was killed; was the machine out of memory?")
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return ProgramFailed(
            f"{self.name} ended with status {status}: {lines[-1] if lines else '(it said nothing)'}"
        )

    def close(self) -> None:
        """End the process: it leaves when its input ends, and is killed where it does not."""
        # It has ended by itself
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def run_round(
    programs: list[Program], steps: dict[str, int], untimed: int, say: Callable[[str], None]
) -> dict[str, dict]:
    """Let the programs run in turn, each for `untimed` steps and then its `steps`; return the answer of each
    by name."""
    answers = {}
    for program in programs:
        answers[program.name] = answer = program.run(steps[program.name], untimed)
        rate = answer["rows"] / answer["seconds"]
        say(f"{program.name}: {answer['steps']} steps in {answer['seconds']:.2f} s, {rate:.1f} rows/s")
    return answers
