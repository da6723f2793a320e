"""Exponents of exact powers, and the sums that follow from measured rates."""

import pytest

from nobackfill_bench.speed.extrapolate import exponent, extrapolate, power, spoken


@pytest.mark.parametrize("by", [0.5, 1.0, 2.0])
def test_an_exact_power_is_found(by):
    assert exponent({10.0**n: 3 * 10.0 ** (by * n) for n in range(6)}) == pytest.approx(by)


def test_only_the_upper_half_counts():
    floor = {10.0**n: 0.1 + 1e-6 * 10.0 ** (2 * n) for n in range(1, 7)}  # a launch, then squares
    assert exponent(floor) == pytest.approx(2.0, abs=0.01)


def test_too_few_points_have_no_exponent():
    assert exponent({1.0: 1.0, 2.0: 2.0}) is None
    assert exponent({1.0: 1.0, 2.0: 2.0, 3.0: 0.0}) is None
    assert exponent({1.0: 1.0, 2.0: 2.0, 300.0: 300.0}) == pytest.approx(1.0)


def line(suite, case, size, seconds, device="NVIDIA H200", precision="float32"):
    return {"suite": suite, "case": case, "size": size, "ours_s": seconds, "device": device,
            "precision": precision, "date": "2026-01-01"}  # fmt: skip


SEARCH = {"queries": 10_000, "gallery": 1_000_000, "dim": 256}


def test_costs_follow_from_the_largest_figure_on_a_gpu():
    said = "\n".join(
        extrapolate(
            [
                line("retrieval", "mAP, float32", SEARCH, 0.2),
                line("retrieval", "mAP, tf32", SEARCH, 0.05, precision="tf32"),
                line("retrieval", "mAP against x", SEARCH | {"gallery": 10**9}, 9.0, device="cpu"),
                line("ndpp", "`update`, float32", {"classes": 1_000, "dim": 256}, 7.0),
                line("ndpp", "`update`, float32", {"classes": 100_000, "dim": 256}, 0.5),
                line("loss", "forward + backward, float32",
                     {"batch": 4_096, "classes": 1_000_000, "dim": 256}, 0.1),
            ]
        )
    )  # fmt: skip
    assert "20 GPU-seconds (NVIDIA H200)" in said  # a hundred times the gallery
    assert "5,000 GPU-seconds" in said  # a hundred times the classes, squared
    assert "0.25 GPU-seconds" in said  # ten times the classes, a quarter of the batch
    assert "ODPP" not in said  # nothing of it was measured


def test_without_a_gpu_rates_are_those_of_the_cpu():
    said = "\n".join(extrapolate([line("retrieval", "mAP against x", SEARCH, 30.0, device="cpu")]))
    assert "3,000 CPU-seconds (cpu)" in said
    assert "No search was measured yet" in "\n".join(extrapolate([]))


def test_numbers_for_people():
    assert spoken(7200.0) == "120 min"
    assert power(10_000_000) == "10⁷"
