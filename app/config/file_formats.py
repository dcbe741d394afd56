"""The formats of data files: to add one, write its reader in app/data/readers/ and its entry here."""

from typing import NamedTuple


class FileFormat(NamedTuple):
    """One format: the module and class that read it, and the endings of names that stand for it.

    `row_unit` is what the number of a row counts. `has_header`: the first row may have the names of the
    columns. `magic`: the bytes with which a file begins that is no text, nothing for text. `library`: the
    package that reads it, where it may be missing.
    """

    reader: str
    suffixes: tuple[str, ...] = ()
    row_unit: str = "line"
    has_header: bool = False
    magic: bytes = b""
    library: str | None = None

    @property
    def is_delimited(self) -> bool:
        """Whether a row is fields of text, with something between them."""
        return self.has_header and not self.magic


FORMATS = {
    "csv": FileFormat("..data.readers.delimited:CsvReader", (".csv",), has_header=True),
    "tsv": FileFormat("..data.readers.delimited:TsvReader", (".tsv", ".txt", ".tab"), has_header=True),
    "semicolon": FileFormat("..data.readers.delimited:SemicolonReader", has_header=True),
    "pipe": FileFormat("..data.readers.delimited:PipeReader", has_header=True),
    "json": FileFormat("..data.readers.json_files:JsonReader", (".json",), "element"),
    "jsonl": FileFormat("..data.readers.json_files:JsonLinesReader", (".jsonl", ".ndjson")),
    "parquet": FileFormat(
        "..data.readers.parquet:ParquetReader",
        (".parquet", ".pq"),
        "row",
        magic=b"PAR1\x15",
        library="pyarrow",
    ),
    "xlsx": FileFormat(
        *("..data.readers.excel:ExcelReader", (".xlsx", ".xlsm"), "row"),
        has_header=True,
        magic=b"PK\x03\x04",
        library="openpyxl",
    ),
    "text": FileFormat("..data.readers.plain_text:PlainTextReader"),
}
SUFFIXES = {suffix: name for name, format in FORMATS.items() for suffix in format.suffixes}
