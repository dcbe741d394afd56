"""The stopwatch inside a program: it waits for a command, times the steps that it asks for, answers, and
waits again.

A program is a plain script that calls `start` once, before its first step, and `step_done` after each.
Between two commands it waits inside `step_done`, so being measured changes nothing else in the script.
"""

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from app.runtime.memory import trim_heap


class Finished(Exception):
    """There are no more commands; raised out of `start` or `step_done`, through whatever library calls
    them."""


@dataclass(frozen=True)
class Sizes:
    """What went through the model: `tokens` counts padding too, `real_tokens` does not."""

    rows: int
    real_tokens: int
    tokens: int


class Meter:
    """Times the steps of one program.

    `receive` returns the next command, and raises EOFError after the last: `steps` to time, `untimed` steps
    to make before them, `outcomes`, whether each step's is wanted. `send` takes an answer.
    """

    def __init__(self, receive: Callable[[], dict], send: Callable[[dict], None], device: str) -> None:
        self.receive, self.send, self.device = receive, send, device

    def start(self, take_sizes: Callable[[int], Sizes], **details: Any) -> None:
        """Answer with `details` of the program, then wait for the first command.

        `take_sizes(steps)` returns the sizes of the steps since its last call; it is not timed.
        """
        self.take_sizes = take_sizes
        self._send_and_wait(details | {"threads": torch.get_num_threads()})

    def step_done(self, outcome: Any = None) -> None:
        """Count one step; `outcome` is its loss, a tensor without dimensions, or any value, or a function
        that returns it, which is called only where the outcome is asked for."""
        self.steps += 1
        if self.steps == 0:
            self.take_sizes(self.command["untimed"])
            self._start_watch()
        elif self.steps > 0 and self.command["outcomes"]:
            value = outcome() if callable(outcome) else outcome
            self.outcomes.append(float(value) if isinstance(value, torch.Tensor) else value)
        if self.steps == self.command["steps"]:
            synchronise(self.device)
            seconds = time.perf_counter() - self.started
            sizes = asdict(self.take_sizes(self.steps))
            answer = {"seconds": seconds, "steps": self.steps, **sizes, "outcomes": self.outcomes}
            self._send_and_wait(answer | {"peak_memory": peak_memory(self.device)})

    def _send_and_wait(self, message: dict) -> None:
        # A program that runs may need the memory that a waiting one keeps. Before the answer: after it,
        # another one starts.
        trim_heap()
        if self.device != "cpu":
            torch.accelerator.empty_cache()
        self.send(message)
        try:
            self.command = self.receive()
        except EOFError:
            raise Finished from None
        self.steps, self.outcomes = -self.command["untimed"], []
        self._start_watch()

    def _start_watch(self) -> None:
        synchronise(self.device)
        self.started = time.perf_counter()


def synchronise(device: str) -> None:
    """Wait until an accelerator has done what it was given."""
    if device != "cpu":
        torch.accelerator.synchronize()


def peak_memory(device: str) -> int:
    """Return the most bytes that this process has had: of a CUDA device where it uses one, else resident."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    # Unlike ru_maxrss, this does not count what the parent held when it started this process
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


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
