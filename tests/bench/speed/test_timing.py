"""Ours and its peer take turns; what they take is told as it is."""

import pytest
import torch

from nobackfill_bench.speed import Pair, timing
from nobackfill_bench.speed.timing import (
    Turns,
    first_turn,
    matmul_precision,
    memory_added,
    seconds,
    take_turns,
)

CPU = torch.device("cpu")
MB = 2**20


@pytest.fixture
def slow(monkeypatch):
    """Makes works that take some milliseconds by a clock of ours, and note when they are called."""
    calls, now = [], [0.0]
    monkeypatch.setattr(timing, "perf_counter", lambda: now[0])

    def make(name, milliseconds, value=None):
        def work():
            calls.append(name)
            now[0] += milliseconds / 1000
            return value

        return work

    make.calls = calls
    return make


def test_they_take_turns_after_a_first_one(slow):
    pair = Pair(slow("ours", 40), slow("peer", 40))
    turns = take_turns(pair, CPU, repeats=3, limit=60.0)
    assert slow.calls == ["ours"] * 2 + ["peer"] * 2 + ["ours", "peer"] * 3
    assert len(turns.ours) == len(turns.peer) == 3


def test_the_ratio_is_that_of_the_times(slow):
    turns = take_turns(Pair(slow("ours", 20), slow("peer", 5)), CPU, repeats=5, limit=60.0)
    assert turns.ratio("ours/peer") == pytest.approx(4)
    assert turns.ratio("peer/ours") == pytest.approx(1 / 4)
    assert turns.ours == pytest.approx([0.02] * 5)


def test_a_peer_that_is_a_part_of_ours_counts_as_often(slow):
    turns = take_turns(Pair(slow("ours", 50), slow("peer", 5), 10), CPU, repeats=3, limit=60.0)
    assert turns.ratio("ours/peer") == pytest.approx(1)


def test_ratios_are_of_pairs_not_of_medians():
    turns = Turns((1.0, 2.0, 9.0), (1.0, 1.0, 3.0))
    assert turns.ratios("ours/peer") == [1.0, 2.0, 3.0]
    assert turns.ratio("ours/peer") == 2.0
    assert turns.ratios("peer/ours") == [pytest.approx(1 / 3), 0.5, 1.0]


def test_beyond_the_limit_no_turn_begins_but_one_is_made(slow):
    turns = take_turns(Pair(slow("ours", 40), slow("peer", 40)), CPU, repeats=50, limit=0.0)
    assert len(turns.ours) == 1
    turns = take_turns(Pair(slow("ours", 40), slow("peer", 40)), CPU, repeats=50, limit=0.1)
    assert len(turns.ours) == 2


def test_short_works_are_called_several_times_in_a_turn_and_long_ones_once(slow, monkeypatch):
    assert first_turn(slow("short", 1), CPU)[2] == 30
    assert first_turn(slow("longer", 50), CPU)[2] == 1
    assert first_turn(slow("too short to tell", 0), CPU)[2] == timing.MOST_CALLS
    monkeypatch.setitem(timing.LONG, "cpu", 0.01)
    before = len(slow.calls)
    assert first_turn(slow("long", 20), CPU)[2] == 1
    assert len(slow.calls) == before + 1  # not even a second time, to see how long it takes


def test_seconds_are_those_of_one_call(slow):
    assert seconds(slow("work", 5), CPU, 4) == pytest.approx(0.005)


def test_numbers_that_works_return_are_kept(slow):
    turns = take_turns(Pair(slow("a", 1, 0.5), slow("b", 1, "x")), CPU, repeats=1, limit=1.0)
    assert (turns.value, turns.peer_value) == (0.5, None)


def test_memory_is_what_was_added_at_most():
    kept = torch.ones(64 * MB // 4)
    with memory_added(CPU) as added:
        torch.ones(128 * MB // 4).sum()
        torch.ones(32 * MB // 4).sum()
    assert 120 * MB < added[0] < 180 * MB
    assert kept.sum() == len(kept)


def test_a_second_look_at_memory_begins_anew():
    with memory_added(CPU):
        torch.ones(256 * MB // 4).sum()
    with memory_added(CPU) as added:
        torch.ones(64 * MB // 4).sum()
    assert 60 * MB < added[0] < 128 * MB


def test_the_precision_of_products_is_that_of_the_block_alone():
    before = torch.get_float32_matmul_precision()
    with matmul_precision("tf32"):
        assert torch.get_float32_matmul_precision() == "high"
    with matmul_precision("bfloat16"):
        assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == before


def test_on_a_gpu_events_surround_the_calls(monkeypatch, slow):
    """What happens in which order; the GPU is a fake."""

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            slow.calls.append("event")

        def elapsed_time(self, end):
            return 500.0  # milliseconds

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: slow.calls.append("wait"))
    assert seconds(slow("work", 0), torch.device("cuda"), 2) == 0.25
    assert slow.calls == ["wait", "event", "work", "work", "event", "wait"]


def test_on_a_gpu_memory_is_that_of_the_allocator(monkeypatch):
    held = {"now": 100, "most": 900}
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(
        torch.cuda, "reset_peak_memory_stats", lambda device: held.update(most=held["now"])
    )
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: held["now"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: held["most"])
    with memory_added(torch.device("cuda")) as added:
        held["most"] = 350
    assert added == [250]
