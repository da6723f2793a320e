"""One integer that says how high and where: larger for higher scores, and for earlier columns."""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def place(score, column):
    """The key of a score and its column, int64; compares as (score, then minus column)."""
    return (ordered_bits(score).to(tl.int64) << 32) | (0xFFFFFFFF - column.to(tl.int64))


@triton.jit
@no_type_check
def ordered_bits(score):
    """The bits of a float32 as an int32 that compares as the float does."""
    bits = (score + 0.0).to(tl.int32, bitcast=True)  # minus zero is zero
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
@no_type_check
def value_at(key):
    """The score of a key."""
    bits = (key >> 32).to(tl.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
