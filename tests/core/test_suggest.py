"""One mechanism answers every misspelt word, column, option and path."""

import pytest

from nobackfill.core.suggest import closest, suggest, suggest_path


@pytest.mark.parametrize(
    ("word", "meant"),
    [("NDPP", "ndpp"), ("cross-supcon", "cross_supcon"), ("Lable", "label"), ("zzz", None)],
)
def test_case_and_hyphens_do_not_count(word, meant):
    assert closest(word, ["ndpp", "odpp", "cross_supcon", "label"]) == meant


def test_a_long_list_of_words_is_cut_and_says_so():
    sentence = suggest("zzz", [f"column_{number}" for number in range(100)])
    assert sentence.endswith("column_29 and 70 more.")
    assert suggest("column_9x", [f"column_{number}" for number in range(100)]).startswith("Did you")


def test_a_missing_file_gets_the_name_of_a_similar_one(tmp_path):
    (tmp_path / "old.parquet").touch()
    meant = tmp_path / "old.parquet"
    assert suggest_path(tmp_path / "odl.parquet") == f"Did you mean `{meant}`?"
    assert suggest_path(tmp_path / "pictures") == "Check the path."
    assert suggest_path(tmp_path / "nowhere" / "old.parquet", "Train it.") == "Train it."
