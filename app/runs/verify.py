"""Whether two modes do the same job: each trains a few steps in its own processes, and what comes out is
compared with what one process computes."""

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from ..config.schema import Config
from ..errors import InputError, say
from ..modes import MODES, load_mode
from ..modes.launch import launch_command
from ..program import MODULE
from ..runtime.devices import choose_device, has_memory, is_cuda
from ..runtime.processes import child_environment
from .child_process import last_error
from .series import plan_mode
from .verify_comparison import QUANTITIES, Comparison, check_control, compare
from .verify_result import CONTROL, OTHER_MASKS

# On CUDA the kernels for attention draw their own masks, but in float64, for which there are none
WITHOUT_DROPOUT = ["--model.dropout", "0"]
# What is compared besides modes: one process whose masks of dropout are not those of the rows
CONTROL_OF_MASKS = "other masks"


@dataclass(frozen=True)
class Worker:
    """The processes of a mode, which do trainings of `steps` steps with these settings."""

    mode: str
    processes: int
    trainings: list[str]
    steps: int
    settings: list[str]

    def run(self, folder: Path) -> str:
        """Do the trainings, with a line of progress; the results are written into the new folder. Return
        what went wrong, or nothing."""
        unit = "process" if self.processes == 1 else "processes"
        say(f"{self.mode}, {self.processes} {unit}, {', '.join(self.trainings)} ...")
        folder.mkdir()
        words = ["--worker", self.mode, str(folder), *self.trainings, "--steps", str(self.steps)]
        program = ["-m", MODULE, "verify", *words, *self.settings]
        command = launch_command(load_mode(self.mode).launcher, program, self.processes)
        ended = subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=False)
        if ended.returncode == 0:
            return ""
        error = last_error(ended.stderr.splitlines())
        return error or f"it ended with status {ended.returncode}: {ended.stderr[-300:]}"


def verify_modes(
    names: list[str], processes: int | None, precision: str, steps: int, settings: list[str], config: Config
) -> list[Comparison]:
    """Compare modes, where they can run here, with one process. `processes` are those of parallel modes, else
    one for each accelerator; float64 is fp32 where the device or a mode does not have it. Raises InputError
    for an unknown mode, and where the job does not run in one process."""
    device = choose_device(config.train.device)
    # MPS and Ascend have none
    has_float64 = is_cuda(device) or not has_memory(device)
    planned = []
    # Single is first, because the others are compared with it
    for name in dict.fromkeys(["single", *sorted(names)]):
        num_processes, unavailable = plan_mode(name, processes, config.train.device)
        mode_precision = precision
        if precision == "float64" and not (has_float64 and load_mode(name).has_float64):
            mode_precision = "fp32"
        planned.append(Comparison(name, num_processes, mode_precision, unavailable))
    if is_cuda(device) and any(comparison.precision != "float64" for comparison in planned):
        settings = without_dropout(settings)
    else:
        planned.insert(1, Comparison(CONTROL_OF_MASKS, 1, planned[0].precision))
    return run_comparisons(planned, steps, settings, settings)


def without_dropout(settings: list[str]) -> list[str]:
    """Return settings that switch dropout off, and say so."""
    say("dropout is off: kernels for attention on CUDA draw their own masks")
    return [*settings, *WITHOUT_DROPOUT]


def verify_device(name: str, steps: int, settings: list[str]) -> list[Comparison]:
    """Compare a device with the CPU, in fp32 and one process. Raises InputError for a device that is not
    there, and where the job does not run on the CPU."""
    device = str(choose_device(name))
    if is_cuda(choose_device(name)):
        settings = without_dropout(settings)
    on_cpu = [*settings, "--train.device", "cpu"]
    on_device = [*settings, "--train.device", device]
    return run_comparisons([Comparison(device, 1, "fp32")], steps, on_cpu, on_device)


def run_comparisons(
    planned: list[Comparison], steps: int, one_process: list[str], settings: list[str]
) -> list[Comparison]:
    """Train in one process with the settings `one_process`, then with `settings` what each comparison plans.
    Return the finished comparisons; raises InputError where the job does not run in one process."""
    trainings = set()
    for comparison in planned:
        if comparison.reason:
            continue
        trainings.add(comparison.precision)
        if comparison.precision != "float64":
            trainings.add(f"{comparison.precision}{CONTROL}")
    with TemporaryDirectory() as temporary:
        reference = Path(temporary, "reference")
        failure = Worker("single", 1, sorted(trainings), steps, one_process).run(reference)
        if failure:
            raise InputError(f"the job does not run in one process: {failure}")
        finished = []
        for comparison in planned:
            if comparison.reason:
                finished.append(replace(comparison, precision="-", verdict="not run"))
            elif comparison.mode == "single":
                finished.append(replace(comparison, precision="-", verdict="reference"))
            else:
                folder = Path(temporary, comparison.mode)
                finished.append(run_comparison(comparison, steps, settings, reference, folder))
    return finished


def run_comparison(
    comparison: Comparison, steps: int, settings: list[str], reference: Path, folder: Path
) -> Comparison:
    """Train what a comparison plans, with its results in `folder`, and compare them with those in the folder
    `reference`."""
    if comparison.mode == CONTROL_OF_MASKS:
        training = f"{comparison.precision}{OTHER_MASKS}"
        failure = Worker("single", 1, [training], steps, settings).run(folder)
        if failure:
            return replace(comparison, reason=failure)
        return check_control(comparison, reference, folder)
    # What is no mode is the name of a device
    mode = comparison.mode if comparison.mode in MODES else "single"
    worker = Worker(mode, comparison.processes, [comparison.precision], steps, settings)
    failure = worker.run(folder)
    if failure:
        return replace(comparison, reason=failure)
    return compare(comparison, reference, folder)


def comparison_table(comparisons: list[Comparison]) -> str:
    """Return the comparisons as a table, a line for each."""
    rows = []
    for comparison in comparisons:
        row = {
            "mode": comparison.mode,
            "processes": comparison.processes,
            "precision": comparison.precision,
        }
        for quantity in QUANTITIES:
            row[quantity] = "-"
            if comparison.differences is not None:
                row[quantity] = f"{comparison.differences[quantity]:.1e}"
        row["/ control"] = "-"
        if comparison.control_ratio is not None:
            row["/ control"] = f"{comparison.control_ratio:.1f}"
        row["rows"] = comparison.rows
        row[""] = comparison.verdict
        row["why"] = comparison.reason
        rows.append(row)
    return pd.DataFrame(rows).to_string(index=False)
