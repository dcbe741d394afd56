"""The report of `python -m app verify --device`, and which devices compute what the CPU computes."""

from dataclasses import asdict
from pathlib import Path

import torch

from ..checkpoints.run_history import describe_start
from ..config.schema import Config
from ..config.shipped import PROGRAM
from ..data.cache import content_key
from ..runtime.devices import device_name, has_memory
from ..runtime.disk import write_json
from .modes.mode_comparison import Comparison, difference_limits

REPORT = "device_report.json"


def write_report(
    file: Path, device: torch.device, comparison: Comparison, config: Config, steps: int
) -> None:
    """Write what was compared and what came out, with versions; record in the cache a device that passed."""
    report = {
        "verdict": comparison.verdict,
        "reason": comparison.reason,
        **describe_start("single", 1, str(device)),
        "model": config.model.name or config.model.architecture,
        "steps": steps,
        "differences": comparison.differences,
        "limits": comparison.control and difference_limits(comparison.control),
        **{key: asdict(comparison)[key] for key in ("control", "rows", "expected_rows")},
    }
    write_json(file, report)
    if comparison.verdict == "PASS":
        record = passed_file(device, config.data.cache_dir)
        record.parent.mkdir(parents=True, exist_ok=True)
        write_json(record, report)


def passed_file(device: torch.device, cache_dir: str) -> Path:
    """Return the file that exists where a device of this name has passed with this version of torch."""
    key = content_key(device.type, device_name(device), torch.__version__)
    return Path(cache_dir) / "devices" / f"{key}.json"


def never_passed(device: torch.device, cache_dir: str) -> str:
    """Return a sentence, on a line of its own, where a device other than the CPU has never passed."""
    if not has_memory(device) or passed_file(device, cache_dir).exists():
        return ""
    return (
        f"\n  {device} ({device_name(device)}) has never passed {PROGRAM} verify --device {device.type} with "
        f"torch {torch.__version__}"
    )
