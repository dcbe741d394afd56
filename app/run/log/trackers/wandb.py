"""Weights & Biases; WANDB_MODE=offline writes into a folder, for `wandb sync`."""

from uuid import uuid4

from .tracker import TrackedRun, Tracker


class WeightsAndBiases(Tracker):
    """Curves and settings of a run; a resumed one continues it, offline in a second folder of the run."""

    def __init__(self, run: TrackedRun, run_id: str | None) -> None:
        import wandb

        self.run_id = run_id or uuid4().hex[:16]
        self.run = wandb.init(
            project=run.project,
            name=run.name,
            id=self.run_id,
            resume="allow",
            config=run.settings,
            settings={"silent": True},
        )
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")

    def add(self, values: dict[str, float], step: int) -> None:
        # Not its own step: points of train and dev at the same step come one after the other.
        self.run.log({**values, "step": step})

    def close(self, status: str) -> None:
        self.run.finish(exit_code=0 if status == "finished" else 1)
