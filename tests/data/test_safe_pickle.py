"""Plain data comes out of a pickle; nothing that a pickle asks for is ever run."""

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from nobackfill.data.safe_pickle import read_pickle
from nobackfill.errors import DataError

PLAIN = {
    "names": ["a", "ß", "日本"],
    "bytes": (b"\x00\xff", b""),
    "numbers": [0, -1, 2**40, 2**200, 1.5, -0.0],
    "others": [True, False, None, (), [], {}, [[1], [2, (3, 4, 5, 6)]]],
    7: {"nested": {"deep": [1]}},
}
ARRAYS = [
    np.arange(6).reshape(2, 3).astype(dtype)
    for dtype in "?,i1,<i2,>i4,i8,u1,u8,f2,<f4,>f8,c8,c16".split(",")
] + [
    np.array(3.5),
    np.zeros((0, 4), np.float32),
    np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    np.arange(24)[::2],
]

every_protocol = pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))


@pytest.fixture
def read(tmp_path):
    """Writes bytes, and reads them as the ground truth."""

    def write_and_read(data):
        path = tmp_path / "truth.pkl"
        path.write_bytes(data)
        return read_pickle(path, "the ground truth")

    return write_and_read


@every_protocol
def test_plain_data_is_kept(read, protocol):
    assert read(pickle.dumps(PLAIN, protocol)) == PLAIN


def assert_same_array(one, other):
    assert type(one) is np.ndarray
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    np.testing.assert_array_equal(one, other)


@every_protocol
def test_arrays_of_numbers_are_kept(read, protocol):
    found = read(pickle.dumps({"arrays": ARRAYS, "again": (ARRAYS[0], ARRAYS[0])}, protocol))
    for array, expected in zip(found["arrays"], ARRAYS, strict=True):
        assert_same_array(array, expected)
    assert found["again"][0] is found["again"][1]
    assert_same_array(found["again"][0], ARRAYS[0])


@every_protocol
def test_single_numbers_of_numpy_are_kept(read, protocol):
    numbers = [np.float32(1.5), np.int64(-7), np.bool_(True), np.float64(0.1)]
    found = read(pickle.dumps(numbers, protocol))
    assert found == numbers
    assert [type(number) for number in found] == [type(number) for number in numbers]


@pytest.mark.parametrize("core", [b"core", b"_core"])
def test_both_names_of_numpys_core_are_known(read, core):
    data = pickle.dumps([np.arange(3), np.float32(2)], 2)
    data = data.replace(b"numpy._core.", b"numpy.core.").replace(
        b"numpy.core.", b"numpy.%b." % core
    )
    assert core in data
    array, number = read(data)
    assert_same_array(array, np.arange(3))
    assert number == 2


def test_arrays_that_python_2_wrote(read):
    data = (  # {'x': array([1, -256], int16)}, by Python 2.7 and NumPy 1, protocol 2
        b"\x80\x02}q\x00U\x01xq\x01cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\n"
        b"q\x03K\x00\x85q\x04U\x01bq\x05\x87q\x06Rq\x07(K\x01K\x02\x85q\x08cnumpy\ndtype\nq\tU\x02i2q"
        b"\nK\x00K\x01\x87q\x0bRq\x0c(K\x03U\x01<q\rNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x0eb"
        b"\x89U\x04\x01\x00\x00\xffq\x0ftq\x10bs."
    )
    assert_same_array(read(data)["x"], np.array([1, -256], np.int16))


def test_lists_that_are_shared_stay_shared(read):
    inner = [1]
    found = read(pickle.dumps([inner, (inner,), inner]))
    assert found[0] is found[2]
    assert found[0] is found[1][0]


# Hostile ones. Each would leave a file behind if it were run.


