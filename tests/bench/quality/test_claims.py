from dataclasses import replace

import pytest

from nobackfill_bench.quality.claims import Verdict, first_paragraph, judge
from nobackfill_bench.quality.paired import OURS, Compared

SEEDS = range(3)
JITTER = (0.0, 0.001, 0.002)  # from seed to seed, of all ways alike


def verdict(suite, not_above, compatible, free, *, seeds=5, room=30.0, near=True, below=()):
    return Verdict(suite, not_above, compatible, free, seeds, room, near, below)


def judged(compared):
    """With the room in full digits rounded."""
    found = judge("glyphs", compared)
    return replace(found, room=round(found.room, 6))


def numbers(new_old, new_new, *, jitter=JITTER):
    return {seed: (0.4, new_old + jitter[seed], new_new) for seed in SEEDS}


@pytest.fixture
def compare(lines_of):
    """Ours at some new/old and new/new, beside others and the independent model at 0.7."""

    def make(new_old=0.5, new_new=0.7, *, others=None, ceiling=0.7, jitter=JITTER):
        lines = lines_of(OURS, numbers(new_old, new_new, jitter=jitter))
        for way, (its_old, its_new) in (others or {"ndpp": (0.45, 0.65)}).items():
            lines += lines_of(way, numbers(its_old, its_new))
        if ceiling is not None:
            lines += lines_of("independent", numbers(0.01, ceiling))
        return Compared.of(lines)

    return make


def test_all_holds_where_ours_is_above_all_others(compare):
    assert judged(compare()) == verdict("glyphs", (), True, True, seeds=3)


def test_ours_must_have_been_run(lines_of):
    assert judge("glyphs", Compared.of(lines_of("ndpp", numbers(0.5, 0.6)))) is None


def test_a_better_way_and_an_equal_one_are_named_and_a_worse_one_is_not(compare):
    others = {"better": (0.6, 0.7), "equal": (0.5, 0.7), "worse": (0.45, 0.7)}
    found = judge("glyphs", compare(others=others))
    assert sorted(found.not_above) == ["better", "equal"]


def test_a_mean_above_that_may_be_chance_is_not_enough(compare):
    noisy = compare(0.5, jitter=(-0.08, 0.0, 0.08), others={"ndpp": (0.49, 0.7)})
    assert judge("glyphs", noisy).not_above == ("ndpp",)
    steady = compare(0.5, others={"ndpp": (0.49, 0.7)})
    assert judge("glyphs", steady).not_above == ()


def test_a_single_seed_is_not_enough(lines_of):
    lines = [
        *lines_of(OURS, {0: (0.4, 0.6, 0.7)}),
        *lines_of("ndpp", {0: (0.4, 0.41, 0.5)}),
        *lines_of("independent", {0: (0.4, 0.1, 0.7)}),
    ]
    assert judged(Compared.of(lines)) == verdict(
        "glyphs", ("ndpp",), False, True, seeds=1, below=("ndpp",)
    )


def test_a_way_on_other_seeds_is_not_compared(lines_of, compare):
    lines = [line for ways in compare().runs.values() for line in ways.values()]
    lines += lines_of("rbcl", {seed + 10: (0.4, 0.45, 0.65) for seed in SEEDS})
    found = judge("glyphs", Compared.of(lines))
    assert (found.not_above, found.unpaired) == ((), ("rbcl",))
    text = first_paragraph({"glyphs": found})
    assert "every other method, with a paired 95 % interval above 0, in 0 of them." in text
    assert "In `glyphs` no seed is shared with `rbcl`." in text


def test_the_ceilings_are_no_rivals(compare):
    others = {"independent_contrastive": (0.9, 0.9), "ndpp": (0.45, 0.65)}
    assert judge("glyphs", compare(others=others)).not_above == ()


@pytest.mark.parametrize(
    ("new_old", "jitter", "holds"),
    [
        (0.5, JITTER, True),
        (0.39, JITTER, False),
        (0.4, (0.0, 0.0, 0.0), False),  # equal is not above
        (0.41, (-0.05, 0.0, 0.05), False),  # above, maybe by chance
    ],
)
def test_compatible_is_new_old_above_old_old_for_sure(compare, new_old, jitter, holds):
    assert judge("glyphs", compare(new_old, jitter=jitter)).compatible is holds


@pytest.mark.parametrize(("new_new", "holds"), [(0.8, True), (0.6951, True), (0.6949, False)])
def test_free_is_at_most_half_a_point_below_the_independent_model(compare, new_new, holds):
    assert judge("glyphs", compare(new_new=new_new)).free is holds


