"""Names of the collections that nobackfill writes beside the owner's."""

import pytest

from nobackfill.errors import ConfigError
from nobackfill.gallery.stores.base import NOTES, ours


@pytest.mark.parametrize("name", ["V2", "a-b", "", "../v2", "v" * 41, NOTES])
def test_a_name_that_some_engine_cannot_store_is_refused(name):
    with pytest.raises(ConfigError, match="cannot be the name of new vectors"):
        ours("photos", name)


@pytest.mark.parametrize("name", ["v2", "2_v", "v" * 40])
def test_other_names_are_taken(name):
    assert ours("photos", name).endswith(name)
