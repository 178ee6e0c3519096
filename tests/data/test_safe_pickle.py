from __future__ import annotations

import codecs
import copyreg
import pickle
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encore.data import safe_pickle
from encore.data.safe_pickle import read_pickle
from encore.errors import EncoreError


def read(content: bytes) -> object:
    return read_pickle(bytearray(content), "some/file")


def refusal(content: bytes) -> str:
    try:
        read(content)
    except EncoreError as error:
        return str(error)
    return ""


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def call(module: str, name: str, argument: bytes) -> bytes:
    """The instructions that call a function with one argument."""
    return f"c{module}\n{name}\n".encode() + argument + b"\x85R"


def write_code(marker: Path) -> str:
    return f"open({str(marker)!r}, 'w').close()"


RECONSTRUCTED = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
BYTES_TYPE = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"


def array(shape: bytes, raw: bytes, element: bytes = BYTES_TYPE) -> bytes:
    """An array as NumPy writes it: `shape` is the instructions for a tuple, `raw` at most 255 bytes."""
    return RECONSTRUCTED + b"(K\x01" + shape + element + b"\x89U" + bytes([len(raw)]) + raw + b"tb"


# What is read.

plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=300),
    lambda values: (
        st.lists(values)
        | st.lists(values, max_size=5).map(tuple)
        | st.dictionaries(st.text() | st.binary(), values)
    ),
)


@given(plain_values, st.sampled_from([3, 4]))
@settings(deadline=None)
def test_plain_data_comes_back_as_it_was_written(value: object, protocol: int) -> None:
    assert read(pickle.dumps(value, protocol=protocol)) == value


@given(st.lists(st.integers(-(2**31), 2**31 - 1)), st.sampled_from([2, 3, 4]))
@settings(deadline=None)
def test_lists_of_integers_come_back(values: list[int], protocol: int) -> None:
    assert read(pickle.dumps([values, tuple(values), None], protocol=protocol)) == [
        values,
        tuple(values),
        None,
    ]


@pytest.mark.parametrize("edge", [0, 255, 256, 65535, 65536, 2**31 - 1, -1, -(2**31)])
def test_integers_at_the_edges_of_their_instructions_come_back(edge: int) -> None:
    assert read(pickle.dumps([edge, edge, 7, edge], protocol=2)) == [edge, edge, 7, edge]


def test_dictionaries_by_small_numbers_come_back() -> None:
    runs = {"nc": {0: [[1, 2], [3]], 1: [[3], [1, 2]], (1 << 16) - 1: []}}
    assert read(pickle.dumps(runs, protocol=2)) == runs


def test_texts_of_python_2_come_as_bytes() -> None:
    assert read(b"\x80\x02}q\x01U\x01aq\x02]q\x03(U\x01bh\x02es.") == {b"a": [b"b", b"a"]}


@pytest.mark.parametrize("code", sorted(safe_pickle.ELEMENT_TYPES))
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("protocol", [3, 4])
def test_arrays_of_numbers_come_back(code: str, order: str, layout: str, protocol: int) -> None:
    values = np.arange(24).reshape(2, 3, 4).astype(np.dtype(code).newbyteorder(order))  # type: ignore[arg-type]
    written = np.array(values, order=layout)  # type: ignore[call-overload]
    found = read(pickle.dumps(written, protocol=protocol))
    assert isinstance(found, np.ndarray)
    assert found.dtype == written.dtype
    assert np.array_equal(found, values)
    assert found.flags.writeable


def test_an_array_named_twice_is_the_same_array() -> None:
    values = np.arange(3)
    found = read(pickle.dumps([values, values], protocol=3))
    assert isinstance(found, list)
    assert found[0] is found[1]
    assert found[1].tolist() == [0, 1, 2]


def test_a_large_array_shares_the_memory_of_the_file() -> None:
    content = bytearray(pickle.dumps(np.zeros((100, 1000), dtype=np.uint8), protocol=3))
    found = read_pickle(content, "some/file")
    assert isinstance(found, np.ndarray)
    assert np.shares_memory(found, np.frombuffer(content, dtype=np.uint8))
    found[0, 0] = 7  # and can be written to


# What is refused.


def with_system(marker: Path) -> bytes:
    return b"\x80\x02" + call("os", "system", text(f"touch {marker}")) + b"."


def with_eval(marker: Path) -> bytes:
    return b"\x80\x02" + call("builtins", "eval", text(write_code(marker))) + b"."


def with_eval_of_protocol_4(marker: Path) -> bytes:
    return b"\x80\x04" + text("builtins") + text("eval") + b"\x93" + text(write_code(marker)) + b"\x85R."


def with_nested(marker: Path) -> bytes:
    inner = call("builtins", "eval", text(write_code(marker)))
    return b"\x80\x02}(U\x04data" + array(b"K\x02\x85", b"ab") + b"U\x06labels](K\x01" + inner + b"eu."


