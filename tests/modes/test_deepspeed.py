"""DeepSpeed: its configuration follows from ours, every launcher works, every stage leaves a plain
checkpoint.

python -m pytest tests/modes/test_deepspeed.py -m "slow or not slow"
"""

import json
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from app.config.schema import Config, DeepSpeedConfig, TrainConfig
from app.errors import InputError
from app.modes import deepspeed, load_mode
from app.modes.deepspeed import deepspeed_config
from tests.modes.launched import run

TRAIN = TrainConfig(batch_size=32, accumulation_steps=2, max_grad_norm=0.5, learning_rate=1e-3)
CONFIG = Config(train=TRAIN, deepspeed=DeepSpeedConfig(stage=2))
installed = pytest.mark.skipif(
    load_mode("deepspeed").unavailable_reason() is not None, reason="DeepSpeed is not installed"
)


def merged(tmp_path: Path, found: object, config: Config = CONFIG) -> dict:
    """Return the configuration with a user's JSON file merged in."""
    path = tmp_path / "ds.json"
    path.write_text(found if isinstance(found, str) else json.dumps(found))
    return deepspeed_config(replace(config, deepspeed=replace(config.deepspeed, config=str(path))), 2)


def test_the_configuration_follows_from_ours():
    found = deepspeed_config(CONFIG, 2)
    assert found["train_micro_batch_size_per_gpu"] == 8
    assert found["gradient_accumulation_steps"] == 2
    assert found["gradient_clipping"] == 0.5
    assert found["zero_optimization"] == {"stage": 2}
    assert "train_batch_size" not in found, "it need not come out even over the processes"
    # Left out, DeepSpeed would clip at 1.0.
    assert deepspeed_config(Config(train=TrainConfig(max_grad_norm=0)), 1)["gradient_clipping"] == 0


def test_a_users_file_is_merged_in(tmp_path):
    users = {
        "train_batch_size": "auto",
        "gradient_clipping": "auto",
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 1000},
        "wall_clock_breakdown": True,
    }
    found = merged(tmp_path, users)
    assert found["zero_optimization"] == {"stage": 2, "reduce_bucket_size": 1000}
    assert found["wall_clock_breakdown"] is True
    assert found["gradient_clipping"] == 0.5
    assert "train_batch_size" not in found


@pytest.mark.parametrize(
    ("users", "said"),
    [
        ({"train_batch_size": 64}, r"train_batch_size is 64, but it follows from the settings"),
        ({"zero_optimization": {"stage": 3}}, r"zero_optimization.stage is 3, but it follows from the sett"),
        ({"gradient_clipping": 1.0}, r"gradient_clipping is 1.0, but it follows from the settings"),
        ({"bf16": {"enabled": True}}, r"bf16 is .*, but it follows from the settings"),
        ({"optimizer": {"params": {"lr": 0.1}}}, r"optimizer is .*, but it follows from the settings"),
        ({"scheduler": {"type": "WarmupLR"}}, r"scheduler is .*, but it follows from the settings"),
        ({"fp16": {"loss_scale": 128}}, r"fp16 is .*, but it follows from the settings"),
        ("[1]", r"must be mappings"),
        ("{", r"not valid JSON"),
    ],
)
def test_contradictions_are_refused(tmp_path, users, said):
    with pytest.raises(InputError, match=said):
        merged(tmp_path, users)


def test_a_file_that_is_not_there():
    with pytest.raises(InputError, match=r"nowhere.json cannot be read"):
        deepspeed_config(replace(CONFIG, deepspeed=DeepSpeedConfig(config="nowhere.json")), 1)


def test_without_the_package_one_line_says_how_to_install_it(monkeypatch):
    def not_there(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(deepspeed, "version", not_there)
    assert "pip install -r requirements/deepspeed.txt" in deepspeed.DeepSpeed.unavailable_reason()


@installed
@pytest.mark.slow
def test_its_own_launcher_stage_3_and_a_plain_checkpoint(tmp_path, capsys):
    from transformers import pipeline

    from tests.verbs import predict

    command = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_accelerators=2", "run_deepspeed.py"]
    done = run(command, tmp_path, "--deepspeed.stage", "3")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("Report on test") == 1
    assert "2 process(es)" in done.stderr + done.stdout
    assert predict(["--checkpoint", str(tmp_path / "run"), "今天真开心"]) == 0
    label = pipeline("text-classification", model=str(tmp_path / "run"))("今天真开心")[0]["label"]
    assert label in capsys.readouterr().out
