"""Bytes that no honest client sends to a server, a new mixture for each number."""

import json
import random
from typing import NamedTuple

TYPES = (
    "application/json",
    "application/json; charset=gbk",
    "text/plain",
    "multipart/form-data",
    "a" * 300,
    "",
    "\xff\x00",
)
NUMBERS = ("1e999", "-0", "9" * 5000, "NaN", "Infinity", "-1", "0", "true", '"3"', "1.5", "null", "[]")


class Hostile(NamedTuple):
    """What is sent; `is_whole` says that the server has all that it waits for, so an answer must come."""

    raw: bytes
    is_whole: bool


def text(generator: random.Random) -> str:
    """Return a text as JSON, often with characters that are not allowed, or not a text at all."""
    return generator.choice(
        [
            lambda: '"\\\\ud800"'.replace("\\\\", "\\"),
            lambda: '"今天\\udc00\\ud800"',
            lambda: '"\\u0000\\u202e\\ufeff"',
            lambda: json.dumps(
                "".join(chr(generator.randrange(1, 0xD7FF)) for _ in range(generator.randrange(80)))
            ),
            lambda: json.dumps("好" * generator.randrange(3000), ensure_ascii=False),
            lambda: '""',
            lambda: '" \\t\\n"',
            lambda: generator.choice(NUMBERS),
            lambda: f'{{"text": "a", "text_pair": {generator.choice(NUMBERS)}}}',
            lambda: '{"text": {"text": "a"}}',
            lambda: "[" * generator.randrange(1, 3000),
        ]
    )()


def body(generator: random.Random) -> bytes:
    """Return a body: random bytes, deep or damaged JSON, or an object with odd values."""
    kind = generator.randrange(8)
    if kind == 0:
        return generator.randbytes(generator.randrange(2000))
    if kind == 1:
        depth = generator.randrange(1, 20_000)
        return b'{"inputs": ' + b"[" * depth + b"]" * depth * generator.randrange(2) + b"}"
    if kind == 2:
        return b'{"inputs": ' * generator.randrange(1, 5000)
    if kind == 3:
        return (f'{{"inputs": "a", "top_k": {generator.choice(NUMBERS)}}}').encode()
    if kind == 4:
        return (
            '{{"inputs": [{}]}}'.format(", ".join(text(generator) for _ in range(generator.randrange(200))))
        ).encode()
    if kind == 5:
        whole = bytearray(b'{"inputs": ["\xe4\xbb\x8a\xe5\xa4\xa9", "a"], "top_k": 2}')
        for _ in range(generator.randrange(1, 5)):
            whole[generator.randrange(len(whole))] = generator.randrange(256)
        return bytes(whole)
    if kind == 6:
        return (
            '{{"inputs": "a", {}: 1, "inputs": {}}}'.format(
                json.dumps("k" * generator.randrange(500)), text(generator)
            )
        ).encode()
    return (f'{{"inputs": {text(generator)}}}').encode(generator.choice(["utf-8", "utf-16", "utf-8-sig"]))


def hostile(number: int) -> Hostile:
    """Return hostile bytes; the same number gives the same bytes."""
    generator = random.Random(number)
    content = body(generator)
    kind = generator.randrange(12)
    # No HTTP
    if kind == 0:
        return Hostile(generator.randbytes(generator.randrange(1, 500)) + b"\r\n\r\n", is_whole=False)
    method = generator.choice(["POST"] * 12 + ["GET", "PUT", "BREW"])
    path = generator.choice(["/predict"] * 12 + ["/", "/info", "/health?a=%00", "/../etc/passwd", "//", "*"])
    content_type = generator.choice(TYPES[:1] * 8 + TYPES[1:]).encode("latin-1")
    is_http = b"\x00" not in content_type
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n".encode()
        + b"Content-Type: "
        + content_type
        + b"\r\n"
    )
    # In chunks, some of them damaged
    if kind in (1, 2):
        sizes = [f"{len(content):x}", "zz", "-1", "f" * 30, "0"] if kind == 2 else [f"{len(content):x}"]
        chunk = generator.choice(sizes).encode() + b"\r\n" + content + b"\r\n0\r\n\r\n"
        return Hostile(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk, is_whole=kind == 1 and is_http)
    # Wrong lengths
    if kind == 3:
        length = generator.choice(
            ["-1", "1, 2", "9" * 50, "0x10", str(len(content) + 7), str(len(content) // 2), ""]
        )
        return Hostile(head + f"Content-Length: {length}\r\n\r\n".encode() + content, is_whole=False)
    # Both ways of giving a length
    if kind == 4:
        both = f"Content-Length: {len(content)}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        return Hostile(head + both + content, is_whole=False)
    # Many or long headers
    if kind == 5:
        extra = b"".join(
            b"X-%d: %s\r\n" % (n, b"a" * generator.randrange(900)) for n in range(generator.randrange(60))
        )
        head += extra
    whole = head + f"Content-Length: {len(content)}\r\n\r\n".encode() + content
    # Half a request
    if kind == 6:
        return Hostile(whole[: generator.randrange(1, len(whole))], is_whole=False)
    # Several at once
    if kind == 7:
        return Hostile(whole * generator.randrange(2, 5), is_whole=False)
    return Hostile(whole, is_whole=kind != 5 and is_http)
