"""The stopwatch inside a program: it waits for a command, times the steps that it asks for, answers, and
waits again.

A program is a plain script that calls `start` once, before its first step, and `step_done` after each.
Between two commands it waits inside `step_done`, so being measured changes nothing else in the script.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from app.runtime.machine import trim_heap
from benchmarks.harness.machine import peak_memory


class Finished(Exception):
    """There are no more commands; raised out of `start` or `step_done`,
    through whatever library calls them."""


@dataclass(frozen=True)
class Sizes:
    """What went through the model: `tokens` counts padding too, `real_tokens` does not."""

    rows: int
    real_tokens: int
    tokens: int


class Meter:
    """Times the steps of one program.

    `receive` returns the next command, or None at the end: `steps` to time, `untimed` steps to make before
    them (none: 0), `outcomes`, whether each step's is wanted (none: no). `send` takes an answer. `device` is
    one of torch; memory is measured on cpu and cuda.
    """

    def __init__(self, receive: Callable[[], dict | None], send: Callable[[dict], None], device: str) -> None:
        self.receive = receive
        self.send = send
        self.is_cpu, self.is_cuda = device == "cpu", device.startswith("cuda")

    def start(self, take_sizes: Callable[[int], Sizes], **details: Any) -> None:
        """Answer with `details` of the program, then wait for the first command.

        `take_sizes(steps)` returns the sizes of the steps since its last call; the measured time is without
        it.
        """
        self.take_sizes = take_sizes
        self._send_and_wait(details | {"threads": torch.get_num_threads()})

    def step_done(self, outcome: Any = None) -> None:
        """Count one step; `outcome` is its loss, a tensor without dimensions, or any value that JSON can
        hold.

        It may be a function that returns it, which is called only where the outcome is asked for.
        """
        if self.untimed:
            self.untimed -= 1
            if not self.untimed:
                self.take_sizes(self.command["untimed"])
                self._start_watch()
            return
        self.steps += 1
        if self.command.get("outcomes"):
            self.outcomes.append(outcome() if callable(outcome) else outcome)
        if self.steps == self.command["steps"]:
            self._send_and_wait(self._answer())

    def _answer(self) -> dict:
        self._synchronise()
        seconds, cpu_seconds = time.perf_counter() - self.started, time.process_time() - self.cpu_started
        answer = {"seconds": seconds, "cpu_seconds": cpu_seconds, "steps": self.steps}
        answer |= asdict(self.take_sizes(self.steps)) | {"peak_memory": self._peak_memory()}
        if self.command.get("outcomes"):
            answer["outcomes"] = [
                float(value) if isinstance(value, torch.Tensor) else value for value in self.outcomes
            ]
        return answer

    def _send_and_wait(self, message: dict) -> None:
        # A program that runs may need the memory that a waiting one keeps. Before the answer: after it,
        # another one starts.
        trim_heap()
        self.send(message)
        command = self.receive()
        if command is None:
            raise Finished
        self.command = command
        self.steps, self.untimed = 0, command.get("untimed", 0)
        self.outcomes: list[Any] = []
        self._start_watch()

    def _start_watch(self) -> None:
        self._synchronise()
        self.cpu_started, self.started = time.process_time(), time.perf_counter()

    def _synchronise(self) -> None:
        if not self.is_cpu:
            torch.accelerator.synchronize()

    def _peak_memory(self) -> int:
        return torch.cuda.max_memory_allocated() if self.is_cuda else peak_memory()


def count_inputs(model: torch.nn.Module) -> Callable[[int], Sizes]:
    """Return a `take_sizes` for a transformers model, which looks at the `attention_mask` of each call from
    now on."""
    masks: list[torch.Tensor] = []
    model.register_forward_pre_hook(
        lambda _, args, inputs: masks.append(inputs["attention_mask"]), with_kwargs=True
    )

    def take_sizes(steps: int) -> Sizes:
        sums = [(len(mask), int(mask.sum()), mask.numel()) for mask in masks]
        masks.clear()
        return Sizes(*map(sum, zip(*sums, strict=True)))

    return take_sizes
