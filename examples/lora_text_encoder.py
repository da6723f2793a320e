"""peft: a LoRA upgrade of a text encoder, whose queries search the vectors of the untouched model.

    python examples/lora_text_encoder.py MODEL

MODEL is the folder of a sentence-transformers model, such as all-MiniLM-L6-v2: the old model, which
stays loaded as the base of the new one. Texts are captions of drawn characters; one of two adapters
is trained with `CompatibleLoss`. Takes a minute.
"""

import sys
import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers import SentenceTransformerTrainingArguments as Arguments

import nobackfill as nb
from nobackfill.core.config import Choice
from nobackfill.data.registry import make_collection
from nobackfill.head.old_query import choose_weight
from nobackfill.integrations.peft import AdapterUpgrade
from nobackfill.integrations.sentence_transformers import CompatibleLoss
from nobackfill.integrations.sentence_transformers.loss import default_base

SIZES = {"train_classes": 40, "images_per_class": 4, "test_classes": 30, "gallery_per_class": 2}
DATA = make_collection(Choice("glyphs", {"captions": 2} | SIZES))
SETTINGS = {
    "per_device_train_batch_size": 16, "learning_rate": 1e-3, "save_strategy": "no",
    "report_to": "none", "disable_tqdm": True, "use_cpu": True, "dataloader_pin_memory": False,
}  # fmt: skip


def texts_of(rows):
    return DATA.captions_of(rows).texts, DATA.labels[DATA.rows_of(rows, "text")]


def embed(model, texts):
    return model.encode(texts, convert_to_tensor=True, show_progress_bar=False)


def train(path, steps, *, compatible):
    torch.manual_seed(0)
    texts, labels = texts_of(DATA.training_rows(-1))
    queries, documents, groups = texts[::2], texts[1::2], labels[1::2].tolist()
    model = SentenceTransformer(path, device="cpu")
    old_vectors = embed(model, documents)  # a service has them stored
    model.add_adapter(LoraConfig(r=8, lora_alpha=32, target_modules=["query", "value"]))
    loss = default_base(model)  # MultipleNegativesRankingLoss
    if compatible:
        loss = CompatibleLoss(model, (documents, old_vectors), loss, groups=groups)
    pairs = Dataset.from_dict({"anchor": queries, "positive": documents})
    with tempfile.TemporaryDirectory() as folder:
        arguments = Arguments(folder, max_steps=steps, **SETTINGS)
        SentenceTransformerTrainer(model, arguments, train_dataset=pairs, loss=loss).train()
    return model


def main(path, steps=15):
    """Returns the evaluation of each adapter, and the upgrade with the compatible one."""
    texts, labels = texts_of(DATA.validation_rows())
    tuning = labels < labels.median()  # half of the characters choose the weight of the old vector
    results = {}
    for name, compatible in {"alone": False, "compatible": True}.items():
        upgrade = AdapterUpgrade(train(path, steps, compatible=compatible), embed)
        old, new = upgrade.old(texts), upgrade.new(texts)
        results[name] = nb.evaluate(old[~tuning], new[~tuning], labels=labels[~tuning])
        print(f"{name}\n{results[name]}\n")
    held_out = old[tuning], new[tuning], old[tuning], labels[tuning], labels[tuning]
    upgrade.old_weight = choose_weight(*held_out, exclude_self=True)
    old, new, both = (v[~tuning] for v in (old, new, upgrade.query(texts)))
    results["both"] = nb.evaluate(old, new, query_for_old=both, labels=labels[~tuning])
    print(f"both, weight of the old {upgrade.old_weight}\n{results['both']}")
    return results, upgrade


if __name__ == "__main__":
    main(sys.argv[1])
