"""Fetch the public data sets that configs/*.yaml name, into a folder.

    python scripts/fetch_data.py data/public tnews vocab
    python scripts/fetch_data.py data/public all

Each file is checked by its SHA-256, and another mirror is tried where one fails. `vocab` is the vocabulary of
the models with random weights in these configurations. Needs pooch: pip install -r requirements/data.txt
"""

import argparse
import sys
from pathlib import Path

SETS = {
    "weibo_emotion6": "Weibo posts, six emotions: 40,133 rows; CCF TCCI 2018 emotion data, as in "
    "taishan1994/pytorch-distributed-NLP; no licence found, research use",
    "waimai_10k": "takeaway reviews, positive or negative: 11,987 rows; SophonPlus/ChineseNlpCorpus; no "
    "licence stated",
    "smp2020_ewect_usual": "Weibo posts, six emotions: 27,766, 2,000 and 5,000 rows; SMP2020-EWECT, as in "
    "dbiir/UER-py; Apache-2.0 (that repository)",
    "tnews": "news titles, 15 classes: 53,360 and 10,000 rows; CLUE TNEWS, as in zejunwang1/bertorch; "
    "Apache-2.0 (that repository)",
    "csl13": "titles of papers, 13 disciplines: 8,000, 1,000 and 1,000 rows; ydli-ai/CSL; Apache-2.0",
    "afqmc": "pairs of questions, same meaning or not: 34,334 and 4,316 rows; CLUE AFQMC, as in "
    "zejunwang1/bertorch; Apache-2.0 (that repository)",
    "vocab": "the vocabulary of BERT-Base Chinese: 21,128 tokens; google-research/bert, as in dbiir/UER-py; "
    "Apache-2.0",
}
# The SHA-256 of each file that our figures were measured with, and the folder of a repository that has it
FILES = {
    "weibo_emotion6/train.json": (
        "6bf592cf7016019b28272f1fcf54bc31afe6ad15bbc60970ca521ff394524a50",
        "taishan1994/pytorch-distributed-NLP@aa378658c859421af934dee8a3690a59f8d5d2c8/data",
    ),
    "waimai_10k/waimai_10k.csv": (
        "b8b5c11c00b51578d35937fca56e03a126b45381f1ea4b22893237cb377a26fe",
        "SophonPlus/ChineseNlpCorpus@032ed697ea6b37f6b99b2203c8fdbe0a9b47fd3e/datasets/waimai_10k",
    ),
    "smp2020_ewect_usual/train.tsv": (
        "6c086ef4f16a0db11ac987fd64e5e80ceaedfa6990758d0ead061d1d51aea0e6",
        "dbiir/UER-py@de9803d6b8402073f41c93dd2ddff0faea681cc5/datasets/smp2020-ewect/usual",
    ),
    "smp2020_ewect_usual/dev.tsv": (
        "e6da8d033b7da031b4daf2339ce9fc4391741d4b3cb12883f38cd78a4a7723d6",
        "dbiir/UER-py@de9803d6b8402073f41c93dd2ddff0faea681cc5/datasets/smp2020-ewect/usual",
    ),
    "smp2020_ewect_usual/test.tsv": (
        "154ac29c733b4448defa07f8601473f199d6cc1fc55f9317b64cb0d75f55cd77",
        "dbiir/UER-py@4c98bdb43dcdf7406c555cf7239dd232a7a8b72d/datasets/smp2020-ewect/usual",
    ),
    "tnews/train.tsv": (
        "568044502f315abb4da0c36f06255d07932de7a7d4f8a488e267a5bb2f6aa8e4",
        "zejunwang1/bertorch@2bb239dc44274962411f5d5cd15da3d8a80c3976/data/tnews",
    ),
    "tnews/dev.tsv": (
        "dd51816b956838a5bfaf67310dc3bb511d310eec316a9571947f468dd36efd04",
        "zejunwang1/bertorch@2bb239dc44274962411f5d5cd15da3d8a80c3976/data/tnews",
    ),
    "csl13/train.tsv": (
        "a9680e3952b4f2d2bb70792ca94c391d956607bff48ffcc182cbe152d86b67f2",
        "ydli-ai/CSL@7533806e5946f22d7a8bc601c15758632a21a9c3/benchmark/cls_ctg",
    ),
    "csl13/dev.tsv": (
        "7549de53ae2a29f1fe014b250ea53324b7dcaaca7b7ca5c10cb9f17fec769751",
        "ydli-ai/CSL@7533806e5946f22d7a8bc601c15758632a21a9c3/benchmark/cls_ctg",
    ),
    "csl13/test.tsv": (
        "337cace3a8854f993dca462c9ae34e785beaccd016e11c938016c79c91ca9c83",
        "ydli-ai/CSL@7533806e5946f22d7a8bc601c15758632a21a9c3/benchmark/cls_ctg",
    ),
    "afqmc/train.txt": (
        "48642eebd4dcd2fa099ad20b47fdbda456bdc396f8359aa4384a452a36f31eb7",
        "zejunwang1/bertorch@2bb239dc44274962411f5d5cd15da3d8a80c3976/data/AFQMC",
    ),
    "afqmc/dev.txt": (
        "bd5136527078950a4d624a3d903ce86950cafb26b5092559b64c418e015f0df3",
        "zejunwang1/bertorch@2bb239dc44274962411f5d5cd15da3d8a80c3976/data/AFQMC",
    ),
    "vocab/google_zh_vocab.txt": (
        "45bbac6b341c319adc98a532532882e91a9cefc0329aa57bac9ae761c27b291c",
        "dbiir/UER-py@de9803d6b8402073f41c93dd2ddff0faea681cc5/models",
    ),
}
MIRRORS = (
    ("https://raw.githubusercontent.com/", "/"),
    ("https://cdn.jsdelivr.net/gh/", "@"),
    ("https://fastly.jsdelivr.net/gh/", "@"),
)


def fetch(name: str, folder: Path) -> None:
    """Put the file SET/NAME into the folder, unless it is there."""
    try:
        import pooch
    except ImportError:
        sys.exit("this script needs pooch: pip install -r requirements/data.txt -c constraints.txt")
    sha256, place = FILES[name]
    path, problems = folder / name, []
    if path.exists():
        if pooch.file_hash(str(path)) == sha256:
            return
        sys.exit(f"{path} is there and is not the known file; move it away")
    for mirror, sign in MIRRORS:
        url = f"{mirror}{place.replace('@', sign)}/{path.name}"
        try:
            pooch.retrieve(url, f"sha256:{sha256}", fname=path.name, path=path.parent)
            return
        except (OSError, ValueError) as error:  # a ValueError is another SHA-256
            problems.append(f"  {url}: {error}\n")
    sys.exit(f"no mirror has {name}:\n{''.join(problems)}try again, or copy the file to {path} yourself")


def main() -> None:
    about = "\n".join(f"  {name}: {text}" for name, text in SETS.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"sets, with origin and licence:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="SET/NAME is written into it")
    parser.add_argument(
        "sets", nargs="+", metavar="SET", choices=[*SETS, "all"], help="sets to fetch, or all"
    )
    args = parser.parse_args()
    for name in FILES:
        if "all" in args.sets or name.partition("/")[0] in args.sets:
            fetch(name, args.folder)


if __name__ == "__main__":
    main()
