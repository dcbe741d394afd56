"""Texts -> TF-IDF of their characters and pairs of characters -> logits that are linear in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sklearn.feature_extraction.text import TfidfVectorizer

MAX_CHARACTERS = 256  # of a text; what follows is not read


@dataclass(frozen=True)
class CharacterModel:
    """`method` is the name of how it was fitted. `ngrams` (num_ngrams,) are the n-grams that it knows, `idf`
    (num_ngrams,) their inverse document frequencies, `weights` (num_ngrams, num_outputs) and `bias`
    (num_outputs,) make the outputs: a logit for each label, or one number."""

    method: str
    ngrams: list[str]
    idf: np.ndarray
    weights: np.ndarray
    bias: np.ndarray

    @cached_property
    def vectorizer(self) -> TfidfVectorizer:
        vectorizer = character_vectorizer(vocabulary=self.ngrams, dtype=self.weights.dtype)
        vectorizer.idf_ = self.idf
        return vectorizer

    def features(self, texts: Sequence[str]) -> Any:
        """Return the TF-IDF of texts, sparse (num_texts, num_ngrams)."""
        return self.vectorizer.transform(beginnings(texts))

    def outputs(self, texts: Sequence[str]) -> np.ndarray:
        """Return the logits of texts, or their numbers, (num_texts, num_outputs)."""
        return self.features(texts) @ self.weights + self.bias


def character_vectorizer(**settings) -> TfidfVectorizer:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer="char", ngram_range=(1, 2), sublinear_tf=True, **settings)


def beginnings(texts: Sequence[str]) -> list[str]:
    return [text[:MAX_CHARACTERS] for text in texts]
