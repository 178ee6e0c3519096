"""Reading plain data and NumPy arrays from a pickle that nobody vouches for: nothing in it can run.

A pickle is a program for a small stack machine. Python's own machine calls what the program names; a
subclass can refuse names, but even then a few bytes can make it take gigabytes (an entry far out in the
memo) or crash the interpreter (a deeply nested dictionary key). This machine is one of our own and knows
only the instructions that build plain data. It holds no callables: the three names an array is written
with stand for themselves, are compared with, and are never called.

Why no program can do harm here:

- an instruction takes from the input at least the bytes it keeps, and adds one small object; their number
  has a limit, and the memo is a dictionary;
- dictionary keys are texts or small numbers, so that no hash recurses into nested tuples;
- an array is a view of the input: its element type is one of a list of numbers, never objects, and its
  shape must account for every byte of its content.
"""

from __future__ import annotations

import math
import pickletools
import struct
from collections.abc import Callable
from enum import Enum
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from encore.data.pickle_integers import OPCODES, push_integers
from encore.errors import EncoreError

MAX_STEPS = 10_000_000  # so that no pickle takes more than 1 GiB beyond its own size; two integers are one
LARGEST_KEY = 1 << 16  # of a dictionary: larger numbers can be chosen so that their hashes collide
LONGEST_COPIED = 1 << 16
LONGEST_LINE = 256
MAX_DIMENSIONS = 8
ELEMENT_TYPES = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"})


def read_pickle(content: bytearray | memoryview, origin: str) -> object:
    """Return the data in a pickle of protocol 2 to 4, as Python 2 or 3 wrote it; `origin` names it in errors.

    The texts of Python 2 come as bytes; byte strings of more than 64 KiB come as memoryviews of `content`.
    Arrays share the memory of `content`: they cost nothing, and can be written to where it can.

    >>> import pickle
    >>> read_pickle(bytearray(pickle.dumps({"labels": [3, 5]}, protocol=2)), "an example")
    {'labels': [3, 5]}
    """
    machine = _Machine(content, origin)
    try:
        return machine.run()
    except EncoreError:
        raise
    except (IndexError, KeyError, TypeError, ValueError, struct.error) as error:
        raise machine.refusal("is damaged, or no pickle") from error


class _Name(Enum):
    """The only names that may occur, and what they stand for: themselves."""

    RECONSTRUCT = "numpy.core.multiarray._reconstruct"
    ARRAY = "numpy.ndarray"
    ELEMENT_TYPE = "numpy.dtype"


class _ElementType:
    """The element type of arrays to come."""

    def __init__(self, code: str) -> None:
        self.type: np.dtype[np.generic] = np.dtype(code)


class _Array:
    """An array whose shape and content come later."""

    def __init__(self) -> None:
        self.array: NDArray[np.generic] | None = None


