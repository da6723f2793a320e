"""Lightning: a module whose loss keeps the new model compatible with an old one.

    python examples/lightning_loop.py

Drawn characters. The old model knew 30 % of them; the new ones see all. One is trained without the
old model, one by ODPP. Both search other characters, by the vectors that the old model stored.
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

DATA = make_collection(
    Choice("glyphs", {"train_classes": 100, "test_classes": 50, "variation": 1.4})
)
TEST = DATA.validation_rows()


class Encoder(lightning.LightningModule):
    def __init__(self, method):
        super().__init__()
        self.model = nn.Sequential(small(), nn.Linear(128, 64), nn.BatchNorm1d(64))
        self.loss = MethodLoss(method)

    def forward(self, images):
        return self.model(images)

    def training_step(self, batch, index):
        images, labels = batch
        return self.loss(self(images), labels)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def train(method, rows, seed, epochs=12, **options):
    lightning.seed_everything(seed, verbose=False)
    images = TensorDataset(DATA.view(rows), DATA.labels[rows])
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=[CompatibleEpochs()],
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"logger": False, "enable_checkpointing": False, **options},
    )
    encoder = Encoder(method)
    trainer.fit(encoder, DataLoader(images, batch_size=64, shuffle=True))
    return encoder.model


def main():
    """Returns the evaluation of the model trained without the old model, and of that by ODPP."""
    rows, old_rows = DATA.training_rows(-1), DATA.training_rows(0)
    old_classes, classes = DATA.class_counts
    old_model = train(nb.METHODS["independent"](nb.OldSpace(), old_classes, dim=64), old_rows, 0)
    stored = to_vectors(embed(old_model, DATA, TEST), DATA, TEST)

    means = nb.class_means(embed(old_model, DATA, rows), DATA.labels[rows], classes)
    results = {}
    for name, options in {"independent": {"dim": 64}, "odpp": {}}.items():
        method = nb.METHODS[name](nb.OldSpace(prototypes=means), classes, **options)
        new = to_vectors(embed(train(method, rows, 1), DATA, TEST), DATA, TEST)
        results[name] = nb.evaluate(stored, new)
        print(f"{name}\n{results[name]}\n")
    return results


if __name__ == "__main__":
    main()
