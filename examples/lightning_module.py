"""Lightning: a module whose loss keeps the new model compatible with an old one.

    python examples/lightning_module.py

Drawn characters. The old model knew 15 % of them; two new models see all. One is trained without
the old model, one by ODPP. Both search other characters, by the vectors that the old model stored.
Takes half a minute.
"""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import nobackfill as nb
from nobackfill.core.config import Choice
from nobackfill.data.registry import make_collection
from nobackfill.integrations.lightning import CompatibleEpochs, MethodLoss
from nobackfill.models.backbones import small
from nobackfill.models.embed import embed, to_vectors

DATA = make_collection(Choice("glyphs", {"shares": [0.15, 1.0], "variation": 1.4}))
TEST = DATA.validation_rows()


class Encoder(lightning.LightningModule):
    def __init__(self, method):
        super().__init__()
        self.model = nn.Sequential(small(), nn.Linear(128, 64), nn.BatchNorm1d(64))
        self.loss = MethodLoss(method)  # its parameters are trained and saved with the module
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, images):
        return self.model(images)

    def training_step(self, batch, index):
        images, labels = batch
        return self.loss(self(DATA.augment(images, self.generator)), labels)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def train(method, rows, seed, epochs):
    lightning.seed_everything(seed, verbose=False)
    encoder = Encoder(method)
    images = TensorDataset(DATA.view(rows), DATA.labels[rows])
    quiet = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar"], False)
    callbacks = [CompatibleEpochs()]  # new prototypes for ODPP, once an epoch
    trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", callbacks=callbacks, **quiet)
    trainer.fit(encoder, DataLoader(images, batch_size=64, shuffle=True))
    return encoder.model


def main(epochs=12):
    """Returns the evaluation of the model trained without the old model, and of that by ODPP."""
    old_classes, classes = DATA.class_counts
    alone = nb.METHODS["independent"]
    method = alone(nb.OldSpace(), old_classes, dim=64)
    old_model = train(method, DATA.training_rows(0), 0, epochs)
    stored = to_vectors(embed(old_model, DATA, TEST), DATA, TEST)

    rows = DATA.training_rows(-1)
    means = nb.class_means(embed(old_model, DATA, rows), DATA.labels[rows], classes)
    odpp = nb.METHODS["odpp"](nb.OldSpace(prototypes=means), classes)
    results = {}
    for name, method in {"alone": alone(nb.OldSpace(), classes, dim=64), "odpp": odpp}.items():
        new = to_vectors(embed(train(method, rows, 1, epochs), DATA, TEST), DATA, TEST)
        results[name] = nb.evaluate(stored, new)
        print(f"{name}\n{results[name]}\n")
    return results


if __name__ == "__main__":
    main()
