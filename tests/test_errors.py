import pytest

from nobackfill.errors import NobackfillError
from nobackfill.methods import METHODS


def test_an_unknown_name_is_a_key_error_without_its_quotation_marks():
    with pytest.raises(KeyError) as error:
        METHODS["ndp"]
    assert isinstance(error.value, NobackfillError)
    assert str(error.value).startswith("unknown method `ndp`. Did you mean")
