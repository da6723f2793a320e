import pytest
import torch

from nobackfill.core.config import Choice
from nobackfill.models import make_model
from nobackfill.models.residual import ResidualBlock, residual


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"width": 8, "stages": 4, "stem": 3, "stride": 2},
        {"width": 8, "side": 33, "depth": 1},
        {"width": 4, "channels": 3, "stages": 1},
    ],
)
def test_features_are_all_places_of_the_last_layer(options):
    backbone = residual(**options)
    side, channels = options.get("side", 40), options.get("channels", 1)
    features = backbone(torch.zeros(2, channels, side, side))
    assert features.shape == (2, backbone.feature_dim)


def test_a_block_adds_its_path_to_the_shortcut():
    block = ResidualBlock(3, 3).eval()
    torch.nn.init.zeros_(block.path[3].weight)  # the path adds nothing
    images = torch.randn(2, 3, 5, 5)
    assert torch.equal(block(images), images.relu())


def test_a_larger_network_is_wider_or_deeper():
    sizes = [
        sum(p.numel() for p in make_model(Choice("residual", options), seed=0).parameters())
        for options in ({}, {"width": 64}, {"depth": 3})
    ]
    assert sizes[0] < min(sizes[1:])


def test_each_stage_halves_the_image_and_doubles_the_channels():
    backbone = residual(width=4, stages=3, depth=1)
    shapes = []
    for layer in backbone.network:
        if isinstance(layer, ResidualBlock):
            layer.register_forward_hook(lambda m, i, o: shapes.append(tuple(o.shape[1:])))
    backbone(torch.zeros(1, 1, 40, 40))
    assert shapes == [(4, 10, 10), (8, 5, 5), (16, 3, 3)]
