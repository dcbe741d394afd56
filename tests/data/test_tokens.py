"""Tokenizers, long texts, and the tokens of rows on disk."""

import json
import multiprocessing
import os
import random
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, BertTokenizer, PreTrainedTokenizerFast

from app.config.schema import ModelConfig
from app.data import tokens
from app.data.cache import MANIFEST, is_complete
from app.data.tokens import CUT, LongTexts, RowEncoder, open_store
from app.errors import InputError
from app.model.tokenizer import load_tokenizer, set_prefix
from app.model.vocabulary import SPECIAL_TOKENS, gb2312_characters
from app.prediction.torch_runtime import load_predictor
from app.prediction.trained_model import read_trained_model
from tests.data.conftest import tokens_of_file
from tests.saved_classifier import as_rows, save_checkpoint
from tests.tiny import tiny_tokenizer as tokenizer_of

# U+3400, U+20000 and U+2CEAF are first or last in ranges of Chinese characters; `〇` is in none of them.
SPLIT_OFF = "中\u3400\U00020000\U0002ceaf，。“…—·!$^~「٪"
IN_WORDS = "aéß7７яあアー한ก😀❤€＋→②℃々〇～\u200d"
# The tables of `tokenizers` and of Python differ here; only what the tokenizer does counts.
OF_OTHER_TABLES = "\U0002b820\u2e43\u0c84\u166d"


@pytest.fixture
def trained_on(opened, tmp_path):
    """Return the tokenizer whose vocabulary is made of texts: trained_on("好", "坏")."""

    def load(*texts: str):
        rows = "\n".join(json.dumps([f"好{text}", at]) for at, text in enumerate(texts))
        dataset = opened("jsonl", train=rows)
        return load_tokenizer(ModelConfig("random"), dataset, 8, str(tmp_path / "cache"))

    return load


def test_characters_of_words_have_a_continuation(trained_on):
    vocabulary = trained_on("中あ😀，é", "龘７").get_vocab()
    in_order = sorted(vocabulary, key=vocabulary.get)
    assert in_order[:5] == SPECIAL_TOKENS
    extra = [token for token in in_order if token[-1] in "あ😀é７龘中，" or token in ("e", "##e")]
    # Accents go with lower case
    assert extra == ["e", "，", "中", "あ", "龘", "７", "😀", "##e", "##あ", "##７", "##😀"]
    assert set(gb2312_characters()) < set(in_order)


def test_no_character_of_the_training_text_is_unknown(trained_on):
    """Whatever stands beside it; every 50th character of Unicode, and those above."""
    characters = [*map(chr, [*range(32, 0x3100), *range(0x3100, 0xD800, 50), *range(0xE000, 0x110000, 50)])]
    characters += [*SPLIT_OFF, *IN_WORDS, *OF_OTHER_TABLES]
    tokenizer = trained_on("".join(characters), "a")
    encodings = tokenizer.backend_tokenizer.encode_batch_fast([f"a{c}{c}好{c}a" for c in characters])
    unknown = []
    for character, encoding in zip(characters, encodings, strict=True):
        if tokenizer.unk_token_id in encoding.ids:
            unknown.append(character)
    assert unknown == []


def test_a_prefix_is_as_if_each_text_had_it_and_stays_with_the_tokenizer(tmp_path):
    folder = save_checkpoint(tmp_path)
    plain = AutoTokenizer.from_pretrained(folder)
    # The data is not read for the tokenizer of a checkpoint
    ours = load_tokenizer(ModelConfig(str(folder), prefix="a: "), None, 60, "")
    ours.save_pretrained(tmp_path / "again")
    again = AutoTokenizer.from_pretrained(tmp_path / "again")
    wanted = plain("a: 今天真开心")["input_ids"]
    assert ours("今天真开心")["input_ids"] == again("今天真开心")["input_ids"] == wanted
    assert {**again("今天", "好")} == {**plain("a: 今天", "好")}
    assert again.model_max_length == 60
    assert again.special_tokens_map == plain.special_tokens_map
    # Texts are cut, not the prefix
    encoder = RowEncoder(again.backend_tokenizer, len(wanted) - 2)
    assert encoder.encode(["今天真开心"], str).tokens.tolist() == wanted[:-3] + wanted[-1:]
    set_prefix(again.backend_tokenizer, "b")
    assert again("今天")["input_ids"] == plain("b今天")["input_ids"]
    set_prefix(again.backend_tokenizer, "")
    assert again("今天", "好")["input_ids"] == plain("今天", "好")["input_ids"]
    with pytest.raises(InputError, match="post-processor TemplateProcessing, found none; leave it out"):
        set_prefix(Tokenizer(models.WordLevel({"好": 0}, "好")), "query: ")


