"""Loads a model again and again while its weights, and the logits of its run, are written in place, as `cp`
and a full disk do it. Ends with 0 where each load gives the right numbers or InputError.

python -m tests.prediction.files_that_change FOLDER
"""

import sys
import threading
from pathlib import Path

from app.errors import InputError
from app.evaluation.logits_file import LOGITS, read_logits
from chinese_text_classifier import load

LOADS, PIECES = 40, 8


def write_in_place(contents: dict[Path, bytes], done: threading.Event) -> None:
    """Write files again and again until it is `done`; each is whole for a moment, and whole at the end."""
    while not done.is_set():
        for path, content in contents.items():
            size = -(-len(content) // PIECES)
            with path.open("wb", 0) as file:
                for start in range(0, len(content), size):
                    file.write(content[start : start + size])
                    done.wait(0.001)
            done.wait(0.02)


def main(folder: Path) -> int:
    """Return 0, or 1 for wrong numbers."""
    wanted = load(folder, device="cpu").predict_proba(["今天"]).tolist()
    logits = read_logits(folder / LOGITS).splits["dev"].logits.tolist()
    contents = {path: path.read_bytes() for path in (folder / "model.safetensors", folder / LOGITS)}
    done, refused, found = threading.Event(), [], []
    writer = threading.Thread(target=write_in_place, args=[contents, done])
    writer.start()
    for _ in range(LOADS):
        try:
            found.append(load(folder, device="cpu").predict_proba(["今天"]).tolist() == wanted)
        except InputError as error:
            refused.append(str(error))
        try:
            found.append(read_logits(folder / LOGITS).splits["dev"].logits.tolist() == logits)
        except InputError as error:
            refused.append(str(error))
    done.set()
    writer.join()
    found.append(load(folder, device="cpu").predict_proba(["今天"]).tolist() == wanted)
    sys.stdout.write(f"{len(found)} loaded, {len(refused)} refused: {refused[-1:]}\n")
    return 0 if all(found) and refused else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
