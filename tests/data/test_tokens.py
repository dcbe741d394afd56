"""Token stores, and how they are kept on disk: python -m pytest tests/data/test_tokens.py"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from transformers import BertTokenizer, PreTrainedTokenizerFast

from app.data import tokens
from app.data.cache import MANIFEST, is_complete
from app.data.read import ReadOptions
from app.data.table import Table, build_table
from app.data.tokens import CUT, LongTexts, TokenStore, build_store, open_store
from app.errors import InputError
from tests.tiny import tiny_tokenizer

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [
    "今天真开心",
    "a",
    "气死我了😀",
    "好" * 40,
    "Ab 12。",
    "[SEP]好",
    "x\u2028y",
    "好" * 6,
    "好" * 7,
    "\u3000坏",
]


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path, [[text, index % 3] for index, text in enumerate(TEXTS)])


def make_table(folder, rows, **options) -> Table:
    (folder / "rows.json").write_text(json.dumps(rows))
    (folder / "table").mkdir()
    build_table(folder / "table", str(folder / "rows.json"), ReadOptions(**options), False, None)
    return Table(folder / "table")


def make_store(folder, table, tokenizer, max_length, long=CUT) -> TokenStore:
    """Make a store here, instead of in the process that `open_store` starts for it."""
    folder.mkdir()
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    encoding = backend.to_str(), max_length, "right", long
    build_store(folder, table, encoding, tokenizer.unk_token_id)
    return TokenStore(folder)


def rows_of(store) -> list[list[int]]:
    return [store.row(row).tolist() for row in range(len(store.cut))]


@pytest.mark.parametrize("max_length", [4, 8, 9, 128])
def test_a_store_holds_what_the_tokenizer_makes_of_each_text(tmp_path, table, tiny_tokenizer, max_length):
    store = make_store(tmp_path / "store", table, tiny_tokenizer, max_length)
    whole = tiny_tokenizer(table.texts(range(10)))["input_ids"]
    wanted = tiny_tokenizer(table.texts(range(10)), truncation=True, max_length=max_length)["input_ids"]
    assert rows_of(store) == wanted
    assert np.diff(store.offsets).tolist() == [len(row) for row in wanted]
    assert store.cut.tolist() == [len(row) > max_length for row in whole]
    assert store.second_starts is None
    assert store.unknown_tokens == sum(row.count(tiny_tokenizer.unk_token_id) for row in wanted)
    assert len(store.tokens) == store.offsets[-1] == sum(map(len, wanted))


@pytest.mark.parametrize("case", ["texts", "pairs", "windows"])
def test_the_bits_are_the_same_for_any_chunks(tmp_path, tiny_tokenizer, monkeypatch, case):
    texts = ["好" * (1 + 7 * number % 40) + f"第{number}条" for number in range(60)]
    rows = [[text, *([text[::-1]] * (case == "pairs")), index % 3] for index, text in enumerate(texts)]
    table = make_table(tmp_path, rows)
    assert table.has_pairs == (case == "pairs")
    long = LongTexts("windows", max_windows=3) if case == "windows" else CUT

    def content(name: str) -> dict[str, bytes]:
        make_store(tmp_path / name, table, tiny_tokenizer, 12, long)
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    one = content("one")
    assert len(one) == 4 + (case == "pairs") + 2 * (case == "windows")
    monkeypatch.setattr(tokens, "CHUNK", 7)
    assert content("rows") == one
    monkeypatch.setattr(tokens, "CHUNK_BYTES", 100)
    assert content("bytes") == one


def test_an_error_names_the_row(tmp_path, tiny_tokenizer):
    table = make_table(tmp_path, [["好", 1]] * 8 + [["\u00ad\u200b好", 1], ["\ue000", 2]])
    definition = json.loads(tiny_tokenizer.backend_tokenizer.to_str())
    pattern = {"type": "Split", "pattern": {"Regex": "\ue000"}, "behavior": "Removed", "invert": False}
    definition |= {"normalizer": None, "post_processor": None, "pre_tokenizer": pattern}
    (tmp_path / "store").mkdir()
    with pytest.raises(InputError, match="rows.json, element 10: each text must have a token"):
        build_store(tmp_path / "store", table, (json.dumps(definition), 12, "right", CUT), 1)


@pytest.mark.parametrize("max_length", [4, 5, 9, 64])
def test_pairs(tmp_path, tiny_tokenizer, max_length):
    texts = [["今天真开心", "好"], ["好", "气死我了😀"], ["坏" * 20, "好" * 30], ["a", "b"]]
    rows = [[*pair, 0] for pair in texts]
    table = make_table(tmp_path, rows, text_column=0, text_pair_column=1, label_column=2)
    store = make_store(tmp_path / "store", table, tiny_tokenizer, max_length)
    wanted = [tiny_tokenizer(*pair, truncation=True, max_length=max_length) for pair in texts]
    assert rows_of(store) == [row["input_ids"] for row in wanted]
    for row, start in zip(wanted, store.second_starts, strict=True):
        assert row["token_type_ids"] == [0] * start + [1] * (len(row["token_type_ids"]) - start)
    assert store.cut.tolist() == [len(tiny_tokenizer(*pair)["input_ids"]) > max_length for pair in texts]


def test_pairs_of_a_model_that_does_not_tell_two_texts_apart(tmp_path):
    """RoBERTa's second texts have the same token types as the first ones."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    names = ["<s>", "<pad>", "</s>", "<unk>", *"今天真好坏"]
    vocabulary = {token: index for index, token in enumerate(names)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", pad_token="<pad>")
    table = make_table(tmp_path, [["今天", "真好", 0]], text_column=0, text_pair_column=1, label_column=2)
    store = make_store(tmp_path / "store", table, tokenizer, 16)
    assert rows_of(store) == [tokenizer("今天", "真好")["input_ids"]] == [[0, 4, 5, 2, 2, 6, 7, 2]]
    assert store.second_starts is None


@pytest.mark.parametrize(("size", "dtype"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.int32)])
def test_the_smallest_type_that_holds_the_vocabulary(tmp_path, size, dtype):
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"t{index}" for index in range(size - 6)), "好"]
    tokenizer = BertTokenizer({token: index for index, token in enumerate(names)})
    store = make_store(tmp_path / "store", make_table(tmp_path, [["t0 好", 1]]), tokenizer, 8)
    assert (store.tokens.dtype, rows_of(store)) == (dtype, [[2, 5, size - 1, 3]])


