"""The vocabulary of a model with random weights: read from a file, or made of the training text."""

import string
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from ..data.cache import build_once, content_key, file_digest
from ..data.dataset import Dataset
from ..data.table import Table
from ..data.tokens import CHUNK_ROWS
from ..errors import InputError, excerpt

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PUNCTUATION = "，。、；：？！…—·～﹏“”‘’（）《》〈〉【】「」『』〔〕￥％＃＠＆＊＋－＝＜＞／＼｜＂＇．￣"


def read_vocabulary(path: Path) -> list[str]:
    """Return the tokens of a vocabulary file in the order of their ids, one a line. Raises InputError for a
    file that cannot be read, and for a token that is there twice or missing."""
    try:
        # Only \n ends a line: BERT's own vocabulary has U+2028 and the like among its tokens
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"{path} cannot be read as a text file in UTF-8: {error}"
        raise InputError(f"model.vocab_file: {problem}; name another one") from error
    tokens = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    [(most_frequent, count)] = Counter(tokens).most_common(1)
    if count > 1:
        raise bad_vocabulary(path, f"{excerpt(most_frequent)} more than once")
    missing = [token for token in SPECIAL_TOKENS if token not in tokens]
    if missing:
        raise bad_vocabulary(path, f"no {' '.join(missing)}")
    return tokens


def bad_vocabulary(path: Path, problem: str) -> InputError:
    rule = f"each line must be a different token, {' '.join(SPECIAL_TOKENS)} among them"
    return InputError(f"{path}: {rule}; found {problem}; choose another file")


def training_vocabulary(dataset: Dataset, cache_dir: str) -> Path:
    """Return the vocabulary file that is made, once, of the training text of a dataset."""
    table = dataset.splits["train"].table
    rows_file = dataset.vocabulary_rows
    key = content_key("vocabulary", 2, table.key, file_digest(rows_file))
    folder = Path(cache_dir) / f"vocabulary-{key}"
    build_once(folder, build_vocabulary, table, rows_file, num_bytes=table.num_bytes)
    return folder / "vocab.txt"


def build_vocabulary(folder: Path, table: Table, rows_file: Path) -> None:
    """Write `vocab.txt`: special tokens, ASCII, punctuation, GB 2312, and the characters of the normalized
    training rows, whose ids `rows_file` has."""
    in_texts = normalized_characters(table, rows_file)
    candidates = [*string.ascii_lowercase, *string.digits, *string.punctuation]
    candidates += [*PUNCTUATION, *gb2312_characters()]
    candidates += sorted(character for character in in_texts if not character.isspace())
    characters = list(dict.fromkeys(candidates))
    word_characters = characters_in_words(in_texts)
    word_characters.update(string.ascii_lowercase, string.digits)
    continuations = [f"##{character}" for character in characters if character in word_characters]
    tokens = [*SPECIAL_TOKENS, *characters, *continuations]
    (folder / "vocab.txt").write_text("\n".join(tokens), encoding="utf-8")


def normalized_characters(table: Table, rows_file: Path) -> set[str]:
    """Return the characters of the rows whose ids `rows_file` has, as BERT's normalizer leaves them."""
    rows = np.sort(np.load(rows_file))
    raw_characters: set[str] = set()
    for start in range(0, len(rows), CHUNK_ROWS):
        texts = table.joined_texts(rows[start : start + CHUNK_ROWS])
        raw_characters.update(*texts)
    # The normalizer looks at one character at a time, so it is enough to give it each character once
    return set(BertNormalizer().normalize_str("".join(sorted(raw_characters))))


def characters_in_words(characters: Iterable[str]) -> set[str]:
    """Return the characters that can be in a word with others. WordPiece splits a word into its first
    character and "##" continuations, but the normalizer puts spaces around Chinese characters, and the
    pre-tokenizer splits at punctuation."""
    normalizer = BertNormalizer()
    splitter = BertPreTokenizer()
    word_characters = set()
    for character in characters:
        words = splitter.pre_tokenize_str(normalizer.normalize_str(f"a{character}a"))
        if len(words) == 1:
            word_characters.add(character)
    return word_characters


def gb2312_characters() -> list[str]:
    """Return the 6,763 Chinese characters of GB 2312, in its order (rows 16 to 87)."""
    characters = []
    for row in range(0xB0, 0xF8):
        for cell in range(0xA1, 0xFF):
            # Some cells of the table are empty
            characters += bytes((row, cell)).decode("gb2312", "ignore")
    return characters