VOCABULARY = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
VOCABULARIES = {
    VOCABULARY.encode() + b"\xff\n": "cannot be read as a text file in UTF-8",
    VOCABULARY + "".join(f"{n}\n" for n in range(200_000)) + "7\n": "found '7' more than once",
    b"": r"found no \[PAD\]",
    bytes(1000): r"found no \[PAD\]",
}


def test_vocabularies_that_are_none(write):
    for content, message in VOCABULARIES.items():
        with pytest.raises(InputError, match=message):
            load_tokenizer(ModelConfig("random", vocab_file=str(write("vocab.txt", content))), None, 8, "")
    # U+2028 and the like are tokens of BERT's own vocabulary, and must not end lines
    path = write("mark.txt", f"\ufeff{VOCABULARY}\u2028\n\x85\n好\n")
    assert load_tokenizer(ModelConfig("random", vocab_file=str(path)), None, 8, "").get_vocab()["好"] == 7


SPLIT = {"type": "Split", "pattern": {"Regex": "[^x]"}, "behavior": "Removed", "invert": False}


@pytest.fixture
def strange(checkpoint, tmp_path):
    """Change the tokenizer.json of a checkpoint, and return its folder: strange(change). Its tokenizer is
    just what this file says; BertTokenizer would replace most of that."""
    folder = shutil.copytree(checkpoint, tmp_path / "checkpoint")

    def changed(name: str, change) -> Path:
        definition = json.loads((folder / name).read_text(encoding="utf-8"))
        change(definition)
        (folder / name).write_text(json.dumps(definition), encoding="utf-8")
        return folder

    changed("tokenizer_config.json", lambda d: d.update(tokenizer_class="PreTrainedTokenizerFast"))
    return lambda change: changed("tokenizer.json", change)


