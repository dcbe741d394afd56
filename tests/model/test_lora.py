"""LoRA by peft: what is trained, and the run folder: python -m pytest tests/model/test_lora.py"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from app.model.trained_weights import add_lora, load_adapter
from app.run import main
from tests.ranks import settings
from tests.tiny import tiny_model, write_tiny

peft = pytest.importorskip("peft")
DECODER = {"model__architecture": "qwen3", "model__config__head_dim": 8}
DECODER |= {"model__config__num_key_value_heads": 1}
LEARNS = {"model__config__initializer_range": 0.2, "train__learning_rate": 0.03, "train__epochs": 3}


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra", "qwen3", "modernbert", "deberta-v2"])
def test_all_linear_layers_of_the_encoder_get_factors_and_the_head_is_trained(architecture):
    plain, model = tiny_model(architecture).model, tiny_model(architecture)
    add_lora(model, 4)
    encoder = f"{plain.base_model_prefix}."
    head = {name for name, _ in plain.named_parameters() if not name.startswith(encoder) or "pooler" in name}
    linear = [name for name, module in plain.named_modules() if isinstance(module, torch.nn.Linear)]
    linear = [name for name in linear if name.startswith(encoder) and "pooler" not in name]
    assert len(linear) >= 8
    assert head
    factors = {f"{name}.lora_{factor}.default.weight" for name in linear for factor in "AB"}
    names = {name for name, value in model.named_parameters() if value.requires_grad}
    assert {name.removeprefix("model.") for name in names} == factors | head


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("lora")
    path = write_tiny(folder / "rows.tsv", 40)
    return ["--data.train", str(path), "--data.cache_dir", str(folder / "cache")]


@pytest.fixture(scope="module")
def base(data, tmp_path_factory) -> Path:
    """A checkpoint to begin with: a run without LoRA."""
    folder = tmp_path_factory.mktemp("base") / "run"
    assert main("single", "", settings(data, folder, **LEARNS | {"train__epochs": 1})) == 0
    return folder


def train(data: list[str], folder: Path, **changes) -> int:
    return main("single", "", settings(data, folder, **LEARNS | {"model__lora_rank": 4} | changes))


@pytest.mark.parametrize("changes", [{}, DECODER], ids=["bert", "qwen3"])
def test_the_run_folder_is_an_ordinary_checkpoint_beside_its_adapter(data, tmp_path, changes):
    assert train(data, tmp_path, **changes) == 0
    names = set(load_file(tmp_path / "model.safetensors"))
    assert not [name for name in names if "lora" in name or "base_layer" in name]
    files = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert files == {"adapter_config.json", "adapter_model.safetensors"}
    rows = [line.split(",") for line in (tmp_path / "predictions.csv").read_text().splitlines()[1:]]
    predicted = pipeline("text-classification", str(tmp_path))([row[2] for row in rows])
    assert [row[4] for row in rows] == [answer["label"] for answer in predicted]
    assert len({row[4] for row in rows}) > 1


def test_states_and_adapter_have_what_is_trained_only_and_peft_reads_it(data, base, tmp_path):
    assert train(data, tmp_path, model__name=base) == 0
    (state,) = (tmp_path / "state").iterdir()
    weights, optimizer = (load_file(state / f"{name}.safetensors") for name in ("weights", "optimizer"))
    adapter = load_adapter(tmp_path / "adapter" / "adapter_model.safetensors")
    of_optimizer = {name.removeprefix("state.").rpartition(".")[0] for name in optimizer}
    assert weights.keys() == adapter.keys() == of_optimizer
    before, after = (load_file(path / "model.safetensors") for path in (base, tmp_path))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    layers = {f"{name.partition('.lora_')[0]}.weight" for name in adapter if "lora_" in name}
    assert changed == layers | {name for name in adapter if "lora_" not in name}
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(base)
    tokens = AutoTokenizer.from_pretrained(tmp_path)(["好棒美", "差坏"], padding=True, return_tensors="pt")
    plain, merged = map(AutoModelForSequenceClassification.from_pretrained, (base, tmp_path))
    adapted = peft.PeftModel.from_pretrained(plain, tmp_path / "adapter").eval()
    with torch.no_grad():
        torch.testing.assert_close(adapted(**tokens).logits, merged(**tokens).logits)


FROZEN = {"model__lora_rank": 0, "model__freeze": "encoder"}


@pytest.mark.parametrize("part", [{}, FROZEN], ids=["lora", "freeze"])
def test_a_run_resumes_with_the_weights_it_began_with_only(data, base, tmp_path, capfd, part):
    """Its training states do not have them."""
    copy, folder = shutil.copytree(base, tmp_path / "base"), tmp_path / "run"
    assert train(data, folder, **part, model__name=copy, train__epochs=1) == 0
    (state,) = (folder / "state").iterdir()
    assert not any("embeddings" in name for name in load_file(state / "weights.safetensors"))
    weights = load_file(copy / "model.safetensors")
    name = "bert.embeddings.word_embeddings.weight"
    save_file(weights | {name: weights[name] + 1}, copy / "model.safetensors", metadata={"format": "pt"})
    assert train(data, folder, **part, model__name=copy, train__epochs=2) == 2
    assert "the weights that are not trained (model.name, train.seed) was" in capfd.readouterr().err
