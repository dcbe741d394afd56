"""The tokenizer: that of a pretrained model, or WordPiece of a vocabulary file or of the training text."""

from __future__ import annotations

import json
import string
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.schema import ModelConfig
from ..errors import InputError, excerpt
from ..words import _
from .cache import build_once, content_key, file_digest
from .dataset import Dataset
from .encoding import check_tokenizer, guarded
from .table import Table

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# The name that the tokens of a prefix have in tokenizer.json
PREFIX = "prefix"
# Rows whose characters are collected at once
CHUNK = 8192
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PUNCTUATION = "，。、；：？！…—·～﹏“”‘’（）《》〈〉【】「」『』〔〕￥％＃＠＆＊＋－＝＜＞／＼｜＂＇．￣"


def load_tokenizer(config: ModelConfig, dataset: Dataset, max_length: int, cache_dir: str):
    """Return the fast tokenizer of the configured model; its `model_max_length` is `max_length` tokens.
    Raises InputError for a checkpoint without a fast tokenizer or a vocabulary file that is not one."""
    if config.name is not None:
        tokenizer = _checkpoint_tokenizer(config)
    else:
        from transformers import BertTokenizer

        tokens = (
            _read_vocabulary(Path(config.vocab_file))
            if config.vocab_file
            else _character_vocabulary(dataset, cache_dir)
        )
        tokenizer = BertTokenizer({token: index for index, token in enumerate(tokens)}, do_lower_case=True)
    if config.prefix is not None:
        set_prefix(tokenizer.backend_tokenizer, config.prefix)
        tokenizer = _kept_as_it_is(tokenizer)
    tokenizer.model_max_length = max_length
    return tokenizer


def set_prefix(tokenizer: Tokenizer, words: str) -> None:
    """Let the tokens of `words` be before those of each text, after a first special token, in place of an
    earlier prefix; of a pair, before the first text.

    They are part of the tokenizer, as special tokens are: each window of a text has them, and no text is cut
    for less than all of them. Raises InputError for a tokenizer whose special tokens are no template.
    """
    from tokenizers import Tokenizer, models
    from tokenizers.processors import TemplateProcessing

    definition = json.loads(tokenizer.to_str())["post_processor"] or {}
    if not isinstance(tokenizer.post_processor, TemplateProcessing):
        raise InputError(
            "model.prefix needs a tokenizer with the post-processor TemplateProcessing, found "
            f"{definition.get('type', 'none')}; leave it out"
        )
    encoding = tokenizer.encode(words, add_special_tokens=False)
    definition["special_tokens"].pop(PREFIX, None)
    own = {"SpecialToken": {"id": PREFIX, "type_id": 0}}
    for template in ("single", "pair"):
        pieces = [piece for piece in definition[template] if piece != own]
        if encoding.ids:
            first = next(at for at, piece in enumerate(pieces) if "Sequence" in piece)
            pieces.insert(first, own)
        definition[template] = pieces
    if encoding.ids:
        definition["special_tokens"][PREFIX] = {"id": PREFIX, "ids": encoding.ids, "tokens": encoding.tokens}
    other = json.loads(Tokenizer(models.WordLevel()).to_str()) | {"post_processor": definition}
    tokenizer.post_processor = Tokenizer.from_str(json.dumps(other)).post_processor


def _kept_as_it_is(tokenizer):
    """Return a tokenizer that is loaded as it was saved, of a general class; that of BERT is rebuilt."""
    from transformers import PreTrainedTokenizerFast

    names = ("model_input_names", "padding_side", "truncation_side")
    kept = {name: getattr(tokenizer, name) for name in names} | tokenizer.special_tokens_map
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, **kept)


