"""Bring the Chinese catalogue up to date with the sentences in the code:

python scripts/messages.py

New messages are added to app/locale/zh_CN/LC_MESSAGES/app.po without a translation, those that no code has
are removed, and app.mo is compiled from it. Then fill in what it lists, and call it again.
"""

import argparse
import io
import sys
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

APP = Path(__file__).resolve().parents[1] / "app"
PO = APP / "locale" / "zh_CN" / "LC_MESSAGES" / "app.po"
MO = PO.with_suffix(".mo")
METHODS = [("**.py", "python"), ("**.jinja", "jinja2")]
KEYWORDS = {"_": None, "N_": None, "pgettext": ((1, "c"), 2)}
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


def compiled(catalog: Catalog) -> bytes:
    """Return what app.mo has for a catalogue."""
    content = io.BytesIO()
    write_mo(content, catalog)
    return content.getvalue()


def main() -> int:
    """Update both files; return 1 where a message has no translation."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    catalog = read_catalog()
    created = catalog.creation_date
    catalog.update(extracted(), no_fuzzy_matching=True, update_header_comment=False)
    catalog.obsolete.clear()
    # Else the file would change each time
    catalog.creation_date = created
    with PO.open("wb") as file:
        write_po(file, catalog, width=WIDTH, no_location=True)
    MO.write_bytes(compiled(catalog))
    missing = [message.id for message in catalog if message.id and not message.string]
    for message in missing:
        print(f"{PO.name}: no translation of: {message}")  # noqa: T201
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
