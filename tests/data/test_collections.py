import torch

from nobackfill.config import Choice
from nobackfill.data.collections import make_collection

SMALL = Choice(
    "glyphs", {"train_classes": 10, "test_classes": 5, "images_per_class": 7, "side": 16}
)


def test_a_shifted_glyph_is_still_ink_on_paper():
    collection = make_collection(SMALL)
    blank = torch.full((4, 1, 16, 16), collection.view(torch.arange(9)).min().item())
    assert torch.equal(collection.augment(blank, torch.Generator().manual_seed(0)), blank)
