"""The tokenizer of a model: that of a pretrained one, or WordPiece of a vocabulary; and a prefix that it puts
before each text."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from ..config.schema import ModelConfig
from ..data.dataset import Dataset
from ..data.tokens import PROBES, REMEDY, definition_of, tokenizer_errors
from ..errors import InputError, excerpt, listed
from .checkpoint import checkpoint_config
from .checkpoint_folder import read_config
from .vocabulary import read_vocabulary, training_vocabulary

PREFIX = "prefix"  # the name that the tokens of a prefix have in tokenizer.json


def check_tokenizer(tokenizer: Tokenizer, source: str) -> None:
    """Raise InputError, which names `source`, unless a tokenizer encodes any text and pair as tokens of its
    vocabulary. Turns its padding and truncation off."""
    with tokenizer_errors(f"the tokenizer of {source} cannot encode a text"):
        definition_of(tokenizer)
        ids_of_probes = [tokenizer.encode(*texts).ids for texts in PROBES]
        known_ids = set(tokenizer.get_vocab().values())
    all_ids = list(chain.from_iterable(ids_of_probes))
    if not ids_of_probes[0] or not known_ids.issuperset(all_ids):
        problem = f"must make tokens of its vocabulary, found the ids {listed(all_ids) or 'none'}"
        raise InputError(f"the tokenizer of {source} {problem} for {excerpt(*PROBES[0])}; {REMEDY}")


def load_tokenizer(config: ModelConfig, dataset: Dataset, max_length: int, cache_dir: str):
    """Return the fast tokenizer of the configured model; its `model_max_length` is `max_length` tokens.
    Raises InputError for a checkpoint without a fast tokenizer or a vocabulary file that is not one."""
    from transformers import BertTokenizer

    if not config.has_random_weights:
        tokenizer = load_checkpoint_tokenizer(config.name)
    else:
        if config.vocab_file:
            path = Path(config.vocab_file)
        else:
            path = training_vocabulary(dataset, cache_dir)
        vocabulary = {token: token_id for token_id, token in enumerate(read_vocabulary(path))}
        tokenizer = BertTokenizer(vocabulary, do_lower_case=True)
    if config.prefix is not None:
        tokenizer = with_prefix(tokenizer, config.prefix)
    tokenizer.model_max_length = max_length
    return tokenizer


def load_checkpoint_tokenizer(name: str):
    """Return the fast tokenizer of a hub name or folder; raises InputError where there is none that works."""
    from transformers import AutoTokenizer, BertTokenizer

    folder = Path(name)
    rule = f"model.name must be a hub name or a folder with a tokenizer; '{name}' could not be loaded"
    with tokenizer_errors(rule):
        config = None
        if read_config(folder) is not None:
            # transformers would not read the file itself
            config = checkpoint_config(folder)
        try:
            tokenizer = AutoTokenizer.from_pretrained(name, config=config, trust_remote_code=False)
            if tokenizer.get_vocab().keys() <= set(tokenizer.all_special_tokens):
                # transformers makes an empty one where its class finds no file
                raise ValueError("there is no file with its vocabulary, such as tokenizer.json or vocab.txt")
        except ValueError:
            # The files of early BERT models, and others with a BERT vocabulary, do not name their tokenizer
            if (folder / "tokenizer.json").exists() or not (folder / "vocab.txt").is_file():
                raise
            tokenizer = BertTokenizer.from_pretrained(folder)
    if not tokenizer.is_fast:
        raise InputError(
            f"a fast tokenizer is needed; {name} has only {type(tokenizer).__name__}; save it with a "
            "tokenizer.json"
        )
    check_tokenizer(tokenizer.backend_tokenizer, name)
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        # Decoders often have no token for padding, and transformers then takes no batches
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def with_prefix(tokenizer, words: str):
    """Return a tokenizer of transformers that puts `words` before each text, see `set_prefix`."""
    from transformers import PreTrainedTokenizerFast

    set_prefix(tokenizer.backend_tokenizer, words)
    # The general class is loaded as it was saved; BERT's own would be rebuilt, without the prefix
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        model_input_names=tokenizer.model_input_names,
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        **tokenizer.special_tokens_map,
    )


def set_prefix(tokenizer: Tokenizer, words: str) -> None:
    """Put the tokens of `words` before those of each text, or of the first text of a pair, in place of an
    earlier prefix. The tokenizer adds them as it adds special tokens, so each window of a text has them.
    Raises InputError for a tokenizer whose special tokens are not added by a template."""
    processor = tokenizer.post_processor
    if not isinstance(processor, TemplateProcessing):
        processor_name = type(processor).__name__ if processor else "none"
        raise InputError(
            f"model.prefix needs the post-processor TemplateProcessing, found {processor_name}; leave it out"
        )
    template = json.loads(processor.__getstate__())
    encoding = tokenizer.encode(words, add_special_tokens=False)
    prefix_piece = {"SpecialToken": {"id": PREFIX, "type_id": 0}}
    for name in ("single", "pair"):
        pieces = [piece for piece in template[name] if piece != prefix_piece]
        if encoding.ids:
            first_text = next(index for index, piece in enumerate(pieces) if "Sequence" in piece)
            pieces.insert(first_text, prefix_piece)
        template[name] = pieces
    template["special_tokens"].pop(PREFIX, None)
    if encoding.ids:
        template["special_tokens"][PREFIX] = {"id": PREFIX, "ids": encoding.ids, "tokens": encoding.tokens}
    processor.__setstate__(json.dumps(template).encode())
    tokenizer.post_processor = processor
