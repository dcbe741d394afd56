"""MLflow: a server (MLFLOW_TRACKING_URI), or else the folder mlruns."""

import os
import time

from ....runtime.telemetry import turn_off_telemetry
from .tracker import TrackedRun, Tracker

STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
# That MLflow takes at once, and characters of one
MAX_PARAMETERS, LONGEST = 100, 500


class MLflow(Tracker):
    """Curves as metrics, settings as parameters; `output.project` is the experiment."""

    def __init__(self, run: TrackedRun, run_id: str | None) -> None:
        # A folder is enough for the curves of one machine; MLflow keeps reading it, and asks for this.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        turn_off_telemetry()
        from mlflow import MlflowClient

        self.client = MlflowClient(None if "MLFLOW_TRACKING_URI" in os.environ else "mlruns")
        if run_id is not None:
            self.run_id = run_id
            self.client.update_run(run_id, status="RUNNING")
            return
        experiment = self.client.get_experiment_by_name(run.project)
        experiment_id = experiment.experiment_id if experiment else self.client.create_experiment(run.project)
        self.run_id = self.client.create_run(experiment_id, run_name=run.name).info.run_id
        self.add_settings(run.settings)

    def add_settings(self, settings: dict) -> None:
        """Log the settings of the run."""
        from mlflow.entities import Param

        parameters = [Param(name, str(value)[:LONGEST]) for name, value in settings.items()]
        for start in range(0, len(parameters), MAX_PARAMETERS):
            self.client.log_batch(self.run_id, params=parameters[start : start + MAX_PARAMETERS])

    def add(self, values: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self.client.log_batch(
            self.run_id, metrics=[Metric(name, value, now, step) for name, value in values.items()]
        )

    def close(self, status: str) -> None:
        self.client.set_terminated(self.run_id, STATUS[status])
