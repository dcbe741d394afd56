"""What `predict --engine ray` does, by hand: a few lines over Ray Data's `map_batches`, to be changed.

pip install . -r requirements/ray.txt -c constraints.txt       on every machine of the cluster
python examples/ray_predict.py --checkpoint checkpoints/sample-001 --input posts/ --output labels/
python examples/ray_predict.py --checkpoint bert/ --input posts/ --output labels/ --actors 8 --gpus 1

It reads Parquet. All machines must see the checkpoint, the input and the output under these names. Ray
starts on this machine, or joins the cluster of RAY_ADDRESS: leave it a core, because its readers need one
too. The rows are not in the order of the input, the number in `reason` counts within a batch, and a job that
was stopped begins again, in another folder: `predict --engine ray` continues.
"""

from __future__ import annotations

import argparse

import pyarrow as pa

from chinese_text_classifier import load

# As `predict` computes them together
BATCH_ROWS = 2048


class Classifier:
    """An actor: it opens the model once, and classifies one batch after the other."""

    def __init__(self, checkpoint: str, text_column: str) -> None:
        self.model = load(checkpoint)
        self.text_column = text_column

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Return the rows of a batch with their predictions; no column is replaced."""
        predictions = self.model.predict_table(batch[self.text_column].fill_null("").to_pylist())
        for name in predictions.column_names:
            free = name
            while free in batch.column_names:
                free = f"predicted_{free}"
            batch = batch.append_column(free, predictions[name])
        return batch


def main() -> None:
    """Classify what the command line names, and check that every row is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--checkpoint", required=True, help="a run, a checkpoint of transformers or an exported folder")
    add("--input", required=True, help="a Parquet file, or a folder of them")
    add("--output", required=True, help="a new folder")
    add("--text_column", default="text", help="default: text")
    add("--actors", type=int, default=1, help="processes that classify (default: 1)")
    add("--cpus", type=float, default=1, help="cores of each, which are its threads too (default: 1)")
    add("--gpus", type=float, default=0, help="GPUs of each (default: 0)")
    args = parser.parse_args()

    import ray
    from ray.data import ActorPoolStrategy, SaveMode

    posts = ray.data.read_parquet(args.input)
    labelled = posts.map_batches(
        Classifier,
        fn_constructor_args=(args.checkpoint, args.text_column),
        batch_format="pyarrow",
        batch_size=BATCH_ROWS,
        compute=ActorPoolStrategy(size=args.actors),
        num_cpus=args.cpus,
        num_gpus=args.gpus,
    )
    labelled.write_parquet(args.output, mode=SaveMode.ERROR)
    needed, found = posts.count(), ray.data.read_parquet(args.output).count()
    if needed != found:
        raise SystemExit(f"{args.output}: {needed:,} rows are needed, found {found:,}; classify them again")
    print(f"{args.output}: {found:,} rows")


if __name__ == "__main__":
    main()
