"""Whole numbers in a pickle, read a run at a time: of long lists of them a pickle is nearly all."""

from __future__ import annotations

import struct

ONE_BYTE, TWO_BYTES, FOUR_BYTES = OPCODES = b"KMJ"  # the instructions that push one
_SIGNED = struct.Struct("<i")


def push_integers(content: memoryview, position: int, most: int, stack: list[object]) -> int:
    """Push the numbers that follow one another from a position on, and return where they end.

    >>> stack: list[object] = []
    >>> push_integers(memoryview(b"K" + bytes([7]) + b"M" + bytes([1, 2]) + b"."), 0, 9, stack), stack
    (5, [7, 513])
    """
    push, unpack = stack.append, _SIGNED.unpack_from
    for _ in range(most):
        opcode = content[position]
        if opcode == ONE_BYTE:
            push(content[position + 1])
            position += 2
        elif opcode == TWO_BYTES:
            push(content[position + 1] | content[position + 2] << 8)
            position += 3
        elif opcode == FOUR_BYTES:
            push(unpack(content, position + 1)[0])
            position += 5
        else:
            break
    return position
