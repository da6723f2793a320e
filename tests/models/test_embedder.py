import torch

from nobackfill.core.config import Choice
from nobackfill.models import make_model

MODEL = Choice("small", {"width": 4, "embedding_dim": 8})


def weights(model):
    return torch.cat([value.flatten().double() for value in model.state_dict().values()])


def test_the_seed_makes_the_first_weights():
    one, same, other = (weights(make_model(MODEL, seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_first_weights_leave_the_global_generator_as_it_was():
    before = torch.get_rng_state()
    make_model(MODEL, seed=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_embedding_is_raw_and_normalised_over_the_batch():
    model = make_model(MODEL, seed=0)
    new = model(torch.randn(32, 1, 16, 16, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(new.mean(dim=0), torch.zeros(8), rtol=0, atol=1e-4)
    torch.testing.assert_close(new.var(dim=0, correction=0), torch.ones(8), rtol=0, atol=1e-2)
    assert new.norm(dim=1).std() > 0.1


def test_thirty_two_pixels_become_four():
    features = make_model(MODEL, seed=0).backbone.network[:-2](torch.zeros(1, 1, 32, 32))
    assert features.shape[-2:] == (4, 4)


def test_without_the_norm_the_embedding_is_the_projection():
    model = make_model(Choice("small", {**MODEL.options, "head": "no_norm"}), seed=0)
    images = torch.randn(4, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    features = model.eval().backbone(images)
    torch.testing.assert_close(model(images), features @ model.projection.weight.T)
    assert not any(name.startswith("norm.") for name in model.state_dict())
    assert torch.equal(model.projection.weight, make_model(MODEL, seed=0).projection.weight)
