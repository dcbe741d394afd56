"""The curves of a run in other programs, by accelerate's trackers (TensorBoard and services). A tracker that
fails is left out, and the run goes on."""

import logging
import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accelerate import tracking

from ..checkpoints.run_history import flat_settings
from ..config.schema import Config, OutputConfig
from ..errors import InputError, first_line

logger = logging.getLogger(__name__)
PROJECT = "chinese-text-classification"
TENSORBOARD = "tensorboard"
# The argument by which a service gets the name of a run
NAME_ARGUMENTS = {"mlflow": "run_name", "wandb": "name", "swanlab": "experiment_name"}
# accelerate's own logger raises an error where accelerate does not train.
tracking.logger = logging.getLogger(tracking.__name__)


def check_trackers(config: OutputConfig) -> None:
    """Raise InputError unless accelerate knows each tracker, and its library is installed."""
    for name in config.trackers:
        if name not in tracking.LOGGER_TYPE_TO_CLASS:
            raise InputError(
                f"output.trackers: the installed version of accelerate does not know {name}; leave it out, "
                "or: pip install --upgrade accelerate"
            )
        if find_spec(name) is None:
            raise InputError(
                f"output.trackers: the library of {name} is not installed; leave it out, or: pip install "
                f"{name}"
            )


class Trackers:
    """The trackers that the settings name, for the run in `folder`. Its first step is the one after
    `first_step`."""

    def __init__(self, folder: Path, config: Config, first_step: int) -> None:
        self.folder = folder
        self.config = config
        self.first_step = first_step
        self.running: dict[str, tracking.GeneralTracker] = {}

    def start(self) -> None:
        for name in dict.fromkeys(self.config.output.trackers):
            self.guard(name, partial(self.start_tracker, name))

    def log(self, points: dict[str, float], step: int) -> None:
        for name, tracker in list(self.running.items()):
            self.guard(name, partial(tracker.log, points, step))

    def finish(self) -> None:
        """End all trackers, the last first."""
        for name in reversed(list(self.running)):
            self.guard(name, self.running[name].finish)

    def start_tracker(self, name: str) -> None:
        """Start a tracker. All but TensorBoard get the settings too, by their dotted names."""
        if name == TENSORBOARD:
            self.rename_event_files()
        if name == "mlflow":
            # A folder is enough for one machine; MLflow keeps reading it, and asks for the second variable.
            os.environ.setdefault("MLFLOW_TRACKING_URI", "mlruns")
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        tracker_class = tracking.LOGGER_TYPE_TO_CLASS[name]
        # accelerate asks its own state which process is the main one: this one is.
        tracker_class = type(tracker_class.__name__, (tracker_class,), {"main_process_only": False})
        project = TENSORBOARD if name == TENSORBOARD else PROJECT
        tracker = tracker_class(project, **self.tracker_options(name))
        tracker.start()
        self.running[name] = tracker
        if name != TENSORBOARD:
            settings = flat_settings(self.config.to_dict())
            given_settings = {key: value for key, value in settings.items() if value is not None}
            tracker.store_init_configuration(given_settings)

    def tracker_options(self, name: str) -> dict[str, Any]:
        """Return the arguments that name the run. TensorBoard replaces what its files have after the first
        step of a resumed run."""
        if name == TENSORBOARD:
            return {"logging_dir": self.folder, "purge_step": self.first_step + 1}
        if name in NAME_ARGUMENTS:
            return {NAME_ARGUMENTS[name]: self.folder.resolve().name}
        return {}

    def rename_event_files(self) -> None:
        """Number the files of earlier starts. TensorBoard reads files in the order of their names, which
        begin with the time, and a clock may be set back."""
        paths = sorted((self.folder / TENSORBOARD).glob("events.out.tfevents.*"))
        for number, path in enumerate(paths):
            ending = path.name.split(".", 4)[4]
            path.rename(path.with_name(f"events.out.tfevents.{number:010d}.{ending}"))

    def guard(self, name: str, call: Callable[[], Any]) -> None:
        """Make a call of a tracker; where it fails, warn and leave the tracker out from here on."""
        try:
            call()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - of any library
            self.running.pop(name, None)
            logger.warning(
                "The tracker %s is left out from here on: %s: %s. The training is not affected.",
                name,
                type(error).__name__,
                first_line(error),
            )
