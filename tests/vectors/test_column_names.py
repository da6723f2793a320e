import pytest

from nobackfill.errors import ConfigError, DataError
from nobackfill.vectors.column_names import choose_columns, require_label


def chosen(*names, **options):
    choice = choose_columns(names, **options)
    return choice.id, choice.vector, choice.label


def test_our_names_come_before_usual_ones_and_need_no_note():
    names = ["uuid", "id", "embedding", "vector", "category", "label"]
    assert chosen(*names) == ("id", ("vector",), "label")
    assert choose_columns(names).notes == ()


@pytest.mark.parametrize("id", ["ID", "item_id", "docId", "Document ID", "_id", "uuid", "key"])
@pytest.mark.parametrize("vector", ["embedding", "Embeddings", "vec", "emb", "features"])
@pytest.mark.parametrize("label", ["Label", "category", "class_id", "Product", "group"])
def test_usual_names_in_any_case_are_found_and_said(id, vector, label):
    names = ["text", id, label, vector]
    assert chosen(*names) == (id, (vector,), label)
    (note,) = choose_columns(names).notes
    assert all(f"`{name}`" in note for name in (id, vector, label))


@pytest.mark.parametrize(
    "names",
    [
        ["0", "1", "2"],
        ["dim_0", "dim_1", "dim_2"],
        ["v1", "v2", "v3"],
        ["emb_000", "emb_001", "emb_002"],
        ["CLIP 1", "CLIP 2"],
    ],
)
def test_numbered_columns_are_a_vector_in_the_order_of_their_numbers(names):
    assert chosen("label", *reversed(names), "id") == ("id", tuple(names), "label")


def test_ten_follows_nine():
    names = [f"e{number}" for number in range(12)]
    assert chosen(*sorted(names), "id")[1] == tuple(names)


def test_usual_stems_come_before_others():
    assert chosen("id", "box_0", "box_1", "dim_0", "dim_1")[1] == ("dim_0", "dim_1")
    assert chosen("id", "box_0", "box_1", "dim_0", "dim_1", vector="box")[1] == ("box_0", "box_1")


def test_a_single_list_of_numbers_is_the_vector_whatever_its_name():
    assert chosen("id", "clip", lists=["clip"])[1] == ("clip",)
    assert chosen("id", "embeddings", "embedding", lists=["embedding"])[1] == ("embedding",)


def test_without_ids_row_numbers_are_used_and_said():
    assert chosen("embedding")[0] is None
    assert any("row numbers" in note for note in choose_columns(["embedding"]).notes)


def test_the_index_of_pandas_is_the_id_if_there_is_no_other():
    assert chosen("", "0", "1") == ("", ("0", "1"), None)
    assert chosen("Unnamed: 0", "id", "vector")[0] == "id"


@pytest.mark.parametrize(
    ("names", "options"),
    [
        (["doc_id", "uuid", "vector"], ["`doc_id` and `uuid`", "--id doc_id", "id='doc_id'"]),
        (["id", "vec", "emb"], ["`vec` and `emb`", "--vector vec", "vector='vec'"]),
        (["id", "p1", "p2", "q1", "q2"], ["`p1` … `p2` and `q1` … `q2`", "--vector q"]),
    ],
)
def test_two_candidates_are_an_error_with_both_and_the_option(names, options):
    with pytest.raises(DataError) as error:
        choose_columns(names)
    assert all(text in str(error.value) for text in options)


def test_two_labels_are_an_error_only_where_labels_are_required():
    names = ["id", "vector", "category", "product"]
    choice = choose_columns(names)
    assert choice.label is None
    assert "`category` and `product`" in choice.notes[0]
    with pytest.raises(DataError, match="--label category or --label product"):
        require_label(names)
    assert chosen(*names, label="product")[2] == "product"


def test_a_typo_gets_a_suggestion():
    with pytest.raises(ConfigError, match="Did you mean `embedding`"):
        choose_columns(["id", "embedding"], vector="embeding")
    with pytest.raises(ConfigError, match="Did you mean `sku_no`"):
        choose_columns(["sku_no", "embedding"], id="skuno")


def test_a_missing_dimension_is_named():
    with pytest.raises(DataError, match="`dim_0` … `dim_3` lack number 2"):
        choose_columns(["id", "dim_0", "dim_1", "dim_3"])


def test_a_table_without_a_vector_names_its_columns():
    with pytest.raises(DataError, match="--vector NAME.*The columns are id, text"):
        choose_columns(["id", "text"])


def test_a_reserved_name_that_another_column_has_taken_is_unused():
    choice = choose_columns(["id", "sku", "vector"], id="sku")
    assert (choice.id, choice.unused) == ("sku", {"id"})
