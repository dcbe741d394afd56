"""The formats of data files, by the names that data.format has."""

from typing import NamedTuple


class FileFormat(NamedTuple):
    """One format: the endings of names that stand for it.

    `row_unit` is what the number of a row counts. `delimiter` is between two fields of a line, and
    `is_quoted` whether double quotes may enclose them. `magic`: the bytes with which a file begins that is no
    text. `library`: the package that reads it, where it may be missing.
    """

    suffixes: tuple[str, ...] = ()
    row_unit: str = "line"
    delimiter: str = ""
    is_quoted: bool = False
    magic: tuple[bytes, ...] = ()
    library: str | None = None

    @property
    def has_header(self) -> bool:
        """Whether the first row may have the names of the columns."""
        return bool(self.delimiter) or self.library == "python_calamine"


FORMATS = {
    "csv": FileFormat((".csv",), delimiter=",", is_quoted=True),
    "tsv": FileFormat((".tsv", ".txt", ".tab"), delimiter="\t"),
    "semicolon": FileFormat(delimiter=";", is_quoted=True),
    "pipe": FileFormat(delimiter="|"),
    "json": FileFormat((".json",), "element"),
    "jsonl": FileFormat((".jsonl", ".ndjson")),
    "parquet": FileFormat((".parquet", ".pq"), "row", magic=(b"PAR1\x15",), library="pyarrow"),
    "xlsx": FileFormat(
        (".xlsx", ".xlsm", ".xls", ".ods"),
        "row",
        magic=(b"PK\x03\x04", b"\xd0\xcf\x11\xe0"),
        library="python_calamine",
    ),
    "fasttext": FileFormat(),
    "text": FileFormat(),
}
SUFFIXES = {suffix: name for name, format in FORMATS.items() for suffix in format.suffixes}
