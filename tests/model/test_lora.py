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
    plain = tiny_model(architecture).model
    model = tiny_model(architecture)
    add_lora(model, 4)
    encoder = plain.base_model_prefix
    linear = {
        name
        for name, module in plain.named_modules()
        if isinstance(module, torch.nn.Linear) and name.startswith(encoder) and "pooler" not in name
    }
    head = {
        name for name, _ in plain.named_parameters() if not name.startswith(f"{encoder}.") or "pooler" in name
    }
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


def train(data: list[str], folder: Path, **changes) -> tuple[int, Path]:
    changes = LEARNS | {"model__lora_rank": 4} | changes
    return main("single", "", settings(data, folder, **changes)), folder


@pytest.mark.parametrize("changes", [{}, DECODER], ids=["bert", "qwen3"])
def test_the_run_folder_is_an_ordinary_checkpoint_beside_its_adapter(data, tmp_path, changes):
    status, folder = train(data, tmp_path / "run", **changes)
    assert status == 0
    names = set(load_file(folder / "model.safetensors"))
    assert not [name for name in names if "lora" in name or "base_layer" in name]
    assert {path.name for path in (folder / "adapter").iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    rows = [line.split(",") for line in (folder / "predictions.csv").read_text().splitlines()[1:]]
    predicted = pipeline("text-classification", str(folder))([row[2] for row in rows])
    assert [row[4] for row in rows] == [answer["label"] for answer in predicted]
    assert len({row[4] for row in rows}) > 1


def test_states_and_adapter_have_what_is_trained_only(data, base, tmp_path):
    status, folder = train(data, tmp_path / "run", model__name=base)
    assert status == 0
    (state,) = (folder / "state").iterdir()
    weights, optimizer = (load_file(state / f"{name}.safetensors") for name in ("weights", "optimizer"))
    adapter = load_adapter(folder / "adapter" / "adapter_model.safetensors")
    assert weights.keys() == adapter.keys() == {name.rpartition("/")[0] for name in optimizer}
    before, after = (load_file(path / "model.safetensors") for path in (base, folder))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    layers = {name.partition(".lora_")[0] for name in adapter if "lora_" in name}
    assert changed == {f"{layer}.weight" for layer in layers} | {
        name for name in adapter if "lora_" not in name
    }


def test_peft_reads_the_adapter_on_the_model_that_it_began_with(data, base, tmp_path):
    _, folder = train(data, tmp_path / "run", model__name=base)
    assert json.loads((folder / "adapter" / "adapter_config.json").read_text())[
        "base_model_name_or_path"
    ] == str(base)
    tokens = AutoTokenizer.from_pretrained(folder)(["好棒美", "差坏"], padding=True, return_tensors="pt")
    adapted = peft.PeftModel.from_pretrained(
        AutoModelForSequenceClassification.from_pretrained(base), folder / "adapter"
    )
    merged = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        torch.testing.assert_close(adapted.eval()(**tokens).logits, merged(**tokens).logits)


@pytest.mark.parametrize("part", ["lora", "freeze"])
def test_a_run_resumes_with_the_weights_it_began_with_only(data, base, tmp_path, capfd, part):
    """Its training states do not have them."""
    copy = shutil.copytree(base, tmp_path / "base")
    changes = {} if part == "lora" else {"model__lora_rank": 0, "model__freeze": 1}
    changes |= {"model__name": copy}
    status, folder = train(data, tmp_path / "run", **changes, train__epochs=1)
    assert status == 0
    (state,) = (folder / "state").iterdir()
    weights, optimizer = (load_file(state / f"{name}.safetensors") for name in ("weights", "optimizer"))
    assert weights.keys() == {name.rpartition("/")[0] for name in optimizer}
    assert not any("embeddings" in name for name in weights)
    weights = load_file(copy / "model.safetensors")
    name = "bert.embeddings.word_embeddings.weight"
    save_file(weights | {name: weights[name] + 1}, copy / "model.safetensors", metadata={"format": "pt"})
    assert train(data, folder, **changes, train__epochs=2)[0] == 2
    assert "the weights that are not trained (model.name, train.seed) was" in capfd.readouterr().err
