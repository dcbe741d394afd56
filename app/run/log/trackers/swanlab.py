"""SwanLab; SWANLAB_MODE=offline writes into a folder, for `swanlab sync`."""

from uuid import uuid4

from .tracker import TrackedRun, Tracker


class SwanLab(Tracker):
    """Curves and settings of a run; a resumed one continues it."""

    def __init__(self, run: TrackedRun, run_id: str | None) -> None:
        import swanlab

        self.swanlab = swanlab
        # As long as it wants them
        self.run_id = run_id or uuid4().hex[:21]
        swanlab.init(
            project=run.project, experiment_name=run.name, id=self.run_id, resume="allow", config=run.settings
        )

    def add(self, values: dict[str, float], step: int) -> None:
        self.swanlab.log(values, step=step)

    def close(self, status: str) -> None:
        self.swanlab.finish(*([] if status == "finished" else ["crashed"]))