def test_where_the_independent_model_is_no_better_no_p_1_can_be_told(compare):
    found = judged(compare(ceiling=0.4))
    assert found == verdict("glyphs", None, True, True, seeds=3, room=0.0, near=None)


def test_nothing_is_said_of_an_independent_model_that_was_not_run(compare):
    said = first_paragraph({"glyphs": judge("glyphs", compare(ceiling=None))})
    assert "below** the independent model's in `glyphs`" not in said
    assert "the independent model is no better" not in said


def test_the_paragraph_counts_where_it_holds_and_names_where_it_does_not():
    said = first_paragraph(
        {
            "a": verdict("a", (), True, True),
            "b": verdict("b", ("bct", "rbcl"), False, True),
            "c": verdict("c", None, True, False),
            "d": verdict("d", (), False, False),
        }
    )
    assert f"`{OURS}`, was run on 4 upgrades" in said
    assert "above 0, in 2 of them (`a`, `d`)." in said
    assert "In `b` this does not hold for `bct`, `rbcl`." in said
    assert "In `c` P_1 is not defined" in said
    assert "**not compatible** (new/old above old/old, interval above 0) in `b`, `d`." in said
    assert "**more than 0.5 below** the independent model's in `c`, `d`." in said


def test_the_paragraph_of_what_holds_nowhere_and_of_what_holds_everywhere():
    nowhere = first_paragraph({"a": verdict("a", ("bct",), False, False)})
    assert "in 0 of them. Its mean P_1 is" in nowhere
    assert "in 1 (`a`). In `a` this does not hold for `bct`." in nowhere
    everywhere = first_paragraph({"a": verdict("a", (), True, True)})
    assert everywhere.count(" in none.") == 2
    assert "does not hold" not in everywhere


@pytest.mark.parametrize(("new_old", "near"), [(0.51, True), (0.499, True), (0.45, False)])
def test_near_is_at_most_three_tenths_of_p_1_below_the_best(compare, new_old, near):
    others = {"best": (0.5, 0.7), "worse": (0.45, 0.7)}
    assert judge("glyphs", compare(new_old, others=others)).near is near


@pytest.mark.parametrize(
    ("new_old", "new_new", "below"),
    [(0.5, 0.7, ()), (0.4951, 0.6951, ()), (0.4949, 0.7, ("odpp",)), (0.5, 0.6949, ("odpp",))],
)
def test_more_than_half_a_point_below_a_method_of_the_paper_is_named(
    compare, new_old, new_new, below
):
    others = {"odpp": (0.5, 0.7), "ndpp": (0.45, 0.65), "bct": (0.6, 0.8)}
    verdict = judge("glyphs", compare(new_old, new_new, others=others))
    assert verdict.below == below
    said = first_paragraph({"glyphs": verdict})
    assert ("everywhere but in `glyphs` (`odpp`)." if below else "everywhere.") in said


def test_an_interval_that_reaches_below_is_not_enough(compare):
    noisy = compare(0.5, jitter=(-0.08, 0.0, 0.08), others={"ndpp": (0.49, 0.65)})
    assert judge("glyphs", noisy).below == ("ndpp",)


def test_suites_of_the_earlier_default_are_named():
    said = first_paragraph({"a": verdict("a", (), True, True)}, earlier=["b", "c"])
    assert said.endswith(
        "It was not run in `b`, `c`: their rows are of the earlier default, `janus`."
    )


def test_the_paragraph_warns_of_few_seeds():
    def said(*seeds):
        verdicts = [
            Verdict(name, (), True, True, number, 30.0)
            for name, number in zip("abc", seeds, strict=True)
        ]
        return first_paragraph({one.suite: one for one in verdicts})

    assert said(2, 3, 1).endswith("Too few seeds for a conclusion: `a` (2), `c` (1).")
    assert "few" not in said(3, 4, 5)


def test_where_there_is_next_to_nothing_to_gain_p_1_proves_nothing(compare):
    narrow = judge("glyphs", compare(0.405, ceiling=0.402, others={"ndpp": (0.35, 0.4)}))
    assert narrow.not_above == ()
    said = first_paragraph({"glyphs": narrow})
    assert "in 0 of them." in said
    assert "In `glyphs` P_1 means little: the independent model is only 0.20 points above" in said
    assert "means little" not in first_paragraph({"glyphs": judge("glyphs", compare())})
