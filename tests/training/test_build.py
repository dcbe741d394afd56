"""What a run is put together from: python -m pytest tests/training/test_build.py"""

import pytest

from app.config.schema import Config, DataConfig, ModelConfig, TrainConfig
from app.model.pretrained import save_model
from app.modes.single import Single
from app.training.build import build, set_up
from tests.tiny import WORDS, tiny_model, tiny_tokenizer, write_tiny


@pytest.mark.parametrize(
    ("batch_size", "pairs", "rate", "warmup"),
    [(32, False, 2e-4, 0.3), (1, False, 1e-4, 0.1), (32, True, 5e-5, 0.1)],
)
def test_learning_rates_follow_from_the_model_and_the_data(tmp_path, batch_size, pairs, rate, warmup):
    model, tokenizer = tiny_model().model, tiny_tokenizer(characters="".join(WORDS.values()) + "0123456789")
    model.resize_token_embeddings(len(tokenizer))
    (tmp_path / "checkpoint").mkdir()
    save_model(tmp_path / "checkpoint", model, model.state_dict(), tokenizer)
    # 168 to train on
    path = write_tiny(tmp_path / "rows.tsv", rows_per_label=70, pairs=pairs)
    columns = {"text_pair_column": "other"} if pairs else {}
    data = DataConfig(train=str(path), cache_dir=str(tmp_path / "cache"), max_length=16, **columns)
    train = TrainConfig(device="cpu", threads=1, batch_size=batch_size)
    config = Config(data, ModelConfig(name=str(tmp_path / "checkpoint")), train)
    with Single(config) as mode:
        components = build(mode.config, mode)
        assert components.plan.steps_per_epoch == -(-168 // batch_size)
        set_up(mode, components)
        found = components.config.train
        assert mode.config == components.config
        chosen = (found.learning_rate, found.head_learning_rate, found.warmup)
        assert chosen == (rate, pytest.approx(10 * rate), warmup)
        rates = {group["lr"] * group.get("lr_scale", 1.0) for group in mode.optimizer.param_groups}
        assert sorted(rates) == pytest.approx([rate, 10 * rate])
