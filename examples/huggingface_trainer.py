"""Hugging Face Trainer: an image encoder of transformers, compatible with an old one.

    python examples/huggingface_trainer.py

Drawn characters. The old model knew 30 % of them; the new ones see all. One is trained without the
old model, one by NDPP. Both search other characters, by the vectors that the old model stored.
Takes half a minute.
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

DATA = make_collection(
    Choice("glyphs", {"train_classes": 100, "test_classes": 50, "variation": 1.4})
)
TEST = DATA.validation_rows()


class Images(Dataset):
    def __init__(self, rows):
        self.pixels, self.labels = DATA.view(rows), DATA.labels[rows]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        return {"pixel_values": self.pixels[row], "label": self.labels[row].item()}


def train(method, rows, seed, epochs=12):
    torch.manual_seed(seed)
    model = ResNetModel(
        ResNetConfig(
            num_channels=1,
            embedding_size=16,
            hidden_sizes=[16, 32, 64],
            depths=[1, 1, 1],
            layer_type="basic",
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=64,
            learning_rate=3e-3,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        new = compatible_training(model, method)
        Trainer(model, arguments, train_dataset=Images(rows), **new).train()
    return plain(model).eval()


@torch.no_grad()
def embed(model, rows):
    return model(pixel_values=DATA.view(rows)).pooler_output.flatten(1)


def main():
    """Returns the evaluation of the model trained without the old model, and of that by NDPP."""
    rows, old_rows = DATA.training_rows(-1), DATA.training_rows(0)
    old_classes, classes = DATA.class_counts
    old_model = train(nb.METHODS["independent"](nb.OldSpace(), old_classes, dim=64), old_rows, 0)
    stored = to_vectors(embed(old_model, TEST), DATA, TEST)

    old = nb.OldSpace(prototypes=nb.class_means(embed(old_model, rows), DATA.labels[rows], classes))
    results = {}
    for name, options in {"independent": {"dim": 64}, "ndpp": {}}.items():
        new_model = train(nb.METHODS[name](old, classes, **options), rows, 1)
        results[name] = nb.evaluate(stored, to_vectors(embed(new_model, TEST), DATA, TEST))
        print(f"{name}\n{results[name]}\n")
    return results


if __name__ == "__main__":
    main()