class Asks:
    """Pickles as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def touching(path):
    return Asks(os.system, f"touch {path}")


def as_it_is(asks):
    return asks


def within_others(asks):
    return {"gnd": [{"easy": (1, [asks])}]}


def as_a_key(asks):
    return {(1, 2): {asks: 1}}


def in_an_array_of_objects(asks):
    return np.array([asks, None], dtype=object)


def in_the_names_of_fields(asks):
    return [np.zeros(2, [("a", "f4"), ("b", "O")]), asks]


class WithState:
    def __init__(self, state):
        self.state = state


every_way = pytest.mark.parametrize(
    "wrap", [as_it_is, within_others, as_a_key, in_an_array_of_objects, in_the_names_of_fields]
)


@every_protocol
@every_way
def test_no_function_is_called(read, tmp_path, wrap, protocol):
    trace = tmp_path / "was_here"
    data = pickle.dumps(wrap(touching(trace)), protocol)
    with pytest.raises(DataError, match=r"truth\.pkl.*was not executed\. Fetch"):
        read(data)
    assert not trace.exists()
    pickle.loads(data)  # as others would
    assert trace.exists()


@every_protocol
def test_no_object_is_made(read, protocol):
    for value in (WithState(1), Path("x"), {1, 2}, frozenset([1]), bytearray(b"x"), complex(1, 2)):
        with pytest.raises(DataError, match="was not executed"):
            read(pickle.dumps([value], protocol))


HOSTILE = {
    "a global": b"cos\nsystem\n.",
    "a name by two texts": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    "a name with dots": b"\x80\x04\x8c\x05numpy\x8c\x12dtype.__class__.mro\x93.",
    "a name that spans both": b"\x80\x04\x8c\x0anumpy.core\x8c\x11multiarray.scalar\x93.",
    "names that are no text": b"\x80\x04K\x01K\x02\x93.",
    "a stand-in as data": b"cnumpy\ndtype\n.",
    "a dtype as data": b"cnumpy\ndtype\n(U\x02f4K\x00K\x01tR.",
    "an array never filled": b"cnumpy\nndarray\n(tR.",
    "an array as a key": b"}cnumpy\nndarray\n(tRK\x01s.",
    "an array in a key": b"}cnumpy\nndarray\n(tR\x85K\x01s.",
    "a call of bytes for gigabytes": b"cbuiltins\nbytes\n(J\xff\xff\xff\x7ftR.",
    "a call of bytes for a list": b"cbuiltins\nbytes\n((K\x01K\x02ltR.",
    "a codec that runs code": b"c_codecs\nencode\n(U\x01xU\x06base64tR.",
    "an instance by INST": b"(S'true'\nios\nsystem\n.",
    "an instance by OBJ": b"(cos\nsystem\nS'true'\no.",
    "an object by NEWOBJ": b"\x80\x02cbuiltins\nobject\n)\x81.",
    "an object by NEWOBJ of a stand-in": b"\x80\x02cnumpy\nndarray\n)\x81.",
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent name": b"Pname\n.",
    "attributes of a stand-in": b"cnumpy\nndarray\n}U\x01xK\x01sb.",
    "attributes of a list": b"]}U\x01xK\x01sb.",
    "a buffer from outside": b"\x80\x05\x97.",
    "a huge memo": b"\x80\x02]r\xff\xff\xff\x7f.",
    "a huge memo as text": b"(lp999999999999\n.",
    "more text than there is": b"\x80\x04\x8d" + struct.pack("<Q", 2**40) + b"x.",
    "more bytes than there are": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"x.",
    "a memo that is empty": b"h\x05.",
    "no end": pickle.dumps(PLAIN)[:-10],
    "nothing": b"",
    "text": b"<html>404 Not Found</html>",
    "a nest too deep": b"]" * 100_000 + b"a" * 99_999 + b".",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_and_broken_pickles_are_refused(read, name):
    with pytest.raises(
        DataError, match=r"(?s)truth\.pkl: the ground truth is broken or contains more .+ Fetch"
    ):
        read(HOSTILE[name])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a huge memo", "a memo of 2147483647 entries"),
        ("a huge memo as text", "a memo of 999999999999 entries"),
        ("more text than there is", "only 2 remain"),
        ("more bytes than there are", "only 2 remain"),
    ],
)
def test_no_memory_is_taken_for_what_a_file_does_not_hold(read, name, told):
    with pytest.raises(DataError, match=told):
        read(HOSTILE[name])


def array_with(*, shape=(2,), code="i2", order="<", data=b"\x01\x00\x02\x00"):
    """An array as NumPy pickles it, with parts of our choice."""
    return (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR(K\x01"
        + pickle.dumps(shape, 2)[2:-1]
        + b"cnumpy\ndtype\n(U%c%bK\x00K\x01tR" % (len(code), code.encode())
        + b"(K\x03U%c%bNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb" % (len(order), order.encode())
        + b"\x89U%c%btb." % (len(data), data)
    )


def test_an_array_whose_parts_fit(read):
    assert_same_array(read(array_with()), np.array([1, 2], np.int16))


@pytest.mark.parametrize(
    "parts",
    [
        {"shape": (3,)},
        {"shape": (1,)},
        {"shape": (-2,)},
        {"shape": (-1,)},
        {"shape": (-1, -2)},
        {"shape": (2**62, 2**62)},
        {"shape": ("2",)},
        {"shape": 2},
        {"code": "O8"},
        {"code": "V2"},
        {"code": "S2"},
        {"code": "M8"},
        {"code": "i2,i2"},
        {"code": "i2,i2", "shape": (1,)},
        {"shape": (-1, 0), "data": b""},
        {"code": "(2,)i2"},
        {"order": "?"},
        {"order": "<<"},
        {"data": b"\x01\x00\x02"},
    ],
)
def test_an_array_whose_parts_do_not_fit(read, parts):
    with pytest.raises(DataError, match="is broken or contains more"):
        read(array_with(**parts))


def test_what_is_shared_a_thousandfold_is_looked_at_once(read):
    data = b"]q\x00" + b"".join(b"](%beq%c" % (b"h%c" % n * 9, n + 1) for n in range(40)) + b"."
    found = read(data)  # 9 ** 40 paths lead to the innermost list
    assert len(found) == 9


def test_data_that_holds_itself_comes_to_an_end(read):
    found = read(b"\x80\x02]q\x00h\x00\x85q\x01ah\x01.")  # a tuple of a list of that tuple
    assert found[0][0][0] is found[0]


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"the ground truth at .*gone\.pkl: No such file"):
        read_pickle(tmp_path / "gone.pkl", "the ground truth")