FAULTS = {
    "no unknown token": (lambda d: d["model"]["vocab"].pop("[UNK]"), "cannot encode a text: .*Missing .UNK. token"),
    "template": (lambda d: d["post_processor"]["special_tokens"]["[CLS]"].update(ids=[999]), "of its vocabulary, found the ids 999, "),
    "separator": (
        lambda d: d.update(post_processor={"type": "BertProcessing", "sep": ["[SEP]", 777], "cls": ["[CLS]", 2]}),
        "of its vocabulary, found the ids .* 777",
    ),
    "no token": (lambda d: d.update(pre_tokenizer=SPLIT, post_processor=None), "found the ids none for '好a1。'"),
    "panic while encoding": (
        lambda d: d.update(pre_tokenizer={"type": "FixedLength", "length": 0}),
        "cannot encode a text: chunk size must be non-zero; repair its tokenizer.json",
    ),
    "panic while loading": (
        lambda d: d.update(model={"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]], "continuing_subword_prefix": "###"}),
        "range end index .* out of range",
    ),
    "id beyond the model": (
        lambda d: d["model"]["vocab"].update(今=70_000),
        r"ids go up to 70,000; they must belong together",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_tokenizers_that_cannot_work_are_one_error(strange, fault, capfd):
    change, problem = FAULTS[fault]
    folder = strange(change)
    with pytest.raises(InputError, match=problem) as error:
        load_predictor(folder, 32, device="cpu")
    assert str(folder) in str(error.value)
    # Which the model of a training run finds
    if fault != "id beyond the model":
        with pytest.raises(InputError, match=problem) as error:
            load_tokenizer(ModelConfig(name=str(folder)), None, 32, "")
        assert str(folder) in str(error.value)


def test_padding_and_truncation_of_a_strangers_tokenizer_do_not_matter(strange):
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    padding = {"strategy": {"Fixed": 50_000}, "direction": "Right", "pad_to_multiple_of": 0}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    probabilities = []
    for settings in ({}, {"truncation": truncation, "padding": padding}):
        folder = strange(lambda d, settings=settings: d.update(settings))
        predictions = load_predictor(folder, 32, device="cpu").predict(as_rows(["今天真开心"]))
        probabilities.append([row.probabilities.tolist() for row in predictions])
    assert probabilities[0] == probabilities[1]


def test_a_text_without_a_token_is_named(strange, table_of, tmp_path):
    splits = SPLIT | {"pattern": {"Regex": "[气 ]"}}
    folder = strange(lambda d: d.update(pre_tokenizer=splits, post_processor=None))
    message = "each text must have a token, and the tokenizer makes none of '气气'"
    with pytest.raises(InputError, match=f"row 2: {message}"):
        list(load_predictor(folder, 32, device="cpu").predict(as_rows(["今天", "气气", "好"])))
    tokenizer = load_tokenizer(ModelConfig(str(folder)), None, 32, "")
    table = [["今天", 1]] * 9
    with pytest.raises(InputError, match=rf"rows\.json, element 10: {message}; remove the row"):
        open_store(table_of([*table, ["气气", 2]]), tokenizer, 32, str(tmp_path / "cache"))


SPECIAL = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["好", "今天真开心", "a", "word", "don't ", " ", "   ", "\u3000", "\n\n", "12345678", "ﷺ", "e\u0301", "\u0301" * 9, "x" * 110,
          "[MASK]", "[MAS", "  [MASK]  ", "😀👨‍👩‍👧", "．。！", "ΑΣ", "\u200b", "\x00", "ｶﾞ", "한국어", "ไทย", "," * 40, " " * 60]  # fmt: skip
TRAINING = ["今天真开心 word don't word a good day", "好好学习，天天向上。 1234 한국어"]
TRAINING += ["the words of a text " * 3]
HEAD_TAIL = LongTexts("head_tail")


def trained(algorithm: str = "WordPiece") -> Tokenizer:
    """Return a tokenizer of an algorithm, trained on a few texts."""
    settings = {"special_tokens": SPECIAL, "show_progress": False}
    if algorithm == "WordPiece":
        model = models.WordPiece(unk_token="[UNK]")
        trainer = trainers.WordPieceTrainer(vocab_size=150, **settings)
        normalizer = normalizers.BertNormalizer()
        words = pre_tokenizers.BertPreTokenizer()
    elif algorithm == "BPE":
        settings["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
        model = models.BPE()
        trainer = trainers.BpeTrainer(vocab_size=320, **settings)
        normalizer = None
        words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        settings |= {"unk_token": "[UNK]", "max_piece_length": 8}
        model = models.Unigram()
        trainer = trainers.UnigramTrainer(vocab_size=120, **settings)
        words = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
        normalizer = normalizers.NFKC()
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = words
    tokenizer.train_from_iterator(TRAINING, trainer)
    tokenizer.add_special_tokens([*SPECIAL[:4], AddedToken("[MASK]", lstrip=True, rstrip=True)])
    ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    return tokenizer


def long_texts_of(name: str) -> list[str]:
    """Return texts with words of usual lengths: a cut in a very long word may change its tokens."""
    draw = random.Random(name)
    favourites = [["好", "word ", *draw.choices(PIECES, k=draw.choice([1, 5, 20]))] for _ in range(20)]
    texts = ["".join(draw.choices(pieces, k=draw.choice([1, 30, 90, 900]))) for pieces in favourites]
    return [*texts, "好，" * 4500 + "z", "好", "今天真开心word " * 1600, "a " * 9000]


def wanted_windows(ids: list[int], capacity: int, side: str, long: LongTexts) -> list[list[int]]:
    """Return all windows of the tokens of a text, by definition."""
    if len(ids) <= capacity:
        return [ids]
    if long.way == "head_tail":
        return [ids[: capacity // 4] + ids[len(ids) - (capacity - capacity // 4) :]]
    if long.way == "windows":
        step = capacity * 3 // 4
        count = 1 + -(-(len(ids) - capacity) // step)
        return [ids[at * step : at * step + capacity] for at in range(count)]
    return [ids[:capacity] if side == "right" else ids[-capacity:]]


def windows_of(rows: tokens.EncodedRows) -> list[list[list[int]]]:
    """Return the tokens of each window of each row."""
    windows = iter(np.split(rows.tokens, np.cumsum(rows.lengths)[:-1]))
    return [[next(windows).tolist() for _ in range(count)] for count in rows.counts]


@pytest.mark.parametrize("algorithm", ["WordPiece", "BPE", "Unigram"])
@pytest.mark.parametrize(
    ("max_length", "side", "long"),
    [
        *((length, side, CUT) for length in (4, 16, 63) for side in ("right", "left")),
        *((length, "right", HEAD_TAIL) for length in (16, 63)),
        *((length, "right", LongTexts("windows", n)) for length, n in ((16, 8), (16, 3), (34, 5), (64, 1))),
    ],
)
def test_rows_are_those_of_the_whole_text(algorithm, max_length, side, long):
    tokenizer = trained(algorithm)
    texts = long_texts_of(algorithm)
    rows = RowEncoder(Tokenizer.from_str(tokenizer.to_str()), max_length, side, long).encode(texts, str)
    for text, windows, is_cut in zip(texts, windows_of(rows), rows.is_cut, strict=True):
        first, *ids, last = tokenizer.encode(text).ids
        wanted = wanted_windows(ids, max_length - 2, side, long)
        max_windows = long.max_windows if long.way == "windows" else 1
        assert windows == [[first, *window, last] for window in wanted[:max_windows]]
        assert is_cut == (len(wanted) > max_windows or (long.way != "windows" and len(ids) > max_length - 2))


@pytest.mark.parametrize("side", ["right", "left"])
def test_pairs_are_cut_as_the_tokenizer_cuts_them(side):
    tokenizer = trained()
    texts = long_texts_of("pairs")
    pairs = list(zip(texts[:10], texts[12:22], strict=True))
    rows = RowEncoder(Tokenizer.from_str(tokenizer.to_str()), 64, side).encode(pairs, str)
    tokenizer.enable_truncation(64, direction=side)
    expected = tokenizer.encode_batch(pairs)
    assert windows_of(rows) == [[encoding.ids] for encoding in expected]
    assert rows.is_cut.tolist() == [bool(encoding.overflowing) for encoding in expected]
    assert rows.second_starts.tolist() == [
        len(encoding.ids) - sum(encoding.type_ids) for encoding in expected
    ]


@pytest.mark.parametrize("long", [CUT, LongTexts("windows", 4)])
def test_no_more_of_a_long_text_is_read_than_needed(long):
    encoder = RowEncoder(trained(), 16, "right", long)
    read = []
    encode = encoder.tokenizer.encode_batch_fast
    encoder.tokenizer = SimpleNamespace(encode_batch_fast=lambda texts: read.extend(texts) or encode(texts))
    encoder.encode(["好" * 10**6, "a good day " * 10**5], str)
    assert 0 < sum(map(len, read)) < 12_000
    assert len(RowEncoder(trained(), None).encode(["好" * 5000], str).tokens) == 5002


def test_characters_of_tokens_are_those_of_the_given_text():
    """Of several text columns, which are joined by a mark."""
    text = "好好␞天天向上␞a"
    tokens = RowEncoder(trained(), 64).parts_read((text,))[0][0]
    assert "".join(text[token.start : token.end] for token in tokens if token.text == 0) == text


@pytest.mark.parametrize(
    ("long", "length", "message"),
    [
        (HEAD_TAIL, 16, "^line 7: data.long head_tail reads single texts, found a pair"),
        (LongTexts("windows"), 16, "^line 7: data.long windows reads single texts, found a pair"),
        (HEAD_TAIL, 5, "data.long head_tail needs 4 or more tokens of a text in a row, found 3"),
        (CUT, 2, "data.long cut needs 1 or more tokens of a text in a row, found 0"),
    ],
)
def test_pairs_and_lengths_that_a_way_cannot_read_are_refused(long, length, message):
    with pytest.raises(InputError, match=message):
        RowEncoder(trained(), length, "right", long).encode([("好", "今")], lambda index: "line 7")


def test_settings_of_a_run_folder(write):
    written = {"long": "windows", "max_windows": 3}
    for settings, wanted in (({}, CUT), (written, LongTexts("windows", 3))):
        path = write("config.yaml", json.dumps({"data": settings}))
        assert read_trained_model(path.parent).long_texts == wanted
    message = "config.yaml: data.long must be one of cut, head_tail, windows, and data.max_windows"
    for name, value in (("long", "whole"), ("max_windows", 0), ("max_windows", "9"), ("max_windows", True)):
        write("config.yaml", json.dumps({"data": written | {name: value}}))
        with pytest.raises(InputError, match=message):
            read_trained_model(path.parent)


TEXTS = ["今天真开心", "a", "气死我了😀", "好" * 40, "Ab 12。", "[SEP]好", "x\u2028y", "好" * 6, "好" * 7]
TEXTS += ["\u3000坏"]
PAIRS = [("今天真开心", "好"), ("好", "气死我了😀"), ("坏" * 20, "好" * 30), ("a", "b")]


@pytest.fixture
def store_of(tmp_path):
    """Return the token store of a table: store_of(table, tokenizer, max_length, long, cache=...)."""

    def open_in_cache(table, tokenizer, max_length, long=CUT, cache="cache"):
        return open_store(table, tokenizer, max_length, str(tmp_path / cache), long)

    return open_in_cache


def rows_of(store) -> list[list[int]]:
    return [store.row(row).tolist() for row in range(len(store.cut))]


INPUTS = [("texts", 4), ("texts", 8), ("texts", 9), ("texts", 128), ("pairs", 4), ("pairs", 5), ("pairs", 9)]
INPUTS += [("pairs", 64), ("pairs of RoBERTa", 16)]


@pytest.mark.parametrize(("inputs", "max_length"), INPUTS)
def test_a_store_holds_what_the_tokenizer_makes(table_of, store_of, tiny_tokenizer, inputs, max_length):
    """RoBERTa's second texts have the same token types as the first ones."""
    backend = Tokenizer.from_str(tiny_tokenizer.backend_tokenizer.to_str())
    if inputs == "pairs of RoBERTa":
        backend.post_processor = processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))
    settings = {"unk_token": "[UNK]", "model_input_names": ["input_ids", "token_type_ids"]}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **settings)
    texts = [(text,) for text in TEXTS] if inputs == "texts" else PAIRS
    columns = {} if inputs == "texts" else {"text_column": 0, "text_pair_column": 1, "label_column": 2}
    store = store_of(table_of([[*row, 0] for row in texts], **columns), tokenizer, max_length)
    wanted = [tokenizer(*row, truncation=True, max_length=max_length) for row in texts]
    assert rows_of(store) == [row["input_ids"] for row in wanted]
    assert np.diff(store.offsets).tolist() == [len(row["input_ids"]) for row in wanted]
    assert store.cut.tolist() == [len(tokenizer(*row)["input_ids"]) > max_length for row in texts]
    assert store.unknown_tokens == sum(row["input_ids"].count(1) for row in wanted)
    assert len(store.tokens) == store.offsets[-1]
    if inputs == "pairs":
        for row, start in zip(wanted, store.second_starts, strict=True):
            assert row["token_type_ids"] == [0] * start + [1] * (len(row["token_type_ids"]) - start)
    else:
        assert store.second_starts is None


@pytest.mark.parametrize("case", ["texts", "pairs", "windows"])
def test_the_bits_are_the_same_for_any_chunks(table_of, store_of, tiny_tokenizer, monkeypatch, case):
    texts = ["好" * (1 + 7 * number % 40) + f"第{number}条" for number in range(60)]
    rows = [[text, *([text[::-1]] * (case == "pairs")), index % 3] for index, text in enumerate(texts)]
    table = table_of(rows)
    long = LongTexts("windows", max_windows=3) if case == "windows" else CUT
    assert table.has_pairs == (case == "pairs")

    def content(cache: str) -> dict[str, bytes]:
        folder = store_of(table, tiny_tokenizer, 12, long, cache=cache).folder
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    in_one_chunk = content("one")
    assert len(in_one_chunk) == 5 + (case == "pairs") + 2 * (case == "windows")
    monkeypatch.setattr(tokens, "CHUNK_ROWS", 7)
    assert content("rows") == in_one_chunk
    monkeypatch.setattr(tokens, "CHUNK_BYTES", 100)
    assert content("bytes") == in_one_chunk


@pytest.mark.parametrize(("size", "dtype"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.int32)])
def test_the_smallest_type_that_holds_the_ids(table_of, store_of, size, dtype):
    """A vocabulary of few tokens may have large ids."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "t0"]
    tokenizer = BertTokenizer({token: index for index, token in enumerate(names)} | {"好": size - 1})
    store = store_of(table_of([["t0 好", 1]]), tokenizer, 8)
    assert (store.tokens.dtype, rows_of(store)) == (dtype, [[2, 5, size - 1, 3]])


def test_a_store_is_built_once_for_rows_tokenizer_and_length(table_of, store_of, tiny_tokenizer):
    """Calling a tokenizer leaves its last truncation and padding in it; they do not reach the store."""
    table = table_of([["今天真开心", 0], ["气死我了", 1]])
    store = store_of(table, tiny_tokenizer, 16)
    wanted = rows_of(store)
    before = store.folder.stat().st_mtime_ns
    tiny_tokenizer(["好", "今天真开心"], padding="max_length", truncation=True, max_length=4)
    again = store_of(table, tiny_tokenizer, 16)
    assert (again.folder, rows_of(again), store.folder.stat().st_mtime_ns) == (store.folder, wanted, before)
    larger_tokenizer = BertTokenizer({**tiny_tokenizer.get_vocab(), "😀": len(tiny_tokenizer)})
    others = {store_of(table, tiny_tokenizer, 17).folder, store_of(table, larger_tokenizer, 16).folder}
    assert len({store.folder, *others}) == 3


DAMAGE = {
    "file missing": lambda folder: (folder / "offsets.npy").unlink(),
    "file cut": lambda folder: os.truncate(folder / "tokens.bin", 3),
    "manifest cut": lambda folder: os.truncate(folder / MANIFEST, 10),
    "manifest of another kind": lambda folder: (folder / MANIFEST).write_text("[]"),
    "folder empty": lambda folder: [path.unlink() for path in folder.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_store_is_built_again(table_of, store_of, tiny_tokenizer, damage, caplog):
    table = table_of([["今天真开心", 0], ["气死我了", 1]])
    store = store_of(table, tiny_tokenizer, 16)
    wanted = rows_of(store)
    damage(store.folder)
    assert not is_complete(store.folder)
    assert rows_of(store_of(table, tiny_tokenizer, 16)) == wanted
    assert "is damaged and is built again" in caplog.text


def test_processes_that_start_at_once_get_one_whole_store(write, tmp_path):
    texts = [f"今天真开心{'好' * (number % 7)} {number}" for number in range(2000)]
    source = write("rows.tsv", "".join(f"{text}\t{len(text) % 2}\n" for text in texts))
    cache = tmp_path / "cache"
    tokenizer = tokenizer_of(characters="今天真开心好0123")
    wanted = tokenizer(texts, truncation=True, max_length=16)["input_ids"]
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        futures = [pool.submit(tokens_of_file, str(source), str(cache), tokenizer) for _ in range(2)]
        assert [future.result() for future in futures] == [wanted] * 2
    for prefix in ("table", "dataset", "tokens"):
        [folder] = (path for path in cache.glob(f"{prefix}-*") if path.is_dir())
        assert is_complete(folder)
