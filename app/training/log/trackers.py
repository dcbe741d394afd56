"""Services that follow a run beside TensorBoard, by accelerate's trackers; none can end the run."""

import json
import logging
import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from accelerate import tracking

from ...config.schema import OutputConfig
from ...errors import InputError, first_line, nearest
from ...runtime.disk import write_json
from ...runtime.telemetry import turn_off_telemetry
from .tensorboard import TENSORBOARD

logger = logging.getLogger(__name__)
PROJECT = "chinese-text-classification"
# In the run folder: the id of the run in each service, so that a resumed run continues it
IDS = "trackers.json"
WITH_REQUIREMENTS = ("mlflow", "wandb", "swanlab")
# accelerate's own logger raises an error where accelerate does not train.
tracking.logger = logging.getLogger(tracking.__name__)


def check_trackers(config: OutputConfig) -> None:
    """Raise InputError for an unknown tracker, and for one whose library is not installed."""
    known = list(tracking.LOGGER_TYPE_TO_CLASS)
    for name in config.trackers:
        if name not in known:
            near = nearest(name, known)
            raise InputError(f"output.trackers must be names out of {', '.join(known)}, found '{name}'{near}")
        if find_spec(name) is None:
            package = f"-r requirements/{name}.txt" if name in WITH_REQUIREMENTS else name
            raise InputError(
                f"output.trackers {name} needs a library: pip install {package}, or leave it out"
            )


class Trackers:
    """The trackers of a run, which get its settings by their dotted names. One that fails is left out."""

    def __init__(self, config: OutputConfig, folder: Path, settings: dict[str, Any]) -> None:
        self.folder, self.settings = folder, settings
        self.open: dict[str, tracking.GeneralTracker] = {}
        for name in dict.fromkeys(config.trackers):
            if name == TENSORBOARD:
                continue
            self._guard(name, partial(self._start, name))

    def add(self, group: str, values: dict[str, float], step: int) -> None:
        """Add a point at `step` to the curve `group/name` of each value."""
        points = {f"{group}/{name}": float(value) for name, value in values.items()}
        for name, tracker in [*self.open.items()]:
            self._guard(name, partial(tracker.log, points, step))

    def close(self) -> None:
        """End the run in each service."""
        for name, tracker in [*self.open.items()]:
            self._guard(name, tracker.finish)

    def _start(self, name: str) -> None:
        turn_off_telemetry()
        if name == "mlflow":
            # A folder is enough for one machine; MLflow keeps reading it, and asks for the second variable.
            os.environ.setdefault("MLFLOW_TRACKING_URI", "mlruns")
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        path, run_name = self.folder / IDS, self.folder.resolve().name
        ids = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        known = ids.get(name)
        resumed = {"id": known or uuid4().hex[:16], "resume": "allow"}
        options = {
            "mlflow": {"run_name": run_name, "run_id": known},
            "wandb": {"name": run_name, "settings": {"silent": True}, **resumed},
            "swanlab": {"experiment_name": run_name, **resumed},
        }
        # accelerate asks its own state which process is the main one: this one is.
        kind = tracking.LOGGER_TYPE_TO_CLASS[name]
        kind = type(kind.__name__, (kind,), {"main_process_only": False})
        tracker = kind(PROJECT, **options.get(name, {}))
        tracker.start()
        self.open[name] = tracker
        if known is None:
            tracker.store_init_configuration(self.settings)
        if name in options:
            own = tracker.active_run.info.run_id if name == "mlflow" else resumed["id"]
            write_json(path, ids | {name: own})

    def _guard(self, name: str, call: Callable[[], Any]) -> None:
        """Call; a tracker that fails gets no more calls."""
        try:
            call()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - of any library
            self.open.pop(name, None)
            logger.warning(
                "The tracker %s is left out from here on: %s: %s. The training is not affected.",
                *(name, type(error).__name__, first_line(error)),
            )
