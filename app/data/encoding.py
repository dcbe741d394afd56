"""Texts -> token ids with anybody's tokenizer: where it fails, even by a panic in Rust, is an input error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import InputError, excerpt, first_line

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

REMEDY = "repair its tokenizer.json, or choose another model"
# Chinese, Latin, a digit, punctuation, and a character that no vocabulary has.
PROBES = ("好a1。", "\ue000", ("好", "好a"))


@contextmanager
def guarded(problem: str) -> Iterator[None]:
    """Raise InputError, `problem` and the cause, where a tokenizer fails inside. The library raises plain
    `Exception`, and for a panic an exception that is none."""
    try:
        yield
    except InputError:
        raise
    except BaseException as error:  # noqa: BLE001
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise InputError(f"{problem}: {first_line(error)}; {REMEDY}") from error


def check_tokenizer(tokenizer: Tokenizer, source: str) -> None:
    """Raise InputError unless a tokenizer encodes any text and pair as tokens of its vocabulary. Turns its
    padding and truncation off. `source`: where it came from, for messages."""
    with guarded(f"the tokenizer of {source} cannot encode a text"):
        tokenizer.no_padding()
        tokenizer.no_truncation()
        encodings = [
            tokenizer.encode(*texts) if isinstance(texts, tuple) else tokenizer.encode(texts)
            for texts in PROBES
        ]
        known = set(tokenizer.get_vocab().values())
    if not encodings[0].ids:
        raise InputError(f"the tokenizer of {source} makes no token of {excerpt(PROBES[0])}; {REMEDY}")
    strange = sorted({token for encoding in encodings for token in encoding.ids} - known)
    if strange:
        raise InputError(
            f"the tokenizer of {source} must make tokens of its vocabulary only, found the id "
            f"{strange[0]:,}, perhaps in its post_processor; {REMEDY}"
        )


def highest_id(tokenizer: Tokenizer) -> int:
    """Return the highest id of a token; ids may have gaps."""
    return max(tokenizer.get_vocab().values(), default=-1)


def encode_batch(
    tokenizer: Tokenizer, texts: Sequence[str | tuple[str, str]], place: Callable[[int], str]
) -> list[Encoding]:
    """Return the encodings of texts or pairs. Raises InputError for a text that cannot be encoded, naming its
    `place`, of its index."""
    try:
        return tokenizer.encode_batch_fast(texts)
    except BaseException:  # noqa: BLE001
        for index, text in enumerate(texts):
            with guarded(f"{place(index)}: the tokenizer cannot encode {excerpt(text)}"):
                tokenizer.encode_batch_fast([text])
        raise
