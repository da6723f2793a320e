import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("lightning")
import lightning.pytorch
import pytorch_lightning

import nobackfill as nb
from nobackfill.errors import ConfigError
from nobackfill.integrations.lightning import CompatibleEpochs, MethodLoss, count_epochs, find_loss

CLASSES, DIM, ITEMS = 4, 6, 24
INPUTS = torch.randn(ITEMS, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(ITEMS) % CLASSES
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # Lightning with torch 2.13
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
]


def make_method(name="ndpp"):
    generator = torch.Generator().manual_seed(1)
    old = nb.OldSpace(prototypes=torch.randn(CLASSES, DIM, generator=generator))
    torch.manual_seed(2)
    return nb.METHODS[name](old, CLASSES)


def make_module(package=lightning.pytorch, method=None, **options):
    class Encoder(package.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.model = nn.Sequential(nn.Linear(5, DIM), nn.BatchNorm1d(DIM), nn.Dropout(0.2))
            self.loss = MethodLoss(method or make_method(), **options)

        def forward(self, inputs):
            return self.model(inputs)

        def training_step(self, batch, index):
            inputs, labels = batch
            return self.loss(self(inputs), labels)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.01)

    return Encoder()


def make_trainer(callback=None, package=lightning.pytorch, callbacks=(), **changes):
    settings = {
        "max_epochs": 3,
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": bool(callbacks),
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    callback = callback or CompatibleEpochs()
    return package.Trainer(callbacks=[callback, *callbacks], **settings | changes)


def loader(seed=None):
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return DataLoader(TensorDataset(INPUTS, LABELS), 6, shuffle=True, generator=generator)


@pytest.mark.parametrize("package", [lightning.pytorch, pytorch_lightning])
def test_model_and_method_are_trained_and_terms_are_logged(package):
    module = make_module(package)
    method = module.loss.method
    classifier, moved = method.classifier.weight.clone(), method.perturb.moved.clone()
    trainer = make_trainer(package=package)
    trainer.fit(module, loader())
    assert not torch.equal(method.classifier.weight, classifier)
    assert not torch.equal(method.perturb.moved, moved)
    assert int(module.loss.started) == 3
    logged = trainer.callback_metrics
    assert set(logged) == {"train/classification", "train/compatibility"}
    assert all(float(value) > 0 for value in logged.values())


def test_prototypes_are_those_of_a_pass_in_eval_mode():
    module = make_module()
    seen = []
    module.loss.method.perturb.update = seen.append
    with torch.no_grad():
        expected = nb.class_means(module.eval()(INPUTS), LABELS, CLASSES)
    make_trainer(max_epochs=1).fit(module.train(), loader())
    torch.testing.assert_close(seen[0], expected)
    assert module.model.training  # as before the pass


def test_the_embedding_and_the_loader_of_a_pass_can_be_given():
    module, seen = make_module(), []
    module.loss.method.perturb.update = seen.append
    batches = [{"x": INPUTS[:10], "y": LABELS[:10]}, {"x": INPUTS[10:], "y": LABELS[10:]}]
    callback = CompatibleEpochs(
        embed=lambda module, batch: (2 * module(batch["x"]) + 1, batch["y"]),
        loader=batches,
        log_as=None,
    )
    with torch.no_grad():
        expected = nb.class_means(2 * module.eval()(INPUTS) + 1, LABELS, CLASSES)
    trainer = make_trainer(callback, max_epochs=1)
    trainer.fit(module.train(), loader())
    torch.testing.assert_close(seen[0], expected)
    assert not trainer.callback_metrics


def checkpoints(folder, **options):
    return lightning.pytorch.callbacks.ModelCheckpoint(
        folder, filename="{step}", save_top_k=-1, **options
    )


@pytest.mark.parametrize("running_means", [False, True])
def test_a_resumed_run_equals_one_that_never_stopped(tmp_path, running_means):
    def run(path=None):
        module = make_module(running_means=running_means)
        module.model[2].p = 0.0  # Lightning restores no random numbers: no dropout, no shuffling
        data = DataLoader(TensorDataset(INPUTS, LABELS), 6)
        trainer = make_trainer(callbacks=[checkpoints(tmp_path, every_n_epochs=1)])
        trainer.fit(module, data, ckpt_path=path)
        return module.state_dict()

    whole, resumed = run(), run(tmp_path / "step=4.ckpt")
    assert whole.keys() == resumed.keys()
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
def test_an_epoch_that_goes_on_does_not_move_the_targets_again(tmp_path):
    class Watch(lightning.pytorch.Callback):
        def on_train_batch_start(self, trainer, module, batch, index):
            moved.setdefault(trainer.global_step, module.loss.method.perturb.moved.clone())

    runs = []
    for path in (None, tmp_path / "step=6.ckpt"):  # in the middle of the second epoch
        moved = {}
        trainer = make_trainer(callbacks=[checkpoints(tmp_path, every_n_train_steps=6), Watch()])
        trainer.fit(make_module(), loader(), ckpt_path=path)
        runs.append(moved)
    whole, resumed = runs
    assert min(resumed) == 6
    assert torch.equal(whole[6], resumed[6])
    assert not torch.equal(whole[0], whole[6])


def test_a_module_without_the_loss_is_an_error():
    class Plain(lightning.pytorch.LightningModule):
        pass

    with pytest.raises(ConfigError, match="must have one MethodLoss, but has 0"):
        find_loss(Plain())


def test_epochs_are_counted_by_steps_where_these_limit_them():
    module = make_module()
    trainer = make_trainer(max_epochs=-1, max_steps=10)  # of 4 steps an epoch
    trainer.fit(module, loader())
    assert count_epochs(trainer) == 3
    assert int(module.loss.started) == 3
    trainer.fit_loop.epoch_loop.max_steps = -1
    with pytest.raises(ConfigError, match="Set `max_epochs`"):
        count_epochs(trainer)
