"""Choice of every method's options on classes that no table reports, by the same rule for all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nobackfill_bench.quality.paired import Compared
from nobackfill_bench.quality.study import Request, Study
from nobackfill_bench.results_log import Line

INDEPENDENT = "independent"  # P_1 needs its new/new

# Three other trials of each method. The first one has the published options or, for the methods of
# this project, the default ones. Mostly: a third of the weight, three times the weight, and another
# value of the option that the authors tune or that other published code has otherwise.
TRIALS: dict[str, tuple[str, ...]] = {
    "prototype_alignment": ("weight=0.3", "weight=3", "temperature=0.2"),
    "ndpp_old": ("weight=0.3", "weight=3", "old_strength=0.4"),
    "ndpp": ("weight=0.3", "weight=3", "old_strength=0.4"),
    "odpp_old": ("weight=0.3", "weight=3", "old_threshold=0.4"),
    "odpp": ("weight=0.3", "weight=3", "old_threshold=0.4"),
    "bct": ("weight=0.1", "weight=0.3", "weight=3"),
    "lwf": ("weight=0.3", "weight=3", "temperature=1"),
    "unibct": ("weight=0.3", "weight=3", "margin=0"),
    "unibct_spr": ("weight=0.3", "weight=3", "margin=0"),
    "ract": ("weight=0.3", "weight=3", "temperature=0.07"),
    "advbct": ("weight=0.3", "weight=3", "target_radius=0.5"),
    "dual_tuning": ("prototype_weight=0.3", "classifier_weight=0.1", "classifier_weight=0.6"),
    "sspl": ("sharpness=3", "sharpness=30", "parts=8"),
    "sspl_ce": ("weight=0.3", "weight=3", "parts=8"),
    "bt2": ("mimic_weight=1.5", "mimic_weight=15", "prototype_weight=3"),
    "rm": ("contrast_weight=0.3", "contrast_weight=3", "temperature=0.2"),
    "rbcl": ("weight=0.3", "weight=3", "neighbors=10"),
    "prototype_mimic": ("weight=0.3", "weight=3", "mimic_weight=3"),
    "cross_supcon": ("weight=0.3", "weight=3", "temperature=0.2"),
    "janus": ("weight=0.7", "weight=6", "share=1"),
    "member_contrast": ("weight=0.3", "weight=3", "share=1"),
    "prototype_alignment_mapped": ("weight=0.3", "weight=3", "share=1"),
    "ndpp_mapped": ("weight=0.3", "weight=3", "share=1"),
    "odpp_mapped": ("weight=0.3", "weight=3", "share=1"),
}


@dataclass(frozen=True)
class OptionChoice(Study):
    """Tries options of all methods on held-out training classes, then runs the best on the suite.

    The best of a method has the highest mean P_1 over the seeds. Its trials are searched in classes
    held out of the training set; the classes that the suite reports take no part.

    Attributes:
        trials: Options to try of each method, besides its default ones; equally many for all.
        held_out: Changed settings of the recipes of the trials.
        trial_seeds: Seeds of the trials, other than those of the suite.
    """

    trials: Mapping[str, Sequence[str]] = field(default_factory=dict)
    held_out: tuple[str, ...] = ()
    trial_seeds: range = range(0)

    @property
    def decides(self) -> bool:
        """The last runs depend on the trials."""
        return True

    def tried(self, method: str) -> tuple[str, ...]:
        """Returns the trials of a method, the default options first."""
        return (method, *(f"{method}:{options}" for options in self.trials[method]))

    def first(self) -> Request:
        """Returns the trials of all methods."""
        ways = (way for method in self.trials for way in self.tried(method))
        return Request((INDEPENDENT, *ways), self.trial_seeds, self.held_out)

    def requests(self, lines: Sequence[Line]) -> list[Request]:
        """Returns the trials and, for methods that have them all, the suite's runs of the best."""
        chosen = self.chosen(lines)
        ways = dict.fromkeys([INDEPENDENT, *chosen, *chosen.values()])
        last = [Request(tuple(ways), range(self.seeds))] if chosen else []
        return [self.first(), *last]

    def chosen_variants(self, lines: Sequence[Line]) -> tuple[str, ...]:
        """Returns the variants that the suite's table shows beside the default options."""
        return tuple(way for method, way in self.chosen(lines).items() if way != method)

    def chosen(self, lines: Sequence[Line]) -> dict[str, str]:
        """Returns the best trial of each method that has all of them; the first at equal P_1."""
        compared = self.first().of(lines)
        return {
            method: max(self.tried(method), key=lambda way: compared.mean(way, compared.p_1).value)
            for method in self.trials
            if all(
                compared.mean(way, compared.p_1).seeds == len(self.trial_seeds)
                for way in self.tried(method)
            )
        }


def options_in(way: str) -> str:
    """Returns the options of a variant as text.

    Example:
        >>> options_in("ract:temperature=0.07,weight=3"), options_in("ract")
        ('temperature=0.07, weight=3', 'as published')
    """
    return ", ".join(way.partition(":")[2].split(",")) or "as published"


def scores(study: OptionChoice, lines: Sequence[Line]) -> tuple[Compared, Compared]:
    """Returns the results of the trials and those on the suite's own classes."""
    *_, last = study.requests(lines)
    return study.first().of(lines), last.of(lines)
