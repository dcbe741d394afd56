"""Every runtime and precision that `predict` has, each as a separate program, and the pipeline in fp32."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.export.export import export
from benchmarks.harness.command import say
from benchmarks.prediction.job import PredictionJob

Programs = dict[str, tuple[str, PredictionJob]]


def runtime_programs(job: PredictionJob, folder: Path) -> Programs:
    """Return the module and the job of each program; writes the exported models to `folder`."""
    fp32 = replace(job, bf16=False)
    programs = {"pipeline": ("pipeline", fp32), "torch-fp32": ("predict", fp32)}
    if job.bf16:
        programs["torch-bf16"] = ("predict", replace(job, only="bf16"))
    for precision in ("fp32", "int8"):
        output = exported(job, folder, precision)
        programs[output.name] = ("onnx", replace(fp32, checkpoint=str(output)))
    return programs


def exported(job: PredictionJob, folder: Path, precision: str) -> Path:
    """Return the folder of the exported model, onnx-PRECISION in `folder`."""
    texts, output = folder / "texts_to_compare.txt", folder / f"onnx-{precision}"
    texts.write_text("\n".join(" ".join(text.split()) for text in job.texts), encoding="utf-8")
    # What changes is reported here, so no export is refused.
    export(Path(job.checkpoint), output, say, precision, 1.0, str(texts))
    return output


def flipped_labels(predicted: dict[str, list], peer: str) -> dict[str, int]:
    """Return how many labels of each program differ from those of `peer`."""
    return {
        name: sum(mine[0] != other[0] for mine, other in zip(rows, predicted[peer], strict=True))
        for name, rows in predicted.items()
        if name != peer
    }
