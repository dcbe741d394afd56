"""What follows a run, TensorBoard and services, by accelerate's trackers; none can end the run."""

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

from ..checkpoints.run_folder import cannot_write, check_is_there
from ..config.schema import OutputConfig
from ..errors import InputError, first_line, nearest
from ..runtime.disk import write_json

logger = logging.getLogger(__name__)
PROJECT, TENSORBOARD = "chinese-text-classification", "tensorboard"
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
    """The trackers of a run, which get its `settings`, nested in groups, by their dotted names. One that
    fails is left out. What TensorBoard's files have after `first_step`, of a resumed run, is replaced."""

    def __init__(self, config: OutputConfig, folder: Path, settings: dict, first_step: int = 0) -> None:
        self.folder, self.first_step = folder, first_step
        pairs = {f"{group}.{key}": one for group, of in settings.items() for key, one in of.items()}
        self.settings = {name: value for name, value in pairs.items() if value is not None}
        self.open: dict[str, tracking.GeneralTracker] = {}
        for name in dict.fromkeys(config.trackers):
            self._guard(name, partial(self._start, name))

    def add(self, group: str, values: dict[str, float], step: int, to_services: bool = False) -> None:
        """Add a point at `step` to the curve `group/name` of each value, where it goes `to_services` not in
        TensorBoard. Raises TrainingError without a run folder, for TensorBoard fails in its own thread."""
        if TENSORBOARD in self.open:
            try:
                check_is_there(self.folder)
            except OSError as error:
                self.open.pop(TENSORBOARD)
                raise cannot_write("TensorBoard's file", error, self.folder) from error
        points = {f"{group}/{name}": float(value) for name, value in values.items()}
        for name, tracker in [*self.open.items()]:
            if not (to_services and name == TENSORBOARD):
                self._guard(name, partial(tracker.log, points, step))

    def close(self) -> None:
        """End the run in each service."""
        for name, tracker in [*self.open.items()]:
            self._guard(name, tracker.finish)

    def _start(self, name: str) -> None:
        if name == "mlflow":
            # A folder is enough for one machine; MLflow keeps reading it, and asks for the second variable.
            os.environ.setdefault("MLFLOW_TRACKING_URI", "mlruns")
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        if name == TENSORBOARD:
            # It reads files in the order of their names, which begin with the time. The clock may have been
            # set back meanwhile.
            for number, path in enumerate(sorted((self.folder / TENSORBOARD).glob("events.out.tfevents.*"))):
                ending = path.name.split(".", 4)[4]
                path.rename(path.with_name(f"events.out.tfevents.{number:010d}.{ending}"))
        path, run_name = self.folder / IDS, self.folder.resolve().name
        ids = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        known = ids.get(name)
        resumed = {"id": known or uuid4().hex[:16], "resume": "allow"}
        options = {
            TENSORBOARD: {"logging_dir": self.folder, "purge_step": self.first_step + 1},
            "mlflow": {"run_name": run_name, "run_id": known},
            "wandb": {"name": run_name, "settings": {"silent": True}, **resumed},
            "swanlab": {"experiment_name": run_name, **resumed},
        }
        # accelerate asks its own state which process is the main one: this one is.
        kind = tracking.LOGGER_TYPE_TO_CLASS[name]
        kind = type(kind.__name__, (kind,), {"main_process_only": False})
        tracker = kind(TENSORBOARD if name == TENSORBOARD else PROJECT, **options.get(name, {}))
        tracker.start()
        self.open[name] = tracker
        if name == TENSORBOARD:
            return
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