def with_codecs(marker: Path) -> bytes:
    hidden = text(codecs.encode(write_code(marker), "rot13"))
    return b"\x80\x02cbuiltins\neval\nc_codecs\nencode\n" + hidden + text("rot13") + b"\x86R\x85R."


def with_instance(marker: Path) -> bytes:
    return b"(" + text(f"touch {marker}") + b"ios\nsystem\n."


def with_object(marker: Path) -> bytes:
    return b"(cos\nsystem\n" + text(f"touch {marker}") + b"o."


def with_extension(marker: Path) -> bytes:
    return b"\x80\x02\x82\xf0" + text(f"touch {marker}") + b"\x85R."


HOSTILE: list[tuple[Callable[[Path], bytes], str]] = [
    (with_system, "asks for 'os.system'"),
    (with_eval, "asks for 'builtins.eval'"),
    (with_eval_of_protocol_4, "asks for 'builtins.eval'"),
    (with_nested, "asks for 'builtins.eval'"),
    (with_codecs, "asks for 'builtins.eval'"),
    (with_instance, "the pickle instruction INST"),
    (with_object, "asks for 'os.system'"),
    (with_extension, "the pickle instruction EXT1"),
]


@pytest.mark.parametrize(("payload", "reason"), HOSTILE)
def test_code_in_a_pickle_is_refused_and_does_not_run(
    payload: Callable[[Path], bytes], reason: str, tmp_path: Path
) -> None:
    marker = tmp_path / "it_ran"
    content = payload(marker)
    copyreg.add_extension("os", "system", 0xF0)
    try:
        pickle.loads(content, encoding="bytes")
        assert marker.exists(), "the payload must be dangerous, or this test shows nothing"
        marker.unlink()
        with pytest.raises(EncoreError, match=f"^some/file is refused: it .*{reason}"):
            read(content)
    finally:
        copyreg.remove_extension("os", "system", 0xF0)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x80\x02U\x01aQ.", "the pickle instruction BINPERSID"),
        (b"Pa\n.", "the pickle instruction PERSID"),
        (b"\x80\x02cos\nsystem\n)\x81.", "asks for 'os.system'"),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "the pickle instruction NEWOBJ"),
        (pickle.dumps(b"some bytes", protocol=2), "asks for '_codecs.encode'"),
        (pickle.dumps(np.float64(1), protocol=3), "asks for 'numpy.core.multiarray.scalar'"),
        (pickle.dumps({1, 2}, protocol=4), "the pickle instruction EMPTY_SET"),
        (pickle.dumps({1 << 16: 2}, protocol=4), "keys are not texts or small numbers"),
        (pickle.dumps({-1: 2}, protocol=4), "keys are not texts or small numbers"),
        (pickle.dumps({True: 2}, protocol=4), "keys are not texts or small numbers"),
        (pickle.dumps({("a",): 2}, protocol=4), "keys are not texts"),
        (pickle.dumps([], protocol=5), "a protocol later than 4"),
        (b"\x80\x02c" + b"a" * 1000 + b"\nb\n.", "damaged"),
    ],
)
def test_other_ways_to_code_are_refused(content: bytes, reason: str) -> None:
    with pytest.raises(EncoreError, match=reason):
        read(content)


NOT_AN_ARRAY = "builds something other than an array of numbers"
MISFIT = "an array whose shape does not fit its content"
ONE_TO = b"K\x01J\xff\xff\xff\x7f\x86"  # the shape (1, 2147483647)


@pytest.mark.parametrize(
    ("instructions", "reason"),
    [
        pytest.param(b"cnumpy\nndarray\nK\x05\x85\x85R", NOT_AN_ARRAY, id="an array from a shape alone"),
        pytest.param(
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + ONE_TO + b"U\x01b\x87R",
            NOT_AN_ARRAY,
            id="a huge array to start with",
        ),
        pytest.param(
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\ndtype\nK\x00\x85U\x01b\x87R",
            NOT_AN_ARRAY,
            id="something else to start with",
        ),
        pytest.param(b"cnumpy\ndtype\nU\x01OK\x00K\x01\x87R", NOT_AN_ARRAY, id="objects"),
        pytest.param(b"cnumpy\ndtype\nU\x02V9K\x00K\x01\x87R", NOT_AN_ARRAY, id="records"),
        pytest.param(b"cnumpy\ndtype\nU\x05u1,u1K\x00K\x01\x87R", NOT_AN_ARRAY, id="a list of types"),
        pytest.param(
            BYTES_TYPE.replace(b"|NNN", b"|N)N"), NOT_AN_ARRAY, id="an element type given field names"
        ),
        pytest.param(b"cnumpy\nndarray\n}b", NOT_AN_ARRAY, id="the state of a class"),
        pytest.param(b"U\x01a}b", NOT_AN_ARRAY, id="the state of a text"),
        pytest.param(array(ONE_TO, b"ab"), MISFIT, id="a shape too large"),
        pytest.param(array(b"K\x01\x85", b"ab"), MISFIT, id="a shape too small"),
        pytest.param(array(b"J\xfe\xff\xff\xffJ\xff\xff\xff\xff\x86", b"ab"), MISFIT, id="negative sizes"),
        pytest.param(array(b"K\x00K\x02\x86", b""), MISFIT, id="no elements"),
        pytest.param(array(b"(" + b"K\x01" * 99 + b"t", b"a"), MISFIT, id="too many dimensions"),
        pytest.param(array(b"U\x01a\x85", b"a"), MISFIT, id="a shape of texts"),
        pytest.param(
            RECONSTRUCTED + b"(K\x01K\x01\x85" + BYTES_TYPE + b"\x89]K\x05atb",
            NOT_AN_ARRAY,
            id="a list in it",
        ),
        pytest.param(
            array(b"K\x01\x85", b"a") + b"(K\x01)N\x89U\x00tb",
            NOT_AN_ARRAY,
            id="a second state",
        ),
    ],
)
def test_hostile_use_of_the_names_an_array_needs_is_refused(instructions: bytes, reason: str) -> None:
    with pytest.raises(EncoreError, match=reason):
        read(b"\x80\x02" + instructions + b".")


