"""The services that follow a run beside TensorBoard, one file each; libraries are imported on demand."""

from importlib import import_module
from importlib.util import find_spec

from ....config.schema import OutputConfig
from ....errors import InputError, nearest
from .background import BackgroundTracker
from .tracker import TrackedRun

TRACKERS = {
    "mlflow": ".mlflow:MLflow",
    "wandb": ".wandb:WeightsAndBiases",
    "swanlab": ".swanlab:SwanLab",
}


def check_trackers(config: OutputConfig) -> None:
    """Raise InputError for an unknown tracker, and for one whose library is not installed."""
    for name in config.trackers:
        if name not in TRACKERS:
            raise InputError(
                f"output.trackers must be names out of {', '.join(TRACKERS)}, found "
                f"'{name}'{nearest(name, TRACKERS)}"
            )
        if find_spec(name) is None:
            raise InputError(
                f"output.trackers {name} needs a library: pip install -r requirements/{name}.txt, or leave "
                "it out"
            )


def open_trackers(config: OutputConfig, run: TrackedRun) -> list[BackgroundTracker]:
    """Return the trackers of a run; each works in a thread, and none can end the run."""
    trackers = []
    for name in dict.fromkeys(config.trackers):
        module, tracker = TRACKERS[name].split(":")

        def start(module: str = module, tracker: str = tracker):
            return getattr(import_module(module, __package__), tracker)

        trackers.append(BackgroundTracker(name, start, run))
    return trackers
