import json

import pytest
import torch
from torch import nn

peft = pytest.importorskip("peft")
from transformers import BertConfig, BertModel

import nobackfill as nb
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.head.old_query import WEIGHTS, add_old, choose_weight
from nobackfill.integrations.method_loss import MethodLoss
from nobackfill.integrations.peft import AdapterUpgrade, adapter_off, fingerprint

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing`:FutureWarning"  # read by peft
)
DIM, CLASSES = 16, 4
TOKENS = torch.randint(5, 40, (12, 7), generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(12) % CLASSES
SETTINGS = {"r": 2, "lora_dropout": 0.3, "target_modules": ["query", "value"]}


def make_base(seed=0):
    torch.manual_seed(seed)
    return BertModel(
        BertConfig(vocab_size=40, hidden_size=DIM, num_hidden_layers=2, num_attention_heads=2,
                   intermediate_size=24, max_position_embeddings=16)
    ).eval()  # fmt: skip


def embed(model, tokens):
    return model(input_ids=tokens).last_hidden_state.mean(dim=1)


def with_peft(base):
    return peft.get_peft_model(base, peft.LoraConfig(**SETTINGS))


def with_transformers(base):
    base.add_adapter(peft.LoraConfig(**SETTINGS))
    return base


both_ways = pytest.mark.parametrize("attach", [with_peft, with_transformers])


def train(model, steps=5):
    """Trains the adapter by NDPP in a plain loop."""
    old = nb.OldSpace(prototypes=torch.randn(CLASSES, DIM))
    loss = MethodLoss(nb.METHODS["ndpp"](old, CLASSES))
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam([*trainable, *loss.parameters()], lr=0.05)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss(embed(model, TOKENS), LABELS).backward()
        optimizer.step()


@both_ways
def test_old_vectors_are_reproduced_bit_for_bit_with_the_adapter_off(attach):
    base = make_base()
    with torch.no_grad():
        before = embed(base, TOKENS)
    model = attach(base)
    train(model)
    upgrade = AdapterUpgrade(model, embed)
    assert torch.equal(upgrade.old(TOKENS), before)
    new = upgrade.new(TOKENS)
    assert (new - before).abs().max() > 0.01
    assert torch.equal(upgrade.new(TOKENS), new)  # the adapter is on again
    assert model.training
    assert {n for n, p in model.named_parameters() if p.requires_grad} == {
        n for n, _ in model.named_parameters() if "lora_" in n
    }


@both_ways
def test_an_upgrade_is_a_small_folder_for_its_base(attach, tmp_path):
    model = attach(make_base())
    train(model)
    torch.manual_seed(5)
    upgrade = AdapterUpgrade(model, embed, nn.Linear(DIM, DIM), old_weight=0.3)
    upgrade.save(tmp_path)
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert size < sum(p.numel() for p in model.parameters()) * 4 / 2
    again = AdapterUpgrade.load(make_base(), tmp_path, embed)
    assert again.old_weight == 0.3
    for vectors in ("old", "new", "query"):
        assert torch.equal(getattr(again, vectors)(TOKENS), getattr(upgrade, vectors)(TOKENS))
    assert not any(p.requires_grad for n, p in again.model.named_parameters() if "lora_" in n)
    with pytest.raises(SpaceMismatch, match="trained on another base model"):
        AdapterUpgrade.load(make_base(seed=1), tmp_path, embed)


def test_an_upgrade_without_a_map_leaves_no_earlier_map_in_its_folder(tmp_path):
    model = with_peft(make_base())
    AdapterUpgrade(model, embed, nn.Linear(DIM, DIM)).save(tmp_path)
    AdapterUpgrade(model, embed).save(tmp_path)
    assert AdapterUpgrade.load(make_base(), tmp_path, embed).query_map is None


def test_queries_are_those_of_the_new_model_or_of_both():
    model = with_peft(make_base())
    train(model)
    upgrade = AdapterUpgrade(model, embed)
    assert torch.equal(upgrade.query(TOKENS), upgrade.new(TOKENS))
    upgrade.query_map, upgrade.old_weight = nn.Linear(DIM, DIM), 0.25
    new = upgrade.query_map(upgrade.new(TOKENS)).detach()
    assert torch.equal(upgrade.query(TOKENS), add_old(new, upgrade.old(TOKENS), 0.25))


def test_the_base_is_recognised_with_and_without_an_adapter_and_a_loss():
    base = make_base()
    known = fingerprint(base)
    model = with_peft(base)
    train(model)
    model.add_module("loss", MethodLoss(nb.METHODS["independent"](nb.OldSpace(), 3, dim=4)))
    assert fingerprint(model) == known
    with torch.no_grad():
        next(p for n, p in model.named_parameters() if "LayerNorm" in n)[3] += 1e-6
    assert fingerprint(model) != known


def test_statistics_of_batchnorm_belong_to_the_base():
    base = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    known = fingerprint(base)
    model = peft.get_peft_model(base, peft.LoraConfig(r=1, target_modules=["0"]))
    model.train()(torch.randn(8, 4))
    assert fingerprint(model) != known


def test_a_merged_adapter_and_a_model_without_one_are_errors():
    model = with_peft(make_base())
    model.merge_adapter()
    with pytest.raises(ConfigError, match="Keep it unmerged"), adapter_off(model):
        pass
    with pytest.raises(ConfigError, match="has no adapter"), adapter_off(make_base()):
        pass
    with pytest.raises(ConfigError, match="has no adapter that peft can save"):
        AdapterUpgrade(make_base(), embed).save("nowhere")


def test_an_adapter_that_is_off_stays_off():
    model = with_peft(make_base())
    train(model)
    with model.disable_adapter():
        expected = embed(model.eval(), TOKENS)
        with adapter_off(model):
            pass
        assert torch.equal(embed(model, TOKENS), expected)


def test_a_folder_of_something_else_is_an_error(tmp_path):
    with pytest.raises(DataError, match="has no nobackfill.json"):
        AdapterUpgrade.load(make_base(), tmp_path, embed)
    (tmp_path / "nobackfill.json").write_text(json.dumps({"base": "a"}))
    with pytest.raises(DataError, match="`old_weight` is missing"):
        AdapterUpgrade.load(make_base(), tmp_path, embed)


def test_the_weight_is_the_one_with_the_highest_map():
    generator = torch.Generator().manual_seed(3)
    centres = torch.randn(6, 8, generator=generator)
    labels = torch.arange(60) % 6

    def noisy(scale):
        return centres[labels] + scale * torch.randn(60, 8, generator=generator)

    gallery, old, new = noisy(1.5), noisy(1.5), noisy(1.5)
    values = {
        weight: nb.retrieval(
            add_old(new, old, weight), gallery, labels, labels
        ).mean_average_precision
        for weight in WEIGHTS
    }
    chosen = choose_weight(old, new, gallery, labels, labels)
    assert values[chosen] == max(values.values())
    assert 0 < chosen < 1  # two independent errors: both models together are best
