"""The encoding of a file, and its lines as text."""

from __future__ import annotations

import codecs
import io
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from ..errors import InputError, excerpt, listed, nearest, reading, shorten

# The first bytes of files that are no text; `datasets.save_to_disk` writes streams of Arrow
PARQUET_FILE = b"PAR1\x15"
ARROW_FILE = b"ARROW1\x00\x00"
ARROW_STREAM = b"\xff\xff\xff\xff"
ZIP_FILE = b"PK\x03\x04"  # .xlsx and .ods
OLD_WORKBOOK = b"\xd0\xcf\x11\xe0"  # .xls
PACKED_FILES = (b"\x1f\x8b", b"BZh91AY", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")  # gzip, bzip2, xz, Zstandard
# Files that begin so are refused, unless the `magic` of their format has these bytes
MAGIC = (*PACKED_FILES, ZIP_FILE, OLD_WORKBOOK, PARQUET_FILE, ARROW_FILE, ARROW_STREAM, codecs.BOM_UTF32_LE)
BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
BYTE_ORDER_MARK = "\ufeff"
START = 1 << 20  # bytes at the beginning of a file that are looked at
BLOCK_ROWS = 2048  # lines, or rows, that are read together
# In these encodings the bytes of UTF-8 are often valid too, and mean other characters.
CHINESE_ENCODINGS = {"gb18030", "gbk", "gb2312", "big5", "big5hkscs", "cp950"}
FIRST_CHINESE = "\u0800"  # from here on a character takes three bytes or more in UTF-8

# The 600 most frequent characters of six public sets of Chinese texts (reviews, news, posts, papers). They
# are 0.76 to 0.79 of the characters of three other sets, and half or more of eight characters in a row in 95
# of 100 places. Of Korean, Japanese or traditional Chinese text that is decoded as GB18030 by mistake they
# are 0.03 to 0.18, and nowhere more than half.
COMMON_CHARACTERS = frozenset(
    "的了不呗是我一学花么还有为人在个用好工能到时没借款中分以什大送怎可这行你上就吗国多来度开都要生会很吃"
    "后点小发法理下子天期对家也日和道出说月年研过经机里究自动太现赛成心次想最餐通付前手与额电钱于蚁地关看"
    "蚂性新方事给系得快如定车样产外去真支化全少起们特及他面高提收品美基结味被合间意公体比无回两信单那打应"
    "实号已之宝然场业网何三错菜市才只退制影本再布别女话果农着东西进其但交力肉量医感饭知水第员管加术费让因"
    "金种联又今司计慢组情长物明买等作老哪啊价商响候球型死差气己战同难主超速消服式些卡做析区重解使当而息问"
    "常文数口军设账相安完技变半直评世算将竞正觉利友路胜离元爱展几队示非吧海态名万级米总福部二务育从十教取"
    "统斯儿接办油原把模活卖织线论换位资负流南报者改放建游火入晚身近微强思界代表男订头质光幸更份值件内北哈"
    "婚码证复清马风验平每店料易包所记续热装配程目保红处望喜考见害百题达显饼空失四连银山传京选受持泪该冠格"
    "认伤效却扣白凉请优干注职功条师跟测备妈转她欢满士约门越星治向像首走乐民器带豆鸡标低王维控城般决足探五"
    "导案济钟双艺土余江久房调运造史块试尔客谢哥科构股临查片求告停据辣刚历限华局神视并户周创德色拉边呢闭排"
    "货找林素拿观任未蛋推汤准预亡终张罗反底亚早逾午州集图卷升财获源丝且较挺病确投台整谁先此立语龙赞牛岁村"
    "征深灾根笑博除英校云克击玩省辞购苦院需青念黄团香够至申录票诉列规远落宣轮贷共孩讨降权疗节极精广淘致黑"
)
MIN_COMMON_SHARE = 0.5
MIN_LETTERS = 3  # fewer characters say nothing
COUNTED_LETTERS = 100_000  # characters that are enough to recognise GB18030
MAX_BROKEN_LINES = 20  # lines with a bad byte in a file of GB18030 that are named


@dataclass(frozen=True)
class Stream:
    """An open binary file that can be read once, such as standard input; messages call it `name`."""

    name: str
    file: BinaryIO
    suffix = ""

    def __str__(self) -> str:
        return self.name


Source = Path | Stream


def read_start(path: Source) -> bytes:
    """Return the first bytes of a file, up to `START`; those of a stream remain to be read."""
    # This also fails for a name that is too long, or a folder that may not be entered
    with reading(path):
        if isinstance(path, Stream):
            start = path.file.peek(START)
        elif path.is_file():
            with path.open("rb") as file:
                start = file.read(START)
        else:
            raise InputError(f"{path}: {_what_is_there(path)}")
    if not start:
        raise InputError(f"{path}: there are no rows, the file is empty")
    return start


def _what_is_there(path: Path) -> str:
    if path.exists():
        return "a regular file is needed, found a folder or pipe; save its content to a file"
    hint = ""
    if path.parent.is_dir():
        hint = nearest(path.name, os.listdir(path.parent))
    return f"there is no such file{hint}"


def file_encoding(path: Source, encoding: str) -> str:
    """Return the encoding of a file. The byte order mark decides, else the content where it leaves no doubt,
    else the setting `encoding`:

    - The setting is UTF-8, and the file is Chinese text in GB18030 to its last byte, as Excel writes it:
      gb18030. A file with lines in both stays UTF-8, which reports them.
    - The setting is a Chinese encoding, and the file is valid UTF-8 with Chinese characters: utf-8.

    Of a stream only the beginning is looked at, and GB18030 is not recognised. Raises InputError for a file
    that cannot be read, an encoding that Python does not know, UTF-16 without a mark, and a file that is
    GB18030 but for a few lines.
    """
    encoding = known_encoding(encoding)
    start = read_start(path)
    marked_encoding = _encoding_of_mark(start)
    if marked_encoding:
        return marked_encoding
    if isinstance(path, Stream):
        if encoding in CHINESE_ENCODINGS and _begins_in_chinese_utf_8(start):
            return "utf-8"
        return encoding
    if start.startswith(MAGIC):
        return encoding
    if encoding in ("utf-16", "utf-32"):
        remedy = f"set --data.encoding to utf-8, {encoding}-le or {encoding}-be"
        raise InputError(f"{path}: {encoding} needs its byte order mark, found none; {remedy}")
    if encoding == "utf-8":
        unmarked = _unmarked_utf_16(start)
        if unmarked:
            raise InputError(
                f"{path}: {unmarked} text without a byte order mark; set --data.encoding {unmarked}"
            )
        if _is_gb18030(path):
            return "gb18030"
        return encoding
    if encoding in CHINESE_ENCODINGS and _is_chinese_utf_8(path):
        return "utf-8"
    return encoding


def known_encoding(encoding: str) -> str:
    """Return Python's name of a text encoding; raises InputError where there is no such encoding."""
    try:
        # Some codecs are not for text, or cannot continue after a bad byte
        "a".encode(encoding).decode(encoding, "surrogateescape")
        return codecs.lookup(encoding).name
    except (LookupError, ValueError) as error:
        rule = "data.encoding must be a text encoding that Python knows"
        raise InputError(f"{rule}, found '{shorten(encoding)}'; try utf-8 or gb18030") from error


def _encoding_of_mark(start: bytes) -> str | None:
    if start.startswith(codecs.BOM_UTF32_LE):
        return None
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if start.startswith(mark):
            return encoding
    return None


def _unmarked_utf_16(start: bytes) -> str | None:
    """Return utf-16-le or utf-16-be where the first bytes are text in it, else None. The line ends, digits
    and letters of UTF-16 have a byte 0 each, which no other text has."""
    if b"\0" not in start:
        return None
    for encoding in ("utf-16-le", "utf-16-be"):
        text = start[: len(start) // 2 * 2].decode(encoding, "replace")
        # The last character may be cut in half
        other_characters = set(text[:-1]).difference("\t\r\n")
        if "\n" in text and all(map(str.isprintable, other_characters)):
            return encoding
    return None


def _is_chinese_utf_8(path: Path) -> bool:
    has_chinese = False
    with path.open("rb") as file:
        for line in file:
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError:
                return False
            has_chinese = has_chinese or max(text) >= FIRST_CHINESE
    return has_chinese


def _begins_in_chinese_utf_8(start: bytes) -> bool:
    try:
        # The last character may be cut in half
        text, _num_bytes = codecs.utf_8_decode(start, "strict", False)
    except UnicodeDecodeError:
        return False
    return max(text, default="") >= FIRST_CHINESE


def _is_gb18030(path: Path) -> bool:
    """Return whether a file is Chinese text in GB18030. Raises InputError where it is but for a few lines."""
    letters = ""
    broken_lines = []
    is_utf_8 = True
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.isascii():
                continue
            text = _decoded(line, "utf-8")
            # Characters of two bytes in UTF-8 are often GBK as well
            if text and max(text) >= FIRST_CHINESE:
                return False
            is_utf_8 = is_utf_8 and text is not None
            text = _decoded(line, "gb18030")
            if text is None:
                broken_lines.append(number)
                if len(broken_lines) > MAX_BROKEN_LINES:
                    return False
            elif len(letters) < COUNTED_LETTERS:
                letters += re.sub("[^\u3040-\ufeff]", "", text)
    # A file whose lines are all valid UTF-8 is UTF-8, for instance in Greek letters
    if is_utf_8 or not _is_usual_chinese(letters):
        return False
    if broken_lines:
        raise InputError(
            f"{path}: GB18030 text, but for invalid bytes in lines {listed(broken_lines)}; fix these lines, "
            "or set --data.encoding gb18030, and --data.on_bad_row skip to leave them out"
        )
    return True


def _decoded(line: bytes, encoding: str) -> str | None:
    try:
        return line.decode(encoding)
    except UnicodeDecodeError:
        return None


def _is_usual_chinese(letters: str) -> bool:
    if len(letters) < MIN_LETTERS:
        return False
    num_common = sum(map(COMMON_CHARACTERS.__contains__, letters))
    return num_common > MIN_COMMON_SHARE * len(letters)


def without_mark_at_start(encoding: str) -> str:
    """Return the name of an encoding whose decoder leaves out the mark at the beginning of a file."""
    if encoding == "utf-8":
        return "utf-8-sig"
    return encoding


def _opened(path: Source) -> AbstractContextManager[BinaryIO]:
    """Return a context with the bytes of a file. A stream is not closed at its end."""
    if isinstance(path, Stream):
        return nullcontext(path.file)
    return path.open("rb", START)


def line_blocks(path: Source, encoding: str, keeps_marks: bool = False) -> Iterator[list[str]]:
    """Yield the lines of a file, in lists; LF, CR, or both end a line. Bytes that cannot be decoded become
    surrogates, which `wrong_character` reports. A byte order mark at the beginning of a line is left out
    unless `keeps_marks`: the mark of a file that was appended to another one stands there."""
    codec = without_mark_at_start(encoding)
    errors = "surrogatepass"
    # UTF-16 has no single bytes that could be kept
    if "\n".encode(encoding) == b"\n":
        errors = "surrogateescape"
    number = 1
    try:
        with _opened(path) as file:
            text = io.TextIOWrapper(file, codec, errors, newline="")
            while lines := list(islice(text, BLOCK_ROWS)):
                if not keeps_marks and BYTE_ORDER_MARK in "".join(lines):
                    lines = [line.removeprefix(BYTE_ORDER_MARK) or "\n" for line in lines]
                yield lines
                number += len(lines)
    except UnicodeError as error:
        why = getattr(error, "reason", error)
        raise InputError(
            f"{path}, line {number} or later: not valid {encoding} text ({why}); set --data.encoding"
        ) from error


def wrong_character(text: str, role: str) -> str | None:
    """Return what is wrong with a text that has bytes that could not be decoded, or unpaired surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        damage = f"unpaired surrogate U+{code:04X}"
        if 0xDC80 <= code <= 0xDCFF:
            damage = f"invalid byte 0x{code - 0xDC00:02x}"
        remedy = "fix the file or set --data.encoding (gb18030, big5, utf-16-le)"
        return f"{damage} in the {role} {excerpt(text)}; {remedy}"
    return None