def test_the_array_these_refusals_are_made_from_is_read() -> None:
    found = read(b"\x80\x02" + array(b"K\x02K\x01\x86", b"ab") + b".")
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [[97], [98]]


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_an_array_of_objects_is_refused(protocol: int) -> None:
    with pytest.raises(EncoreError, match="refused"):
        read(pickle.dumps(np.array([None, "a"], dtype=object), protocol=protocol))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"\x80\x02]r\xff\xff\xff\xff.", "", id="an entry far out in the memo"),
        (b"\x80\x02T\xff\xff\xff\x7f.", "damaged"),
        (b"\x80\x02T\xff\xff\xff\xff.", "damaged"),
        pytest.param(b"\x80\x02T\xfb\xff\xff\xff.", "damaged", id="a length that leads back to itself"),
        (b"\x80\x03B\xff\xff\xff\xff.", "damaged"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", "damaged"),
        (b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.", "damaged"),
        (b"\x80\x02X\xff\xff\xff\xff.", "damaged"),
        (b"\x80\x02" + array(b"J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86", b"ab") + b".", MISFIT),
    ],
)
def test_a_few_bytes_cannot_take_much_memory(content: bytes, reason: str) -> None:
    tracemalloc.start()
    try:
        found = refusal(content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    assert reason in found
    assert bool(reason) == bool(found)


@pytest.mark.parametrize(
    "text_of", [b"T\x05\x00\x00\x00", b"U\x05", b"X\x05\x00\x00\x00", b"B\x05\x00\x00\x00"]
)
def test_a_text_longer_than_the_rest_is_refused(text_of: bytes) -> None:
    assert read(b"\x80\x03" + text_of + b"abcde.") in (b"abcde", "abcde")
    assert "damaged" in refusal(b"\x80\x03" + text_of + b"abc.")


def test_a_deeply_nested_key_is_refused_and_does_not_crash() -> None:
    with pytest.raises(EncoreError, match="keys are not texts"):
        read(b"\x80\x02})" + b"\x85" * 200_000 + b"Ns.")


def test_a_program_that_runs_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_pickle, "MAX_STEPS", 100)
    assert read(pickle.dumps([None] * 80, protocol=3)) == [None] * 80
    with pytest.raises(EncoreError, match="takes more than 100 steps"):
        read(pickle.dumps([None] * 100, protocol=3))


def test_two_integers_count_as_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_pickle, "MAX_STEPS", 100)
    assert read(pickle.dumps([70_000] * 180, protocol=2)) == [70_000] * 180
    for number in (7, 700, 70_000):
        with pytest.raises(EncoreError, match="takes more than 100 steps"):
            read(pickle.dumps([number] * 200, protocol=2))


EXAMPLE = pickle.dumps({"data": np.arange(6, dtype=np.uint8), b"labels": [1, (2, 3.5, None)]}, protocol=3)


@pytest.mark.parametrize("length", range(len(EXAMPLE)))
def test_a_pickle_cut_off_anywhere_is_refused(length: int) -> None:
    with pytest.raises(EncoreError, match="some/file is refused"):
        read(EXAMPLE[:length])


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    reason = refusal(content)
    assert reason == "" or reason.startswith("some/file is refused: it ")


@given(st.lists(st.tuples(st.integers(0, len(EXAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
@settings(deadline=None, max_examples=500)
def test_any_altered_pickle_is_read_or_refused(alterations: list[tuple[int, int]]) -> None:
    content = bytearray(EXAMPLE)
    for position, value in alterations:
        content[position] = value
    reason = refusal(bytes(content))
    assert reason == "" or reason.startswith("some/file is refused: it ")
