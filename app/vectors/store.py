"""Vectors of texts in the cache, one by one by the content of the text: an SQLite file for each encoder."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError, TrainingError

if TYPE_CHECKING:
    from .encoder import TextEncoder

CHUNK_TEXTS = 64  # are computed, and kept, together; who closes a session waits for them
MAX_KEYS = 500  # in one query; SQLite has a limit
WAIT_SECONDS = 60  # for another process that writes
TABLE = "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID"


class VectorStore:
    """The vectors of one encoder, float16. What is kept is computed once; several processes may use the same
    file, and one that is killed loses the last `CHUNK_TEXTS` texts at most.

    Raises InputError for a file that is damaged, and TrainingError where it cannot be written.
    """

    def __init__(self, encoder: TextEncoder, cache_dir: str) -> None:
        self.encoder = encoder
        self.path = Path(cache_dir) / f"vectors-{encoder.key}.sqlite"

    def chunks(
        self, texts: Sequence[tuple[str, ...]], should_stop: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the places of some texts, (num_texts,), and their vectors, (num_texts, size) float16, until
        all are yielded or `should_stop`: first those that are kept, then the others, as they are computed."""
        places_left: list[int] = []
        for start in range(0, len(texts), MAX_KEYS):
            places = range(start, min(start + MAX_KEYS, len(texts)))
            stored = self._stored([texts[place] for place in places])
            if stored:
                yield start + np.array(list(stored)), np.stack(list(stored.values()))
            places_left += [place for place in places if place - start not in stored]
        for start in range(0, len(places_left), CHUNK_TEXTS):
            if should_stop():
                return
            places = places_left[start : start + CHUNK_TEXTS]
            chunk = [texts[place] for place in places]
            vectors = self.encoder.vectors(chunk).astype(np.float16)
            self._keep(chunk, vectors)
            yield np.array(places), vectors

    def vectors(self, texts: Sequence[tuple[str, ...]]) -> np.ndarray:
        """Return the vectors of one or more texts, (num_texts, size) float16."""
        all_places = []
        all_vectors = []
        for places, vectors in self.chunks(texts):
            all_places.append(places)
            all_vectors.append(vectors)
        return np.concatenate(all_vectors)[np.argsort(np.concatenate(all_places))]

    def _stored(self, texts: Sequence[tuple[str, ...]]) -> dict[int, np.ndarray]:
        """Return the vectors of those texts that have one, by their place."""
        place_of_key = {}
        for place, parts in enumerate(texts):
            place_of_key.setdefault(text_key(parts), place)
        marks = ", ".join("?" * len(place_of_key))
        query = f"SELECT key, vector FROM vectors WHERE key IN ({marks})"
        with self._database() as database:
            rows = database.execute(query, list(place_of_key)).fetchall()
        return {place_of_key[key]: np.frombuffer(vector, np.float16) for key, vector in rows}

    def _keep(self, texts: Sequence[tuple[str, ...]], vectors: np.ndarray) -> None:
        rows = []
        for parts, vector in zip(texts, vectors, strict=True):
            rows.append((text_key(parts), vector.tobytes()))
        with self._database() as database, database:
            database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=WAIT_SECONDS)) as database:
                database.execute(TABLE)
                yield database
        except (OSError, sqlite3.OperationalError) as error:
            problem = f"{self.path}: vectors must be kept in the cache, and this file cannot be used: {error}"
            raise TrainingError(f"{problem}; free space on the disk, or allow writing there") from error
        except sqlite3.DatabaseError as error:
            raise InputError(f"{self.path}: a file of vectors is needed, found {error}; remove it") from error


def text_key(parts: tuple[str, ...]) -> bytes:
    """Return a digest of a text, or of a pair of texts, by which its vector is kept."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        content = part.encode(errors="surrogatepass")
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.digest()
