"""Fetch the public data sets that the ready configurations use.

    python -m app fetch --list
    python -m app fetch tnews vocab
    python -m app fetch all --from /media/usb                      on a machine without network
    python -m app fetch tnews --mirror https://mirror.example/sets

Each file is checked by its SHA-256, and another mirror is tried where one fails or sends another file.
Configurations name the files as public:NAME/FILE. `vocab` is the vocabulary of the models with random weights
in them. --list has the licence of each set: read it before you publish anything. Exit status: 0, 1 where no
mirror has a file, 2 for bad input.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from ..config.public_sets import PublicSet, fetched_folder, find_set, public_sets
from ..config.rules import Rule
from ..errors import InputError
from .parser import Parser, number


def build_parser(program: str) -> Parser:
    """Return the parser of the command line."""
    parser = Parser(program, __doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="data sets to fetch; all: every one")
    parser.add_argument("--list", action="store_true", help="list the data sets, and which of them are here")
    copied = "take the files from FOLDER/NAME/FILE or FOLDER/FILE instead of the network"
    parser.add_argument("--from", dest="source", type=Path, metavar="FOLDER", help=copied)
    mirror = "try URL/NAME/FILE first; may be repeated"
    parser.add_argument("--mirror", action="append", default=[], metavar="URL", help=mirror)
    slow = "seconds without an answer, after which the next mirror is tried (default: 20)"
    positive = Rule("above 0 seconds", lambda seconds: seconds > 0)
    parser.add_argument("--timeout", type=number(float, positive), default=20.0, metavar="SECONDS", help=slow)
    return parser


def run(argv: list[str], program: str) -> None:
    """List or fetch data sets; raises InputError for bad options and TrainingError for a missing file."""
    args = build_parser(program).parse_args(argv)
    if args.list:
        print(listing())
    elif not args.names:
        raise InputError(f"name a data set to fetch, or all; {program} --list lists them")
    names = list(public_sets()) if "all" in args.names else args.names
    for known in [find_set(name) for name in names]:
        fetch(known, args)


def fetch(known: PublicSet, args: argparse.Namespace) -> None:
    """Fetch the files of one set, and say where they are."""
    from ..data.fetching import place_file

    folder = fetched_folder() / known.name
    print(f"{known.name}: {known.title}; {known.origin}; licence: {known.licence}")
    for file in known.files:
        urls = [f"{url.rstrip('/')}/{known.name}/{file.name}" for url in args.mirror]
        source = None
        if args.source is not None:
            places = [args.source / known.name / file.name, args.source / file.name]
            source = next((place for place in places if place.is_file()), places[0])
        is_new = place_file(replace(file, urls=(*urls, *file.urls)), folder, args.timeout, source)
        print(f"  {folder / file.name}{'' if is_new else ' (was here)'}", flush=True)


def listing() -> str:
    """Return a line for each data set: size, whether it is here, what it is, origin and licence."""
    lines = []
    for known in public_sets().values():
        is_here = all((fetched_folder() / known.name / file.name).is_file() for file in known.files)
        size = sum(file.size for file in known.files) / 1e6
        lines.append(f"{known.name:20} {size:5.1f} MB  {'here' if is_here else '-':4}  {known.title}")
        lines.append(f"{'':36}origin: {known.origin}; licence: {known.licence}")
    return "\n".join([*lines, f"They are fetched into {fetched_folder()}"])
