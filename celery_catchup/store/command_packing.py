"""Packing: a command as Redis reads it, in one piece.

redis-py cuts what is long into pieces of some kilobytes and sends each by itself. A commit of five
hundred runs has half a megabyte, and would be a hundred calls of the system.
"""

from __future__ import annotations

from redis.exceptions import DataError


class Packer:
    """What a connection of redis-py takes for its ``command_packer``."""

    def pack(self, *args: object) -> list[bytes]:
        """The command, as one piece of a list that could have more."""
        name, *rest = args
        words = name.encode().split() if isinstance(name, str) else [name]  # CONFIG GET are two
        parts = [b"*%d\r\n" % (len(words) + len(rest))]
        for arg in (*words, *rest):
            data = arg.encode() if isinstance(arg, str) else _bytes(arg)
            parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
        return [b"".join(parts)]


def _bytes(arg: object) -> bytes:
    if isinstance(arg, bytes | bytearray | memoryview):
        return bytes(arg)
    if isinstance(arg, int | float) and not isinstance(arg, bool):
        return repr(arg).encode()
    raise DataError(f"a command takes text, bytes and numbers, got {type(arg).__name__}")
