"""The masked language model: python -m pytest tests/model/test_masked_language_model.py"""

import pytest
import torch
from torch import nn
from transformers import AutoModel, AutoModelForMaskedLM

from app.batching.loader import collate
from app.config.schema import ModelConfig
from app.errors import InputError
from app.model.masked_language_model import MaskedLanguageModel, build_masked_model
from app.model.pretrained import build_model, save_model
from tests.tiny import SIZES, tiny_tokenizer, token_rows

COUNTS = torch.arange(21)


def random_model(architecture: str = "bert", **config) -> MaskedLanguageModel:
    torch.manual_seed(0)
    pad_id = 1 if "roberta" in architecture else 0
    sizes = SIZES | {"initializer_range": 0.2, "max_position_embeddings": 64} | config
    settings = ModelConfig(architecture=architecture, config=sizes, dropout=0.0)
    return build_masked_model(settings, tiny_tokenizer(pad_id), 32, COUNTS).eval()


def weights(model: MaskedLanguageModel) -> dict:
    return {name.removeprefix("model."): value for name, value in model.state_dict().items()}


@pytest.mark.parametrize("architecture", ["bert", "ernie", "roberta", "xlm-roberta", "electra", "modernbert"])
def test_packed_logits_of_masked_tokens_are_those_of_transformers(architecture, tmp_path):
    """Saved and loaded by transformers, the model computes the same for every token; ours only those that are
    asked for."""
    model = random_model(architecture)
    tokenizer = tiny_tokenizer(1 if "roberta" in architecture else 0)
    save_model(tmp_path, model.model, weights(model), tokenizer)
    plain, info = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    rows = token_rows([9, 4, 17])
    packed, padded = (collate(rows, None, model.layout(is_packed)) for is_packed in (True, False))
    places = [(0, 3), (1, 1), (1, 2), (2, 16)]
    mask = torch.zeros_like(padded["input_ids"], dtype=torch.bool)
    for row, place in places:
        mask[row, place] = True
    index = torch.tensor([int(packed["first_tokens"][row]) + place for row, place in places])
    with torch.inference_mode():
        expected = plain.eval()(**padded).logits[mask]
        torch.testing.assert_close(model(**padded, masked=mask), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model(**packed, masked=index), expected, rtol=1e-4, atol=1e-4)
        assert model(**packed, masked=index[:0]).shape == expected[:0].shape


def test_the_output_matrix_is_a_parameter_once():
    model = random_model()
    shapes = [tuple(parameter.shape) for _, parameter in model.named_parameters()]
    assert shapes.count((21, 32)) == 1
    assert shapes.count((21,)) == 1
    logits = model(**collate(token_rows([5]), None, model.layout(True)))
    logits.sum().backward()
    assert model.model.get_input_embeddings().weight.grad.norm() > 0


def test_a_checkpoint_without_a_head_gets_one_near_the_identity(tmp_path, caplog):
    torch.manual_seed(0)
    config = random_model().model.config
    encoder = AutoModel.from_config(config)
    encoder.save_pretrained(tmp_path)
    with caplog.at_level("INFO"):
        model = build_masked_model(ModelConfig(name=str(tmp_path)), tiny_tokenizer(), 32, COUNTS).eval()
    assert "has no head for masked language modelling: a new one begins from its embeddings" in caplog.text
    states = torch.randn(200, 32)
    transform = model.model.cls.predictions.transform
    with torch.inference_mode():
        scaled = nn.functional.layer_norm(states, (32,)) * transform.LayerNorm.weight
        angle = nn.functional.cosine_similarity(transform(states), scaled)
        assert angle.min() > 0.97
        logits = model(**collate(token_rows([30]), None, model.layout(True)))
    bias = model.model.cls.predictions.bias
    assert torch.allclose(bias.exp().sum(), torch.tensor(1.0))
    assert bias.argmax() == 20
    assert (logits - bias).std() < 3


def test_a_head_that_is_there_is_kept_and_a_classifier_takes_the_encoder(tmp_path):
    model = random_model()
    save_model(tmp_path, model.model, weights(model), tiny_tokenizer())
    again = build_masked_model(ModelConfig(name=str(tmp_path)), tiny_tokenizer(), 32, COUNTS)
    assert all(torch.equal(value, weights(again)[name]) for name, value in weights(model).items())
    classifier = build_model(ModelConfig(name=str(tmp_path)), tiny_tokenizer(), ["a", "b"], 32)
    layer = "bert.encoder.layer.1.output.dense.weight"
    assert torch.equal(weights(model)[layer], classifier.model.state_dict()[layer])
    # The checkpoint has none
    assert torch.equal(classifier.model.bert.pooler.dense.weight, torch.eye(32))


def test_models_that_cannot_run_packed_predict_padded(tmp_path):
    model = random_model("roformer")
    padded = collate(token_rows([6, 3]), None, model.layout(False))
    mask = torch.zeros_like(padded["input_ids"], dtype=torch.bool)
    mask[0, 2] = mask[1, 1] = True
    assert model(**padded, masked=mask).shape == (2, 21)
    assert model(**padded).shape == (2, 21)


def test_an_encoder_of_other_shapes_is_refused(tmp_path):
    model = random_model()
    save_model(tmp_path, model.model, weights(model), tiny_tokenizer())
    with pytest.raises(InputError, match="the weights of .* must be those of"):
        build_masked_model(
            ModelConfig(name=str(tmp_path), config={"hidden_size": 16}), tiny_tokenizer(), 32, COUNTS
        )
