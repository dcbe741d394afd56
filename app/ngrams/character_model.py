"""Texts -> TF-IDF of their characters and pairs of characters -> logits that are linear in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sklearn.feature_extraction.text import TfidfVectorizer

MAX_CHARACTERS = 256  # of a text; what follows is not read
MAX_LENGTH = 2  # characters of an n-gram


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

    def followed_by(self, function: Callable[[np.ndarray], np.ndarray]) -> CharacterModel:
        """Return the model whose outputs are a `function` of these. It gets and returns arrays (any number,
        num_outputs), and is linear, with a constant."""
        constant = function(np.zeros((1, len(self.bias))))
        weights = function(self.weights) - constant
        bias = function(self.bias[None])[0]
        return replace(self, weights=np.ascontiguousarray(weights, self.weights.dtype), bias=bias)

    def contributions(self, text: str) -> np.ndarray:
        """Return what each character of a text adds to the outputs, (num_characters, num_outputs): its part
        of each n-gram that it is in, which is exact because the model is linear. With the bias they add up
        to the outputs."""
        contributions = np.zeros((len(text), len(self.bias)))
        characters = read_characters(text[:MAX_CHARACTERS])
        places: dict[int, list[int]] = {}
        for length in range(1, MAX_LENGTH + 1):
            for start in range(len(characters) - length + 1):
                ngram = "".join(character for character, _position in characters[start : start + length])
                column = self.vectorizer.vocabulary_.get(ngram)
                if column is not None:
                    places.setdefault(column, []).append(start)
        features = self.features([text])
        for column, value in zip(features.indices.tolist(), features.data.tolist(), strict=True):
            starts = places.get(column, [])
            length = len(self.ngrams[column])
            for start in starts:
                for _character, position in characters[start : start + length]:
                    contributions[position] += value / len(starts) / length * self.weights[column]
        return contributions


def character_vectorizer(**settings) -> TfidfVectorizer:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer="char", ngram_range=(1, MAX_LENGTH), sublinear_tf=True, **settings)


def read_characters(text: str) -> list[tuple[str, int]]:
    """Return the characters that scikit-learn makes n-grams of, each with its position in the text: in lower
    case, and a space for several characters of white space."""
    characters: list[tuple[str, int]] = []
    for position, character in enumerate(text):
        if character.isspace() and position and text[position - 1].isspace():
            characters[-1] = (" ", characters[-1][1])
            continue
        characters += [(lower, position) for lower in character.lower()]
    return characters


def beginnings(texts: Sequence[str]) -> list[str]:
    return [text[:MAX_CHARACTERS] for text in texts]