def test_a_store_is_built_once_for_rows_tokenizer_and_length(tmp_path, table, tiny_tokenizer):
    """Calling a tokenizer leaves its last truncation and padding in it; they do not reach the store."""
    cache = str(tmp_path / "cache")
    store = open_store(table, tiny_tokenizer, 16, cache)
    wanted, before = rows_of(store), store.folder.stat().st_mtime_ns
    tiny_tokenizer(["好", "今天真开心"], padding="max_length", truncation=True, max_length=4)
    again = open_store(table, tiny_tokenizer, 16, cache)
    assert (again.folder, rows_of(again), store.folder.stat().st_mtime_ns) == (store.folder, wanted, before)
    other = BertTokenizer({**tiny_tokenizer.get_vocab(), "😀": len(tiny_tokenizer)})
    others = {open_store(table, tiny_tokenizer, 17, cache).folder, open_store(table, other, 16, cache).folder}
    assert len({store.folder, *others}) == 3


DAMAGE = {
    "file missing": lambda folder: (folder / "offsets.npy").unlink(),
    "file cut": lambda folder: os.truncate(folder / "tokens.bin", 3),
    "manifest cut": lambda folder: os.truncate(folder / MANIFEST, 10),
    "manifest of another kind": lambda folder: (folder / MANIFEST).write_text("[]"),
    "folder empty": lambda folder: [path.unlink() for path in folder.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_store_is_built_again(tmp_path, table, tiny_tokenizer, damage, caplog):
    store = open_store(table, tiny_tokenizer, 16, str(tmp_path / "cache"))
    wanted = rows_of(store)
    damage(store.folder)
    assert not is_complete(store.folder)
    assert rows_of(open_store(table, tiny_tokenizer, 16, str(tmp_path / "cache"))) == wanted
    assert "is damaged and is built again" in caplog.text


SCRIPT = """
import hashlib, sys
from pathlib import Path

# The process that prepares the data imports this file, and does not need the rest
if __name__ == "__main__":
    from app.config.schema import DataConfig
    from app.data.dataset import open_dataset
    from app.data.table import Table
    from app.data.tokens import open_store
    from tests.tiny import tiny_tokenizer

    source, cache = Path(sys.argv[1]), sys.argv[2]
    data = DataConfig(train=str(source), cache_dir=cache)
    table = open_dataset(data).tables[0] if source.is_file() else Table(source)
    store = open_store(table, tiny_tokenizer(characters="今天真开心好0123"), 16, cache)
    print(hashlib.sha256(store.tokens.tobytes() + store.offsets.tobytes()).hexdigest())
"""


@pytest.fixture
def start(tmp_path):
    """Starts a process that opens the token store of a data file, or of a table: start(source)."""
    started = []
    (tmp_path / "script.py").write_text(SCRIPT)

    def start_one(source: Path) -> subprocess.Popen:
        command = [sys.executable, *map(str, (tmp_path / "script.py", source, tmp_path / "cache"))]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        started.append(subprocess.Popen(command, env=environment, text=True, **pipes))
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def folders(cache: Path, kind: str) -> list[Path]:
    return [path for path in cache.glob(f"{kind}-*") if path.is_dir()]


def tokens_of(texts: list[str]) -> list[list[int]]:
    """Return what the tokenizer of the script makes of texts."""
    tokenizer = tiny_tokenizer(characters="今天真开心好0123")
    return tokenizer(texts, truncation=True, max_length=16)["input_ids"]


def numbered(num_rows: int) -> list[str]:
    return [f"今天真开心{'好' * (number % 7)} {number}" for number in range(num_rows)]


def test_processes_that_start_at_once_get_one_whole_store(start, tmp_path, write):
    texts = numbered(2000)
    source = write("a.tsv", "".join(f"{text}\t{number % 2}\n" for number, text in enumerate(texts)))
    found = [process.communicate() for process in [start(source), start(source)]]
    assert len({output for output, _ in found}) == 1, found
    assert found[0][0], found
    for kind in ("table", "dataset", "tokens"):
        [folder] = folders(tmp_path / "cache", kind)
        assert is_complete(folder)
    assert rows_of(TokenStore(folder)) == tokens_of(texts)


@pytest.mark.chaos
def test_a_run_killed_while_it_tokenises_leaves_no_half_store(start, tmp_path):
    """That the process which prepares ends with the run: tests/data/test_cache.py."""
    table, cache = make_table(tmp_path, [[text, 0] for text in numbered(60_000)]), tmp_path / "cache"
    process = start(table.folders[0])
    while not (written := list(cache.glob("tokens-*.aside-*/tokens.bin"))):
        assert process.poll() is None, f"it ended before it was killed: {process.communicate()}"
        time.sleep(0.002)
    aside = written[0].parent
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not is_complete(aside)
    assert folders(cache, "tokens") in ([], [aside])
    second = start(table.folders[0])
    errors = second.communicate()[1]
    assert second.returncode == 0, errors
    [folder] = folders(cache, "tokens")
    store, chosen = TokenStore(folder), [*range(1000), *range(59_000, 60_000)]
    assert (folder != aside, len(store.cut)) == (True, 60_000)
    assert [store.row(row).tolist() for row in chosen] == tokens_of([table.text(row) for row in chosen])
