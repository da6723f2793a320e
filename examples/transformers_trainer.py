"""Hugging Face Trainer: an image encoder of transformers, compatible with an old one.

    python examples/transformers_trainer.py

Drawn characters. The old model knew 15 % of them; two new models see all. One is trained without
the old model, one by NDPP. Both search other characters, by the vectors that the old model stored.
"""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import ResNetConfig, ResNetModel, Trainer, TrainingArguments

import nobackfill as nb
from nobackfill.core.config import Choice
from nobackfill.data.registry import make_collection
from nobackfill.integrations.transformers import compatible_training, plain
from nobackfill.models.embed import to_vectors

DATA = make_collection(Choice("glyphs", {"shares": [0.15, 1.0], "variation": 1.4}))
TEST = DATA.validation_rows()
NETWORK = {"embedding_size": 16, "hidden_sizes": [16, 32, 64], "depths": [1] * 3}
SETTINGS = {
    "per_device_train_batch_size": 64, "learning_rate": 3e-3, "lr_scheduler_type": "cosine",
    "save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True,
    "dataloader_pin_memory": False,
}  # fmt: skip


class Images(Dataset):
    def __init__(self, rows):
        self.pixels, self.labels = DATA.view(rows), DATA.labels[rows]
        self.generator = torch.Generator().manual_seed(0)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        pixels = DATA.augment(self.pixels[row : row + 1], self.generator)[0]
        return {"pixel_values": pixels, "label": self.labels[row].item()}


def train(method, rows, seed, epochs):
    torch.manual_seed(seed)
    model = ResNetModel(ResNetConfig(num_channels=1, layer_type="basic", **NETWORK))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, num_train_epochs=epochs, seed=seed, **SETTINGS)
        compatible = compatible_training(model, method)
        Trainer(model, arguments, train_dataset=Images(rows), **compatible).train()
    return plain(model).eval()


def embed(model, rows):
    with torch.no_grad():
        return model(pixel_values=DATA.view(rows)).pooler_output.flatten(1)


def main(epochs=12):
    """Returns the evaluation of the model trained without the old model, and of that by NDPP."""
    old_classes, classes = DATA.class_counts
    alone = nb.METHODS["independent"]
    method = alone(nb.OldSpace(), old_classes, dim=64)
    old_model = train(method, DATA.training_rows(0), 0, epochs)
    stored = to_vectors(embed(old_model, TEST), DATA, TEST)

    rows = DATA.training_rows(-1)
    means = nb.class_means(embed(old_model, rows), DATA.labels[rows], classes)
    ndpp = nb.METHODS["ndpp"](nb.OldSpace(prototypes=means), classes)
    results = {}
    for name, method in {"alone": alone(nb.OldSpace(), classes, dim=64), "ndpp": ndpp}.items():
        new = to_vectors(embed(train(method, rows, 1, epochs), TEST), DATA, TEST)
        results[name] = nb.evaluate(stored, new)
        print(f"{name}\n{results[name]}\n")
    return results


if __name__ == "__main__":
    main()