def _checkpoint_tokenizer(config: ModelConfig):
    from transformers import AutoTokenizer

    rule = _("model.name must be a hub name or a folder with a tokenizer; '{name}' could not be loaded")
    with guarded(rule.format(name=config.name)):
        tokenizer = AutoTokenizer.from_pretrained(config.name, trust_remote_code=False)
    if not tokenizer.is_fast:
        raise InputError(
            f"a fast tokenizer is needed; {config.name} has only {type(tokenizer).__name__}; save it with a "
            "tokenizer.json"
        )
    if tokenizer.unk_token is not None and tokenizer.unk_token not in tokenizer.get_vocab():
        raise InputError(
            f"the tokenizer of {config.name} names the unknown token {excerpt(tokenizer.unk_token)}, which "
            "its vocabulary does not have; correct its tokenizer_config.json, or choose another model"
        )
    check_tokenizer(tokenizer.backend_tokenizer, config.name)
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        # Decoders are often without one, and transformers then takes no batches
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _read_vocabulary(path: Path) -> list[str]:
    try:
        # Only \n ends a line: BERT's own vocabulary has U+2028 and the like among its tokens.
        text = path.read_bytes().decode("utf-8-sig") if path.is_file() else None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"model.vocab_file: {path} cannot be read as a text file in UTF-8: {error}"
        ) from error
    if text is None:
        raise InputError(
            f"model.vocab_file: there is no file {path}; a text file with one token a line is needed"
        )
    tokens = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    missing = [token for token in SPECIAL_TOKENS if token not in tokens]
    [(repeated, count)] = Counter(tokens).most_common(1)
    if count > 1:
        raise InputError(
            f"{path}: each line of a vocabulary must be a different token; {excerpt(repeated)} is there more "
            "than once"
        )
    if missing:
        raise InputError(
            f"{path}: a WordPiece vocabulary needs the tokens {' '.join(SPECIAL_TOKENS)}; missing: "
            f"{' '.join(missing)}"
        )
    return tokens


def _character_vocabulary(dataset: Dataset, cache_dir: str) -> list[str]:
    table, rows_file = dataset.splits["train"].table, dataset.vocabulary_rows
    key = content_key("vocabulary", 2, table.key, file_digest(rows_file))
    folder = Path(cache_dir) / f"vocabulary-{key}"
    build_once(folder, build_vocabulary, table, rows_file, num_bytes=table.num_bytes)
    return (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")


def build_vocabulary(folder: Path, table: Table, rows_file: Path) -> None:
    """Write `vocab.txt`: GB 2312, ASCII, punctuation, and the characters of the normalized training rows."""
    import numpy as np
    from tokenizers.normalizers import BertNormalizer

    raw_characters: set[str] = set()
    rows = np.sort(np.load(rows_file))
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        raw_characters.update(*table.joined_texts(chunk))
    # This normalizer looks at one character at a time, so it is enough to give it each character once.
    normalized = set(BertNormalizer().normalize_str("".join(sorted(raw_characters))))
    ascii_characters = string.ascii_lowercase + string.digits + string.punctuation
    extra = sorted(c for c in normalized if not c.isspace())
    characters = dict.fromkeys([*ascii_characters, *PUNCTUATION, *gb2312_characters(), *extra])
    # WordPiece splits a run of letters, kana or emoji into its first character and "##" continuations.
    continued = [
        f"##{c}"
        for c in characters
        if c in ascii_characters and c.isalnum() or c in normalized and not is_split_off(c)
    ]
    (folder / "vocab.txt").write_text(
        "\n".join([*SPECIAL_TOKENS, *characters, *dict.fromkeys(continued)]), encoding="utf-8"
    )


def is_split_off(character: str) -> bool:
    """Return whether BERT's tokenizer makes a word of it alone, as of Chinese characters and punctuation."""
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    # The normalizer puts spaces around Chinese characters, the pre-tokenizer splits at spaces and
    # punctuation.
    text = BertNormalizer().normalize_str(f"a{character}a")
    return len(BertPreTokenizer().pre_tokenize_str(text)) > 1


def gb2312_characters() -> list[str]:
    """Return the 6,763 Chinese characters of GB 2312, in its order (rows 16 to 87)."""
    codes = (bytes([high, low]) for high in range(0xB0, 0xF8) for low in range(0xA1, 0xFF))
    return [c for code in codes if (c := code.decode("gb2312", errors="ignore"))]
