"""The configuration of DeepSpeed follows from ours: python -m pytest tests/modes/test_deepspeed.py"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.config.schema import Config, DeepSpeedConfig, TrainConfig
from app.errors import InputError
from app.modes import deepspeed
from app.modes.deepspeed import deepspeed_config

TRAIN = TrainConfig(batch_size=32, accumulation_steps=2, max_grad_norm=0.5, learning_rate=1e-3)
CONFIG = Config(train=TRAIN, deepspeed=DeepSpeedConfig(stage=2))


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
        ({"train_batch_size": 64, "fp16": {}}, "train_batch_size, fp16 must follow from the settings"),
        ({"zero_optimization": {"stage": 3}}, "zero_optimization.stage must follow from the settings"),
        ({"gradient_clipping": 1.0}, "gradient_clipping must follow from the settings"),
        ({"optimizer": {"params": {"lr": 0.1}}}, "optimizer must follow from the settings"),
        ("[1]", r"must be mappings"),
        ("{", r"not valid JSON"),
    ],
)
def test_contradictions_are_refused(tmp_path, users, said):
    with pytest.raises(InputError, match=said):
        merged(tmp_path, users)


def test_a_file_that_is_not_there():
    with pytest.raises(InputError, match=r"nowhere.json: cannot be read"):
        deepspeed_config(replace(CONFIG, deepspeed=DeepSpeedConfig(config="nowhere.json")), 1)


def test_without_the_package_one_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(deepspeed, "find_spec", lambda name: None)
    assert "pip install -r requirements/deepspeed.txt" in deepspeed.DeepSpeed.unavailable_reason()
