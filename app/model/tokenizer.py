"""The tokenizer of a model: that of a pretrained one, or WordPiece of a vocabulary file or of the training
text; and a prefix that it puts before each text."""

from __future__ import annotations

import json
import string
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from ..config.schema import ModelConfig
from ..data.cache import build_once, content_key, file_digest
from ..data.dataset import Dataset
from ..data.table import Table
from ..data.tokens import CHUNK, PROBES, REMEDY, definition_of, guarded
from ..errors import InputError, excerpt, listed
from ..words import _

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PUNCTUATION = "，。、；：？！…—·～﹏“”‘’（）《》〈〉【】「」『』〔〕￥％＃＠＆＊＋－＝＜＞／＼｜＂＇．￣"
PREFIX = "prefix"  # the name that the tokens of a prefix have in tokenizer.json


def check_tokenizer(tokenizer: Tokenizer, source: str) -> None:
    """Raise InputError, which names `source`, unless a tokenizer encodes any text and pair as tokens of its
    vocabulary. Turns its padding and truncation off."""
    with guarded(f"the tokenizer of {source} cannot encode a text"):
        definition_of(tokenizer)
        found = [tokenizer.encode(*texts).ids for texts in PROBES]
        known = set(tokenizer.get_vocab().values())
    if not found[0] or not known.issuperset(chain(*found)):
        problem = f"must make tokens of its vocabulary, found the ids {listed(chain(*found)) or 'none'}"
        raise InputError(f"the tokenizer of {source} {problem} for {excerpt(*PROBES[0])}; {REMEDY}")


def load_tokenizer(config: ModelConfig, dataset: Dataset, max_length: int, cache_dir: str):
    """Return the fast tokenizer of the configured model; its `model_max_length` is `max_length` tokens.
    Raises InputError for a checkpoint without a fast tokenizer or a vocabulary file that is not one."""
    from transformers import BertTokenizer, PreTrainedTokenizerFast

    if not config.has_random_weights:
        tokenizer = _checkpoint_tokenizer(config)
    else:
        path = Path(config.vocab_file or "")
        if not config.vocab_file:
            table, rows_file = dataset.splits["train"].table, dataset.vocabulary_rows
            key = content_key("vocabulary", 2, table.key, file_digest(rows_file))
            path = Path(cache_dir) / f"vocabulary-{key}" / "vocab.txt"
            build_once(path.parent, build_vocabulary, table, rows_file, num_bytes=table.num_bytes)
        try:
            # Only \n ends a line: BERT's own vocabulary has U+2028 and the like among its tokens
            text = path.read_bytes().decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            problem = f"{path} cannot be read as a text file in UTF-8: {error}"
            raise InputError(f"model.vocab_file: {problem}; name another one") from error
        tokens = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
        [(repeated, count)] = Counter(tokens).most_common(1)
        missing = [token for token in SPECIAL_TOKENS if token not in tokens]
        if missing or count > 1:
            rule = f"each line must be a different token, {' '.join(SPECIAL_TOKENS)} among them"
            found = f"{excerpt(repeated)} more than once" if count > 1 else f"no {' '.join(missing)}"
            raise InputError(f"{path}: {rule}; found {found}; choose another file")
        tokenizer = BertTokenizer({token: index for index, token in enumerate(tokens)}, do_lower_case=True)
    if config.prefix is not None:
        set_prefix(tokenizer.backend_tokenizer, config.prefix)
        # The general class is loaded as it was saved; BERT's own would be rebuilt, without the prefix
        names = ("model_input_names", "padding_side", "truncation_side")
        kept = {name: getattr(tokenizer, name) for name in names} | tokenizer.special_tokens_map
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, **kept)
    tokenizer.model_max_length = max_length
    return tokenizer