class _Machine:
    def __init__(self, content: bytearray | memoryview, origin: str) -> None:
        self.content = memoryview(content)
        self.origin = origin
        self.position = 0
        self.stack: list[object] = []
        self.below_mark: list[list[object]] = []
        self.memo: dict[int, object] = {}

    def run(self) -> object:
        num_steps = 0
        while num_steps < MAX_STEPS:
            opcode = self.content[self.position]
            if opcode in OPCODES:
                most, height = 2 * (MAX_STEPS - num_steps), len(self.stack)
                self.position = push_integers(self.content, self.position, most, self.stack)
                num_steps += (len(self.stack) - height + 1) // 2
                continue
            num_steps += 1
            self.position += 1
            if opcode == _STOP:
                return self.stack.pop()
            instruction = _INSTRUCTIONS.get(opcode)
            if instruction is None:
                raise self.refusal(
                    f"holds the pickle instruction {_KNOWN[chr(opcode)]}, which plain data does not need"
                )
            instruction(self)
        raise self.refusal(f"takes more than {MAX_STEPS:,} steps")

    def refusal(self, reason: str) -> EncoreError:
        return EncoreError(f"{self.origin} is refused: it {reason}")

    def take(self, count: int) -> memoryview:
        if not 0 <= count <= len(self.content) - self.position:
            raise self.refusal("is damaged, or no pickle")
        self.position += count
        return self.content[self.position - count : self.position]

    def number(self, layout: str) -> int:
        return int(struct.unpack(layout, self.take(struct.calcsize(layout)))[0])

    def line(self) -> str:
        ahead = bytes(self.content[self.position : self.position + LONGEST_LINE])
        line = ahead[: ahead.index(b"\n")]
        self.position += len(line) + 1
        return line.decode()

    def protocol(self) -> None:
        if self.number("<B") > 4:
            raise self.refusal("is a pickle of a protocol later than 4")

    def frame(self) -> None:
        self.take(8)

    def mark(self) -> None:
        self.below_mark.append(self.stack)
        self.stack = []

    def pop_mark(self) -> list[object]:
        above = self.stack
        self.stack = self.below_mark.pop()
        return above

    def push(self, value: object) -> None:
        self.stack.append(value)

    def push_text(self, length: int) -> None:
        self.push(str(self.take(length), "utf-8", "surrogatepass"))

    def push_bytes(self, length: int) -> None:
        taken = self.take(length)
        self.push(bytes(taken) if length <= LONGEST_COPIED else taken)

    def push_tuple(self, count: int) -> None:
        self.push(tuple([self.stack.pop() for _ in range(count)][::-1]))

    def push_name(self, module: object, name: object) -> None:
        full = f"{module}.{name}".replace("numpy._core.", "numpy.core.", 1)
        if full not in _NAMES:
            raise self.refusal(f"asks for {full[:LONGEST_LINE]!r}, and data must not name code")
        self.push(_NAMES[full])

    def push_global(self) -> None:
        module = self.line()
        self.push_name(module, self.line())

    def push_stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(module, str) or not isinstance(name, str):
            raise self.refusal("is damaged, or no pickle")
        self.push_name(module, name)

    def store(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def recall(self, index: int) -> None:
        value = self.memo[index]
        self.push(value.array if isinstance(value, _Array) else value)

    def append(self, items: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise self.refusal("is damaged, or no pickle")
        target.extend(items)

    def set_items(self, pairs: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise self.refusal("is damaged, or no pickle")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, bytes | str) and not (type(key) is int and 0 <= key < LARGEST_KEY):
                raise self.refusal("holds a dictionary whose keys are not texts or small numbers")
            target[key] = value

    def set_item(self) -> None:
        self.set_items([self.stack.pop(-2), self.stack.pop()])

    def reduce(self) -> None:
        arguments, name = self.stack.pop(), self.stack.pop()
        match name, arguments:
            case _Name.RECONSTRUCT, (_Name.ARRAY, (0,), b"b"):
                self.push(_Array())
            case _Name.ELEMENT_TYPE, (bytes() | str() as code, 0, 1) if _text(code) in ELEMENT_TYPES:
                self.push(_ElementType(_text(code)))
            case _:
                raise self.refusal("builds something other than an array of numbers")

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        match target, state:
            case _ElementType() as element, (
                3,
                b"<" | b">" | b"|" | "<" | ">" | "|" as order,
                None,
                None,
                None,
                -1,
                -1,
                0,
            ):
                element.type = element.type.newbyteorder(cast(Literal["<", ">", "|"], _text(order)))
            case _Array() as unbuilt, (
                1,
                tuple() as shape,
                _ElementType() as element,
                bool() as by_columns,
                bytes() | memoryview() as raw,
            ):
                unbuilt.array = self.array(shape, element.type, raw, by_columns)
                self.stack[-1] = unbuilt.array
            case _:
                raise self.refusal("builds something other than an array of numbers")

    def array(
        self,
        shape: tuple[object, ...],
        element: np.dtype[np.generic],
        raw: bytes | memoryview,
        by_columns: bool,
    ) -> NDArray[np.generic]:
        sizes = [size for size in shape if isinstance(size, int) and 0 < size <= len(raw)]
        if (
            len(sizes) != len(shape)
            or len(sizes) > MAX_DIMENSIONS
            or math.prod(sizes) * element.itemsize != len(raw)
        ):
            raise self.refusal("holds an array whose shape does not fit its content")
        return np.frombuffer(bytearray(raw) if isinstance(raw, bytes) else raw, element).reshape(
            sizes, order="F" if by_columns else "C"
        )


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


_KNOWN = {instruction.code: instruction.name for instruction in pickletools.opcodes}
_NAMES = {name.value: name for name in _Name}
_STOP = ord(".")
_INSTRUCTIONS: dict[int, Callable[[_Machine], None]] = {
    0x80: _Machine.protocol,
    0x95: _Machine.frame,
    ord("("): _Machine.mark,
    ord("N"): lambda machine: machine.push(None),
    0x88: lambda machine: machine.push(True),
    0x89: lambda machine: machine.push(False),
    0x8A: lambda machine: machine.push(
        int.from_bytes(machine.take(machine.number("<B")), "little", signed=True)
    ),
    ord("G"): lambda machine: machine.push(struct.unpack(">d", machine.take(8))[0]),
    ord("U"): lambda machine: machine.push_bytes(machine.number("<B")),
    ord("T"): lambda machine: machine.push_bytes(machine.number("<i")),
    ord("C"): lambda machine: machine.push_bytes(machine.number("<B")),
    ord("B"): lambda machine: machine.push_bytes(machine.number("<I")),
    0x8E: lambda machine: machine.push_bytes(machine.number("<Q")),
    ord("X"): lambda machine: machine.push_text(machine.number("<I")),
    0x8C: lambda machine: machine.push_text(machine.number("<B")),
    ord("]"): lambda machine: machine.push([]),
    ord("}"): lambda machine: machine.push({}),
    ord(")"): lambda machine: machine.push(()),
    ord("t"): lambda machine: machine.push(tuple(machine.pop_mark())),
    0x85: lambda machine: machine.push_tuple(1),
    0x86: lambda machine: machine.push_tuple(2),
    0x87: lambda machine: machine.push_tuple(3),
    ord("a"): lambda machine: machine.append([machine.stack.pop()]),
    ord("e"): lambda machine: machine.append(machine.pop_mark()),
    ord("s"): _Machine.set_item,
    ord("u"): lambda machine: machine.set_items(machine.pop_mark()),
    ord("q"): lambda machine: machine.store(machine.number("<B")),
    ord("r"): lambda machine: machine.store(machine.number("<I")),
    0x94: lambda machine: machine.store(len(machine.memo)),
    ord("h"): lambda machine: machine.recall(machine.number("<B")),
    ord("j"): lambda machine: machine.recall(machine.number("<I")),
    ord("c"): _Machine.push_global,
    0x93: _Machine.push_stack_global,
    ord("R"): _Machine.reduce,
    ord("b"): _Machine.build,
}
