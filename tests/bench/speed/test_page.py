"""SPEED.md of invented lines: what stands in which cell."""

import json
from xml.etree import ElementTree

import pytest

from nobackfill_bench.speed.page import render, render_page, targets_of

SEARCH = {"queries": 10, "gallery": 100, "dim": 256}


@pytest.fixture
def figure():
    """Makes the line of a figure."""

    def make(suite="ndpp", case="`update`, float32", size=None, **more):
        return {
            "suite": suite, "case": case, "size": size or {"classes": 24_393, "dim": 256},
            "precision": "float32", "peer": "a product", "counts": "ours/peer", "ratio": 1.5,
            "lowest": 1.25, "highest": 1.75, "repeats": 5, "ours_s": 0.003, "peer_s": 0.002,
            "held_mb": 100.0, "added_mb": 400.0, "peer_added_mb": 1000.0, "value": None,
            "peer_value": None, "target": 2.0, "target_s": None, "target_gb": 8.0,
            "operations": 3.0e11, "bytes": 1.0e8, "steps": 0, "axis": "", "device": "NVIDIA H200",
            "processor": "a CPU", "threads": 2, "torch": "2.11.0", "date": "2026-11-16T09:00:00",
        } | more  # fmt: skip

    return make


@pytest.fixture
def page(tmp_path):
    def make(*lines):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / "speed.jsonl").write_text(text)
        return render(tmp_path, tmp_path / "figures")

    return make


def test_a_figure_stands_in_its_row(page, figure, cells):
    text = page(figure())
    assert "\n    nobackfill bench speed --suite ndpp\n" in text
    assert "### NVIDIA H200, torch 2.11.0, 2026-11-16\n" in text
    assert "Peer: a product." in text
    assert cells(text.splitlines())["`update`, float32"] == [
        "24,393 classes, 256 dim", "**1.5**", "1.25 to 1.75 (5)", "3 ms", "2 ms",
        "≤ 2: met, ≤ 8 GB: met", "0.50 GB", "400 MB", "1 GB", "300 GFLOP, 100 MB", "100",
    ]  # fmt: skip


def test_the_newest_line_of_a_figure_wins_and_other_devices_stay(page, figure):
    text = page(
        figure(ratio=7.25),
        figure(ratio=9.5, device="cpu"),
        figure(ratio=6.25, size={"classes": 300, "dim": 256}),
        figure(ratio=1.125),
    )
    assert "**7.25**" not in text
    assert [text.count(f"**{one}**") for one in ("1.12", "9.5", "6.25")] == [1, 1, 1]
    assert text.index("### NVIDIA H200") < text.index("### CPU (a CPU), 2 threads")


def test_what_python_costs_is_said_beside_what_is_missed(page, figure):
    """Where the same was recorded, at that size and on that device."""
    text = page(
        figure(ratio=2.5),
        figure(case="`update`, float32, recorded", ratio=1.25),
        figure(size={"classes": 3, "dim": 2}, ratio=9.0),
    )
    missed = text.split("\n\n")[2].split("\n")
    assert [line.endswith("; recorded 1.25") for line in missed] == [True, False]


def test_what_is_missed_is_said_first(page, figure):
    missed = figure(ratio=2.5, ours_s=1.0, target_s=0.3, target_gb=0.4)
    text = page(
        missed, figure("retrieval", "mAP", SEARCH, ratio=30.0, counts="peer/ours", target=10.0)
    )
    first, missed_ones = text.split("\n\n")[1:3]
    assert first == "2 of 5 targets are met. Not met:"
    assert missed_ones.startswith("- ndpp, `update`, float32, 24,393 classes, 256 dim, NVIDIA")
    assert [line.split(": ")[-1] for line in missed_ones.split("\n")] == [
        f"2.5 and 1 s ({one})" for one in ("≤ 2", "≤ 0.3 s", "≤ 0.4 GB")
    ]
    assert "≤ 2: **missed**" in text


def test_a_ratio_counts_in_its_direction():
    asked = {"target": 10.0, "ratio": 12.0}
    assert targets_of(asked | {"counts": "peer/ours"}) == [("≥ 10", True)]
    assert targets_of(asked | {"counts": "ours/peer"}) == [("≤ 10", False)]
    assert targets_of({"found": 0.5}) == []


def test_values_of_both_and_steps_are_told(page, figure):
    text = page(
        figure("retrieval", "mAP", SEARCH, value=0.5, peer_value=0.25),
        figure("head", "an epoch", steps=40, ours_s=0.5, peer_s=2.0),
    )
    assert "0.50000000, 0.25000000" in text
    assert "| 500 ms, 80 steps/s | 2 s, 20 steps/s |" in text


def test_a_finding_has_its_own_table(page, figure):
    found = {key: figure()[key] for key in ("size", "precision", "device", "date", "torch")}
    found |= {"suite": "ndpp", "case": "neighbours, tf32", "says": "a share", "found": 0.98765}
    text = page(figure(), found)
    assert "| neighbours, tf32 | 24,393 classes, 256 dim | 0.98765 | a share |" in text


def test_curves_have_their_exponent_and_are_drawn_alike(page, figure, tmp_path):
    curve = [
        figure(
            "growth", "NDPP `update` by classes", {"classes": size, "dim": 256}, axis="classes",
            ours_s=1e-9 * size**2, held_mb=0.5e-3 * size, added_mb=0.5e-3 * size,
        )
        for size in (300, 3_000, 30_000, 300_000)
    ]  # fmt: skip
    text = page(*curve)
    assert "| 300 to 300,000 | 90 µs to 90 s | **2.00** | 0.0003 to 0.3 GB | **1.00** |" in text
    drawn = tmp_path / "figures" / "speed-growth-nvidia-h200.svg"
    assert f"](figures/{drawn.name})" in text
    once = drawn.read_bytes()
    assert ElementTree.fromstring(once).tag.endswith("svg")
    page(*curve)
    assert drawn.read_bytes() == once


def test_a_page_without_lines_has_no_sections(tmp_path):
    assert "##" not in render_page(tmp_path).read_text()


def test_the_page_ends_beyond_one_machine(page, figure):
    last = page(figure()).split("\n## ")[-1]
    assert last.startswith("Beyond one machine")
    assert "10⁷ classes" in last
