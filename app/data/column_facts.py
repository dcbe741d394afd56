"""What people are told of the columns of a file."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..words import N_, _, in_language, joined

ROLES = {
    "text": N_("text"),
    "label": N_("label"),
    "second text": N_("second text"),
    "probabilities": N_("probabilities"),
    "votes": N_("votes"),
}


@dataclass(frozen=True)
class ColumnFacts:
    """The columns of a file, for the data report; the cache keeps them.

    `roles` has the names of the columns by what they hold, a key of `ROLES`; it is empty for texts that are
    in no table. `unused` are the names of the others, and `unused_texts` of those of them that hold texts.
    `encoding` is there where it is not UTF-8; `overruled_encoding` is the one that was set, where the file
    has another one. `sheet` is that of a workbook, where one was set or others have values too:
    `other_sheets`, which are not read. `unused_sheet` is the one that was set for a file that is no workbook.
    `format` is there where the ending of the file's name stands for another separator.
    """

    roles: Mapping[str, str] = field(default_factory=dict)
    unused: str = ""
    unused_texts: str = ""
    encoding: str = ""
    overruled_encoding: str = ""
    sheet: str = ""
    other_sheets: str = ""
    unused_sheet: str = ""
    format: str = ""

    def described(self) -> str:
        """Return the facts in words of the current language."""
        names = [f"{_(ROLES[role])} {columns}" for role, columns in self.roles.items()]
        words = joined(names)
        if not names:
            words = _("texts without columns")
        if self.unused:
            words += _("; not used: {columns}").format(columns=self.unused)
        if self.unused_texts:
            message = _(
                "; {columns} has texts too: set --data.text_pair_column for pairs, or name both in "
                "--data.text_column"
            )
            words += message.format(columns=self.unused_texts)
        if self.overruled_encoding:
            message = _("; encoding {encoding}, not {setting} as set")
            words += message.format(encoding=self.encoding, setting=self.overruled_encoding)
        elif self.encoding:
            words += _("; encoding {encoding}").format(encoding=self.encoding)
        if self.other_sheets:
            message = _("; only its sheet {sheet} is read, not {others}: --data.sheet names another one")
            words += message.format(sheet=self.sheet, others=self.other_sheets)
        elif self.sheet:
            words += _("; sheet {sheet}").format(sheet=self.sheet)
        if self.unused_sheet:
            words += _("; no workbook, so data.sheet {sheet} is not used").format(sheet=self.unused_sheet)
        if self.format:
            words += _("; read as {format}").format(format=self.format)
        return words

    def in_english(self) -> str:
        """Return the facts in English words, for errors and the log."""
        with in_language("en"):
            return self.described()
