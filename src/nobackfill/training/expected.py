"""Compares results with those that the recipe expects, such as the numbers of a paper."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nobackfill.core.config import Recipe

MAPS = {"old_old": "old/old", "new_old": "new/old", "new_new": "new/new"}
SCORES = {"p_up": "P_up", "p_comp": "P_comp", "p_1": "P_1"}
RECALL = "recall_at_1_"


@dataclass(frozen=True)
class Comparison:
    """An expected number and the measured one, in the same unit.

    Attributes:
        name: Name of the number, such as "new/old".
        test: Test collection as the recipe names it; empty if there is one, or for means.
        expected: Expected number, as in the recipe: percent, but fractions for AC and AM.
        measured: Measured number; None if it was not measured.
    """

    name: str
    test: str
    expected: float
    measured: float | None

    @property
    def difference(self) -> float | None:
        """Measured minus expected."""
        return None if self.measured is None else self.measured - self.expected

    def summary(self) -> dict[str, Any]:
        """Returns the numbers as a JSON object."""
        return {**asdict(self), "difference": self.difference}


def expects_results(recipe: Recipe) -> bool:
    """Whether the recipe expects results of its model, besides numbers of images and classes."""
    return any(key in MAPS or key in SCORES or key.startswith(RECALL) for key in recipe.expected)


def compare_results(
    recipe: Recipe, results: Mapping[str, Mapping[str, Any]], summary: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Compares the evaluation of a run with the results that its recipe expects.

    Args:
        recipe: Recipe of the run.
        results: Summary of each test by its name, the first one at the top of `summary`; the name
            is empty for the recipe's own data.
        summary: Summary of the run. Its `mean` has the P-scores of several tests.
    """
    comparisons: list[Comparison] = []
    for key, value in recipe.expected.items():
        if key in MAPS:
            comparisons += _by_test(recipe, MAPS[key], value, results, key)
        elif key.startswith(RECALL):
            pair = key.removeprefix(RECALL)
            name = f"Recall@1 {MAPS.get(pair, pair)}"
            comparisons += _by_test(recipe, name, value, results, "recall_at_1", pair)
        elif key in SCORES:
            measured = summary.get("mean", summary).get(key)
            comparisons.append(Comparison(SCORES[key], "", value, measured))
    return [comparison.summary() for comparison in comparisons]


def compare_sequence(
    expected: Mapping[str, Any], measured: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Compares a sequence with the results that its recipe expects.

    Args:
        expected: Table [expected] of the recipe.
        measured: Content of `sequence.json`.
    """
    comparisons = [
        Comparison(f"query {i} / gallery {j}", "", value, 100 * measured["matrix"][i - 1][j - 1])
        for i, row in enumerate(expected.get("matrix", []), start=1)
        for j, value in enumerate(row, start=1)
        if i <= len(measured["matrix"])
    ]
    for number, value in enumerate(expected.get("independent", []), start=1):
        known = measured["independent"][number - 1 : number]
        result = 100 * known[0] if known and known[0] is not None else None
        comparisons.append(Comparison(f"independent {number}", "", value, result))
    for key, name, number in (
        ("ac_after_one", "AC after one upgrade", 1),
        ("am_after_one", "AM after one upgrade", 1),
        ("ac", "AC", len(measured["after"])),
        ("am", "AM", len(measured["after"])),
    ):
        if key in expected:
            scores: Mapping[str, Any] = next(
                (a for a in measured["after"] if a["upgrades"] == number), {}
            )
            comparisons.append(Comparison(name, "", expected[key], scores.get(key[:2])))
    for row in expected.get("p_scores", []):
        own: Mapping[str, Any] = next(
            (s for s in measured["p_scores"] if (s["new"], s["old"]) == (row["new"], row["old"])),
            {},
        )
        comparisons += [
            Comparison(f"{name} of {row['new']} on {row['old']}", "", row[key], own.get(key))
            for key, name in SCORES.items()
            if key in row
        ]
    return [comparison.summary() for comparison in comparisons]


def match_test(recipe: Recipe, expected: str, names: Sequence[str]) -> str | None:
    """Returns the name of the test that a paper calls `expected`; None if there is none.

    The recipe's own data have an empty name; they match "data" and the name of the collection.

    Example:
        >>> from nobackfill.core.config import Choice
        >>> recipe = Recipe(data=Choice("gldv2"), tests={"rparis": Choice("rparis6k")})
        >>> [match_test(recipe, name, ["", "rparis"]) for name in ("RParis", "GLDv2-test")]
        ['rparis', '']
    """
    plain = "".join(letter for letter in expected.lower() if letter.isalnum())
    for name in names:
        own = (name or recipe.data.name).lower()
        if plain == own or (not name and (plain == "data" or plain.startswith(own))):
            return name
    return None


def _by_test(
    recipe: Recipe,
    name: str,
    expected: Any,
    results: Mapping[str, Mapping[str, Any]],
    *keys: str,
) -> Iterator[Comparison]:
    """Compares one number, or one of each test, with what `keys` lead to in the results."""
    names = list(results)
    tests = expected if isinstance(expected, Mapping) else {"": expected}
    for test, value in tests.items():
        place = match_test(recipe, test, names) if test else names[0]
        measured: Any = {} if place is None else results[place]
        for key in keys:
            measured = None if measured is None else measured.get(key)
        yield Comparison(name, test, value, None if measured is None else 100 * measured)