def set_prefix(tokenizer: Tokenizer, words: str) -> None:
    """Put the tokens of `words` before those of each text, or of the first text of a pair, in place of an
    earlier prefix. The tokenizer adds them as it adds special tokens, so each window of a text has them.
    Raises InputError for a tokenizer whose special tokens are not added by a template."""
    processor = tokenizer.post_processor
    if not isinstance(processor, TemplateProcessing):
        found = f"found {type(processor).__name__ if processor else 'none'}; leave it out"
        raise InputError(f"model.prefix needs the post-processor TemplateProcessing, {found}")
    template = json.loads(processor.__getstate__())
    encoding = tokenizer.encode(words, add_special_tokens=False)
    own = {"SpecialToken": {"id": PREFIX, "type_id": 0}}
    for name in ("single", "pair"):
        pieces = [piece for piece in template[name] if piece != own]
        first = next(at for at, piece in enumerate(pieces) if "Sequence" in piece)
        template[name] = [*pieces[:first], *([own] if encoding.ids else []), *pieces[first:]]
    template["special_tokens"].pop(PREFIX, None)
    if encoding.ids:
        template["special_tokens"][PREFIX] = {"id": PREFIX, "ids": encoding.ids, "tokens": encoding.tokens}
    processor.__setstate__(json.dumps(template).encode())
    tokenizer.post_processor = processor


def _checkpoint_tokenizer(config: ModelConfig):
    from transformers import AutoTokenizer, BertTokenizer

    name, folder = config.name, Path(config.name)
    rule = _("model.name must be a hub name or a folder with a tokenizer; '{name}' could not be loaded")
    with guarded(rule.format(name=name)):
        try:
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
            if tokenizer.get_vocab().keys() <= set(tokenizer.all_special_tokens):
                # transformers makes an empty one where its class finds no file
                raise ValueError("there is no file with its vocabulary, such as tokenizer.json or vocab.txt")
        except ValueError:
            # The files of early BERT models, and others with a BERT vocabulary, do not name their tokenizer
            if (folder / "tokenizer.json").exists() or not (folder / "vocab.txt").is_file():
                raise
            tokenizer = BertTokenizer.from_pretrained(folder)
    if not tokenizer.is_fast:
        found = f"{name} has only {type(tokenizer).__name__}"
        raise InputError(f"a fast tokenizer is needed; {found}; save it with a tokenizer.json")
    check_tokenizer(tokenizer.backend_tokenizer, name)
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        # Decoders often have no token for padding, and transformers then takes no batches
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def gb2312_characters() -> list[str]:
    """Return the 6,763 Chinese characters of GB 2312, in its order (rows 16 to 87)."""
    codes = (bytes((row, cell)) for row in range(0xB0, 0xF8) for cell in range(0xA1, 0xFF))
    return [character for code in codes if (character := code.decode("gb2312", "ignore"))]


def build_vocabulary(folder: Path, table: Table, rows_file: Path) -> None:
    """Write `vocab.txt`: special tokens, ASCII, punctuation, GB 2312, and the characters of the normalized
    training rows, whose ids `rows_file` has."""
    normalizer, splitter = BertNormalizer(), BertPreTokenizer()
    raw_characters: set[str] = set()
    rows = np.sort(np.load(rows_file))
    for start in range(0, len(rows), CHUNK):
        raw_characters.update(*table.joined_texts(rows[start : start + CHUNK]))
    # This normalizer looks at one character at a time, so it is enough to give it each character once.
    normalized = set(normalizer.normalize_str("".join(sorted(raw_characters))))
    ascii_characters = string.ascii_lowercase + string.digits + string.punctuation
    extra = sorted(c for c in normalized if not c.isspace())
    characters = dict.fromkeys([*ascii_characters, *PUNCTUATION, *gb2312_characters(), *extra])
    # WordPiece splits a run of characters into the first one and "##" continuations, but the normalizer puts
    # spaces around Chinese ones, and the pre-tokenizer splits at punctuation
    words = {c for c in normalized if len(splitter.pre_tokenize_str(normalizer.normalize_str(f"a{c}a"))) == 1}
    words.update(string.ascii_lowercase + string.digits)
    tokens = [*SPECIAL_TOKENS, *characters, *(f"##{c}" for c in characters if c in words)]
    (folder / "vocab.txt").write_text("\n".join(tokens), encoding="utf-8")
