"""Learning rates that follow from the model and the data: python -m pytest tests/model/test_recipe.py"""

import logging
from dataclasses import replace

import pytest
from transformers import BertConfig, ElectraConfig

from app.config.schema import Config, DataConfig, ModelConfig, TrainConfig
from app.errors import InputError
from app.model import recipe
from app.model.recipe import with_recipe


@pytest.fixture
def checkpoint(tmp_path):
    """Write the configuration of a checkpoint of some width, and return settings that name its folder."""

    def write(config) -> Config:
        config.save_pretrained(tmp_path / "checkpoint")
        return Config(
            model=ModelConfig(name=str(tmp_path / "checkpoint")), data=DataConfig(cache_dir=str(tmp_path))
        )

    return write


@pytest.mark.parametrize(
    ("width", "rate", "head_rate", "warmup"),
    [
        *((312, 2e-4, 2e-3, 0.3), (384, 2e-4, 2e-3, 0.3)),
        *((512, 5e-5, None, 0.1), (768, 3e-5, None, 0.1), (1024, 2e-5, None, 0.1)),
    ],
)
def test_a_pretrained_model_is_trained_by_its_width(checkpoint, caplog, width, rate, head_rate, warmup):
    caplog.set_level(logging.INFO)
    train = with_recipe(
        checkpoint(BertConfig(hidden_size=width, num_attention_heads=2)), steps_per_epoch=60, has_pairs=False
    ).train
    assert train.learning_rate == rate
    assert train.head_learning_rate == (None if head_rate is None else pytest.approx(head_rate))
    assert (train.warmup, train.schedule) == (warmup, "linear")
    (line,) = caplog.messages
    assert f"train.learning_rate {rate:g}" in line
    assert f"train.warmup {warmup:g}" in line


def test_settings_win(checkpoint):
    config = checkpoint(ElectraConfig(hidden_size=64, num_attention_heads=2))
    train = TrainConfig(learning_rate=1e-5)
    found = with_recipe(replace(config, train=train), steps_per_epoch=60, has_pairs=False).train
    assert (found.learning_rate, found.head_learning_rate) == (1e-5, pytest.approx(1e-4))
    found = with_recipe(
        replace(config, train=TrainConfig(head_learning_rate=0.5, warmup=0)),
        steps_per_epoch=60,
        has_pairs=False,
    ).train
    assert (found.head_learning_rate, found.warmup) == (0.5, 0)


@pytest.mark.parametrize(
    ("steps_per_epoch", "has_pairs", "rate", "warmup"),
    [
        (1, False, 2e-4, 0.3),
        (150, False, 2e-4, 0.3),
        (151, False, 1e-4, 0.1),
        (10**6, False, 1e-4, 0.1),
        (1, True, 5e-5, 0.1),
        (151, True, 5e-5, 0.1),
    ],
)
def test_a_narrow_model_has_lower_rates_for_many_steps_and_for_pairs(
    checkpoint, caplog, steps_per_epoch, has_pairs, rate, warmup
):
    caplog.set_level(logging.INFO)
    train = with_recipe(
        checkpoint(BertConfig(hidden_size=384, num_attention_heads=2)), steps_per_epoch, has_pairs
    ).train
    assert (train.learning_rate, train.head_learning_rate, train.warmup) == (
        rate,
        pytest.approx(10 * rate),
        warmup,
    )
    rows = "pairs of texts" if has_pairs else "single texts"
    assert f"Settings chosen for you: train.learning_rate {rate:g}, " in caplog.text
    assert f"{rows}, {steps_per_epoch:,} steps in an epoch)" in caplog.text
    wide = with_recipe(
        checkpoint(BertConfig(hidden_size=768, num_attention_heads=2)), steps_per_epoch, has_pairs
    ).train
    assert wide.learning_rate == 3e-5


@pytest.mark.parametrize(("steps_per_epoch", "warmup"), [(150, 0.3), (151, 0.1)])
def test_a_head_that_is_fitted_has_the_rate_of_its_encoder(checkpoint, steps_per_epoch, warmup):
    config = checkpoint(BertConfig(hidden_size=384, num_attention_heads=2))
    config = replace(config, model=replace(config.model, head="linear"))
    train = with_recipe(config, steps_per_epoch, False).train
    assert (train.learning_rate, train.head_learning_rate, train.warmup) == (5e-5, None, warmup)


@pytest.mark.parametrize("is_installed", [True, False])
def test_random_weights_have_a_recipe_too_and_say_why_where_the_package_is_missing(
    monkeypatch, caplog, is_installed
):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(recipe, "e5_file", lambda: "file" if is_installed else None)
    train = with_recipe(Config(), steps_per_epoch=60, has_pairs=False).train
    assert (train.learning_rate, train.head_learning_rate, train.warmup) == (3e-5, None, 0.1)
    assert caplog.messages == [] if is_installed else "pip install --upgrade" in caplog.text


def test_a_checkpoint_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(InputError, match="a checkpoint must have config.json, found nothing"):
        with_recipe(Config(model=ModelConfig(name=str(tmp_path))), steps_per_epoch=60, has_pairs=False)


@pytest.mark.parametrize(("width", "rate", "head_rate"), [(384, 6e-4, 2e-3), (768, 3e-4, None)])
def test_lora_takes_a_multiple_of_the_rate_by_the_width(checkpoint, width, rate, head_rate):
    config = checkpoint(BertConfig(hidden_size=width, num_attention_heads=2))
    config = replace(config, model=replace(config.model, lora_rank=8))
    train = with_recipe(config, steps_per_epoch=60, has_pairs=False).train
    assert train.learning_rate == pytest.approx(rate)
    assert train.head_learning_rate == (head_rate and pytest.approx(head_rate))
