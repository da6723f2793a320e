import json

import pytest
import torch
from safetensors.torch import load_file
from torch.utils.data import Dataset

transformers = pytest.importorskip("transformers")
from transformers import ResNetConfig, ResNetModel, Trainer, TrainingArguments

import nobackfill as nb
from nobackfill.errors import ConfigError, DataError
from nobackfill.integrations.transformers import CompatibleLoss, compatible_training, plain

CLASSES, DIM, ITEMS = 4, 8, 24
PIXELS = torch.rand(ITEMS, 1, 16, 16, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(ITEMS) % CLASSES


class Images(Dataset):
    def __init__(self, column=LABELS, name="label"):
        self.column, self.name = column, name

    def __len__(self):
        return ITEMS

    def __getitem__(self, row):
        return {"pixel_values": PIXELS[row], self.name: self.column[row].item()}


def make_model(seed=0):
    torch.manual_seed(seed)
    return ResNetModel(
        ResNetConfig(
            num_channels=1,
            embedding_size=DIM,
            hidden_sizes=[DIM],
            depths=[1],
            layer_type="basic",
        )
    )


def make_method(name="ndpp", **options):
    generator = torch.Generator().manual_seed(1)
    old = nb.OldSpace(
        prototypes=torch.randn(CLASSES, DIM, generator=generator),
        embeddings=torch.randn(ITEMS, DIM, generator=generator),
        labels=LABELS,
    )
    torch.manual_seed(2)
    return nb.METHODS[name](old, CLASSES, **options)


def make_trainer(model, folder, new, *, data=None, **changes):
    settings = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": 6,
        "learning_rate": 0.01,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "logging_steps": 4,
        "dataloader_pin_memory": False,
    }
    arguments = TrainingArguments(str(folder), **settings | changes)
    return Trainer(model, arguments, train_dataset=data or Images(), **new)


def same(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def test_model_and_method_are_trained_and_the_targets_move(tmp_path):
    model, method = make_model(), make_method()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    classifier, moved = method.classifier.weight.clone(), method.perturb.moved.clone()
    make_trainer(model, tmp_path, compatible_training(model, method)).train()
    assert not torch.equal(method.classifier.weight, classifier)
    assert not torch.equal(method.perturb.moved, moved)
    assert int(model.compatible_loss.started) == 2
    assert plain(model) is model
    after = model.state_dict()
    assert after.keys() == before.keys()  # a plain model again
    assert not all(torch.equal(after[name], before[name]) for name in before)


def test_the_method_is_in_the_checkpoint_and_the_terms_in_the_log(tmp_path):
    model, method = make_model(), make_method()
    trainer = make_trainer(
        model, tmp_path, compatible_training(model, method), save_strategy="epoch"
    )
    trainer.train()
    saved = load_file(tmp_path / "checkpoint-8" / "model.safetensors")
    weight = saved["compatible_loss.method.classifier.weight"]
    assert torch.equal(weight, method.classifier.weight)
    assert torch.equal(saved["compatible_loss.method.perturb.moved"], method.perturb.moved)
    log = json.loads((tmp_path / "checkpoint-8" / "trainer_state.json").read_text())["log_history"]
    assert log[0].keys() >= {"loss", "loss_classification", "loss_compatibility"}
    terms = model.compatible_loss.terms
    assert log[-1]["loss_compatibility"] == pytest.approx(terms["compatibility"].item())


@pytest.mark.parametrize("running_means", [False, True])
@pytest.mark.parametrize("step", [4, 6])  # the end of the first epoch, the middle of the second
def test_a_resumed_run_equals_one_that_never_stopped(tmp_path, step, running_means):
    def run(**changes):
        model = make_model()
        new = compatible_training(model, make_method(), running_means=running_means)
        trainer = make_trainer(
            model, tmp_path, new, num_train_epochs=3, save_strategy="steps", save_steps=2
        )
        trainer.train(**changes)
        return model.state_dict()

    same(run(), run(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}")))


def test_accumulated_batches_have_the_gradient_of_one_batch(tmp_path):
    gradients = []
    for size, accumulate in ((ITEMS, 1), (ITEMS // 3, 3)):
        model, method = make_model().eval(), make_method("prototype_alignment")
        new = compatible_training(model, method)
        trainer = make_trainer(
            model,
            tmp_path,
            new,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulate,
            max_steps=1,
            max_grad_norm=0,
            optim="sgd",
            learning_rate=1.0,
            lr_scheduler_type="constant",
        )
        before = method.classifier.weight.detach().clone()
        model.train = lambda mode=True, model=model: model  # BatchNorm would see other batches
        trainer.train()
        gradients.append(before - method.classifier.weight.detach())
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)
    assert gradients[0].abs().max() > 1e-3


def test_items_replace_labels_for_methods_that_compare_items(tmp_path):
    method = make_method("janus", dim=DIM)
    with pytest.raises(ConfigError, match="pass the classes as `item_labels=`"):
        CompatibleLoss(method)
    loss = CompatibleLoss(method, item_labels=LABELS, embedding=lambda outputs: outputs)
    new, items = torch.randn(6, DIM), torch.tensor([20, 3, 4, 9, 1, 16])
    terms = []
    for value in (
        lambda: loss(new, items),
        lambda: sum(method(new, LABELS[items], items=items).values()),
    ):
        torch.manual_seed(4)
        terms.append(value())
    assert terms[0] == terms[1]

    model = make_model()
    data = Images(torch.arange(ITEMS))
    make_trainer(
        model, tmp_path, compatible_training(model, method, item_labels=LABELS), data=data
    ).train()
    assert model.compatible_loss.terms["ranking"] > 0


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # read by peft
def test_an_adapter_and_its_method_are_resumed(tmp_path):
    peft = pytest.importorskip("peft")

    def run(**changes):
        model = peft.get_peft_model(
            make_model(), peft.LoraConfig(r=2, target_modules=["convolution"])
        )
        for module in model.modules():  # the statistics of BatchNorm are no part of the adapter
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = 0.0
        torch.manual_seed(3)
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, std=0.1)
        new = compatible_training(model, make_method())
        trainer = make_trainer(model, tmp_path, new, save_strategy="epoch")
        trainer.train(**changes)
        return {k: v for k, v in model.state_dict().items() if "lora" in k or "compatible" in k}

    whole, checkpoint = run(), tmp_path / "checkpoint-4"
    assert any("lora_A" in name for name in load_file(checkpoint / "adapter_model.safetensors"))
    same(whole, run(resume_from_checkpoint=str(checkpoint)))
    (checkpoint / "compatible_loss.safetensors").unlink()
    with pytest.raises(DataError, match="has no state of the method"):
        run(resume_from_checkpoint=str(checkpoint))


def test_labels_that_trainer_drops_are_an_error_that_says_so(tmp_path):
    model = make_model()
    new, data = compatible_training(model, make_method()), Images(name="labels")
    with pytest.raises(DataError, match=r'label_names=\["labels"\]'):
        make_trainer(model, tmp_path, new, data=data).train()
    trainer = make_trainer(model, tmp_path, new, data=data, label_names=["labels"])
    trainer.train()
    assert trainer.state.global_step == 8


def test_outputs_without_the_embedding_are_an_error_with_their_fields():
    model = make_model()
    loss = CompatibleLoss(make_method(), embedding="image_embeds")
    with pytest.raises(DataError, match="`image_embeds`, but: last_hidden_state, pooler_output"):
        loss(model(pixel_values=PIXELS), LABELS)
