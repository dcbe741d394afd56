"""Bytes that no honest client sends to a server, a new mixture for each number."""

import json
from random import Random
from typing import NamedTuple

TYPES = ("application/json; charset=gbk", "text/plain", "multipart/form-data", "a" * 300, "", "\xff\x00")
NUMBERS = ("1e999", "-0", "9" * 5000, "NaN", "Infinity", "-1", "0", "true", '"3"', "1.5", "null", "[]")


class Hostile(NamedTuple):
    """What is sent; `is_whole` says that the server has all that it waits for, so an answer must come."""

    raw: bytes
    is_whole: bool


def text(random: Random) -> str:
    """Return a text as JSON, often with characters that are not allowed, or not a text at all."""
    return random.choice(
        [
            lambda: '"\\\\ud800"'.replace("\\\\", "\\"),
            lambda: '"今天\\udc00\\ud800"',
            lambda: '"\\u0000\\u202e\\ufeff"',
            lambda: json.dumps(
                "".join(chr(random.randrange(1, 0xD7FF)) for _ in range(random.randrange(80)))
            ),
            lambda: json.dumps("好" * random.randrange(3000), ensure_ascii=False),
            lambda: '""',
            lambda: '" \\t\\n"',
            lambda: random.choice(NUMBERS),
            lambda: f'{{"text": "a", "text_pair": {random.choice(NUMBERS)}}}',
            lambda: '{"text": {"text": "a"}}',
            lambda: "[" * random.randrange(1, 3000),
        ]
    )()


def body(random: Random) -> bytes:
    """Return a body: random bytes, deep or damaged JSON, or an object with odd values."""

    def deep() -> bytes:
        depth = random.randrange(1, 20_000)
        return b'{"inputs": ' + b"[" * depth + b"]" * depth * random.randrange(2) + b"}"

    def damaged() -> bytes:
        whole = bytearray(b'{"inputs": ["\xe4\xbb\x8a\xe5\xa4\xa9", "a"], "top_k": 2}')
        for _ in range(random.randrange(1, 5)):
            whole[random.randrange(len(whole))] = random.randrange(256)
        return bytes(whole)

    key, texts = json.dumps("k" * random.randrange(500)), [text(random) for _ in range(random.randrange(200))]
    return random.choice(
        [
            lambda: random.randbytes(random.randrange(2000)),
            deep,
            lambda: b'{"inputs": ' * random.randrange(1, 5000),
            lambda: f'{{"inputs": "a", "top_k": {random.choice(NUMBERS)}}}'.encode(),
            lambda: f'{{"inputs": [{", ".join(texts)}]}}'.encode(),
            damaged,
            lambda: f'{{"inputs": "a", {key}: 1, "inputs": {text(random)}}}'.encode(),
            lambda: f'{{"inputs": {text(random)}}}'.encode(random.choice(["utf-8", "utf-16", "utf-8-sig"])),
        ]
    )()


def hostile(number: int) -> Hostile:
    """Return hostile bytes; the same number gives the same bytes."""
    random = Random(number)
    content, kind = body(random), random.randrange(12)
    method = random.choice(["POST"] * 12 + ["GET", "PUT", "BREW"])
    path = random.choice(["/predict"] * 12 + ["/", "/info", "/health?a=%00", "/../etc/passwd", "//", "*"])
    content_type = random.choice(["application/json"] * 9 + [*TYPES]).encode("latin-1")
    # A method that HTTP does not have is refused at once: the client may still be sending when it is cut off
    is_http = b"\x00" not in content_type and method != "BREW"
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: ".encode() + content_type + b"\r\n"
    whole = head + b"Content-Length: %d\r\n\r\n" % len(content) + content
    if kind == 0:
        return Hostile(random.randbytes(random.randrange(1, 500)) + b"\r\n\r\n", is_whole=False)
    if kind in (1, 2):
        sizes = [f"{len(content):x}", "zz", "-1", "f" * 30, "0"] if kind == 2 else [f"{len(content):x}"]
        chunk = random.choice(sizes).encode() + b"\r\n" + content + b"\r\n0\r\n\r\n"
        return Hostile(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk, is_whole=kind == 1 and is_http)
    if kind == 3:
        lengths = ["-1", "1, 2", "9" * 50, "0x10", str(len(content) + 7), str(len(content) // 2), ""]
        return Hostile(
            head + f"Content-Length: {random.choice(lengths)}\r\n\r\n".encode() + content, is_whole=False
        )
    if kind == 4:
        both = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % len(content)
        return Hostile(head + both + content, is_whole=False)
    if kind == 5:
        lines = [b"X-%d: %s\r\n" % (n, b"a" * random.randrange(900)) for n in range(random.randrange(60))]
        return Hostile(head + b"".join(lines) + whole.removeprefix(head), is_whole=False)
    if kind == 6:
        return Hostile(whole[: random.randrange(1, len(whole))], is_whole=False)
    if kind == 7:
        return Hostile(whole * random.randrange(2, 5), is_whole=False)
    return Hostile(whole, is_whole=is_http)
