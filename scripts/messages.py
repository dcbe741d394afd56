"""Bring the Chinese catalogue up to date with the sentences in the code:

python scripts/messages.py

New messages are added to app/locale/zh_CN/LC_MESSAGES/app.po without a translation, those that no code has
are removed. Then fill in what it lists, and call it again. The program reads app.po itself.
"""

import argparse
import sys
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po

APP = Path(__file__).resolve().parents[1] / "app"
PO = APP / "locale" / "zh_CN" / "LC_MESSAGES" / "app.po"
METHODS = [("**.py", "python"), ("**.jinja", "jinja2")]
KEYWORDS = {"_": None, "N_": None, "ngettext": (1, 2), "pgettext": ((1, "c"), 2)}
WIDTH = 110


def extracted() -> Catalog:
    """Return the messages of the code, without translations."""
    catalog = Catalog()
    found = extract_from_dir(APP, METHODS, keywords=KEYWORDS)
    for _file, _line, message, _comments, context in sorted(found, key=lambda one: one[:2]):
        catalog.add(message, context=context)
    return catalog


def read_catalog() -> Catalog:
    """Return the catalogue of app.po."""
    with PO.open("rb") as file:
        return read_po(file, locale="zh_CN")


def has_translation(message: Message) -> bool:
    """Return whether a message has its Chinese; one with a plural has a tuple of one string."""
    if message.pluralizable:
        return all(message.string)
    return bool(message.string)


def main() -> int:
    """Update app.po; return 1 where a message has no translation."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    catalog = read_catalog()
    created = catalog.creation_date
    catalog.update(extracted(), no_fuzzy_matching=True, update_header_comment=False)
    catalog.obsolete.clear()
    # Else the file would change each time
    catalog.creation_date = created
    with PO.open("wb") as file:
        # In the order of the alphabet, so that a moved sentence changes nothing here
        write_po(file, catalog, width=WIDTH, no_location=True, sort_output=True)
    missing = [message.id for message in catalog if message.id and not has_translation(message)]
    for message in missing:
        print(f"{PO.name}: no translation of: {message}")  # noqa: T201
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
