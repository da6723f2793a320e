"""Heads fitted from stored vectors alone: appends one JSON line per setting, way and seed.

    NOBACKFILL_DATA=... python benchmarks/heads.py --seeds 5 --processes 8 --device cuda --resume

* `cub200`, `landmarks50`: frozen features of `features.npz`, MobileNetV2 (old) to ResNet-50 (new)
* `omniglot`: vectors of networks trained on 10 % (old) and on all (new, independent) of 964
  characters, searched on 659 others; `omniglot_heads/omniglot_SEED.npz`, made by
  `omniglot_vectors.py` on a GPU
* `captions`: captions of Flickr8k, MiniLM cut to 128 dimensions (old) and whole (new), searched
  among those of the 1,000 test images; `flickr8k_heads/flickr8k.npz`, made by `caption_vectors.py`
* `cub200_trained`, `landmarks50_trained`: the old model is a head on the MobileNetV2 features,
  trained on 30 % of the training classes: another one for each seed (`heads_scratch.py`)

Three kinds of ways lead into the old space: closed forms, `CompatibleHead` with its defaults by
each method that it allows, and, for the last two, heads trained from scratch by each of these. All
see training classes only. Beside each stand the raw vectors: what is found without any of them.
With many processes on one GPU, use NVIDIA's MPS.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import heads_scratch
import numpy as np
import torch
from heads_settings import SETTINGS, parts

import nobackfill as nb
from nobackfill.adapters import procrustes, ridge
from nobackfill.errors import ConfigError
from nobackfill.head.fitting import check_method
from nobackfill.upgrade import choose_device

CLOSED_FORMS = {"procrustes": procrustes, "ridge": ridge}
KINDS = ("closed form", "head", "from scratch")
KEY = ("setting", "kind", "way", "seed", "epochs")  # of a line


@dataclass(frozen=True)
class Job:
    """What is to be measured, and where.

    Attributes:
        setting: A name of `SETTINGS`.
        kind: One of `KINDS`.
        way: A closed form, or a method.
        seed: Of all that is random.
        epochs: At most; None for as many as it has by default.
        data: The folder of the vectors.
        work: The folder of the old and the independent heads, which many jobs share.
        device: Where to work.
    """

    setting: str
    kind: str
    way: str
    seed: int
    epochs: int | None
    data: Path
    work: Path
    device: str

    @property
    def upgrade(self):
        """What all ways of one setting and seed share."""
        return self.setting, self.seed, self.epochs, self.data, self.work, self.device


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--ways", nargs="*", default=[*CLOSED_FORMS, *usable()])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=None, help="fewer, for a try")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--resume", action="store_true", help="pass over the lines that are there")
    parser.add_argument("--work", type=Path, default=None, help="keep what is shared here")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        there = lines_there(options.output) if options.resume else set()
        jobs = [job for job in all_jobs(options, work) if key_of(vars(job)) not in there]
        failed = run(jobs, options.processes, options.output)
    if failed:
        sys.exit(f"{failed} of {len(jobs)} failed")


def usable():
    """The methods that heads allow."""
    found = []
    for name in nb.METHODS:
        with suppress(ConfigError):
            check_method(name)
            found.append(name)
    return found


def all_jobs(options, work):
    data, epochs = Path(os.environ["NOBACKFILL_DATA"]), options.epochs
    device = str(choose_device(options.device))
    return [
        Job(setting, kind, way, seed, epochs, data, work, device)
        for setting in options.settings
        for seed in range(options.seeds)
        for kind in options.kinds
        for way in options.ways
        if (way in CLOSED_FORMS) == (kind == "closed form")
        and (SETTINGS[setting].trained or kind != "from scratch")
    ]


def lines_there(path):
    """The keys of the lines that a file has, but for those of an older form."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {key_of(line) for line in lines if "kind" in line}


def key_of(line):
    return tuple(line[key] for key in KEY)


def run(jobs, processes, output):
    """First what others share, then all side by side; returns how many failed."""
    context, failed = multiprocessing.get_context("spawn"), 0
    with context.Pool(processes) as pool, output.open("a") as file:
        for _ in pool.imap_unordered(prepare, dict.fromkeys(job.upgrade for job in jobs)):
            pass
        for done, (job, line) in enumerate(pool.imap_unordered(one_line, jobs), start=1):
            said = f"{done}/{len(jobs)}  {job.setting}  seed {job.seed}  {job.kind}  {job.way}"
            if isinstance(line, str):
                print(f"{said}  FAILED\n{line}", file=sys.stderr, flush=True)
                failed += 1
                continue
            file.write(json.dumps(line) + "\n")
            file.flush()
            show(said, line)
    return failed


def show(said, line):
    numbers = "  ".join(
        f"{key.replace('_', '/')} {100 * line[key]:5.2f}"
        for key in ("old_old", "new_old", "new_new")
    )
    print(f"{said:70s}  {numbers}  {line['seconds']:.1f} s", flush=True)


def prepare(upgrade):
    """Trains the old and the independent head, if any, and searches the raw vectors.

    What comes of it lies in the folder that the jobs share.
    """
    setting, seed, epochs, data, work, device = upgrade
    torch.set_num_threads(1)
    if shared_file(upgrade).exists():
        return
    raw = SETTINGS[setting].load(data, seed)
    found = {
        f"raw_{name}": searched_alone(parts(side)[1], device)
        for name, side in zip(("old", "new"), raw, strict=True)
    }
    if SETTINGS[setting].trained:
        found |= old_and_independent(*raw, seed=seed, epochs=epochs, device=device)
    unfinished = shared_file(upgrade).with_suffix(".part.npz")
    np.savez(unfinished, **found)
    unfinished.replace(shared_file(upgrade))


def shared_file(upgrade):
    setting, seed, epochs, _, work, _ = upgrade
    return work / f"{setting}_{seed}{'' if epochs is None else f'_{epochs}_epochs'}.npz"


def searched_alone(vectors, device):
    return nb.evaluate(vectors, vectors, device=device).old_old.mean_average_precision


def old_and_independent(old, new, *, seed, epochs, device):
    """What two heads make of all items: one trained on some classes, the other on all of them."""
    classes, known = heads_scratch.numbered(parts(old)[0].labels, seed)
    found = {}
    for name, side, chosen, its_seed in (
        ("old", old, classes < known, seed + 1000),  # not the weights that new heads begin with
        ("independent", new, classes >= 0, seed),
    ):
        head = heads_scratch.train(
            parts(side)[0].vectors[chosen].to(device),
            classes[chosen].to(device),
            seed=its_seed,
            epochs=epochs or heads_scratch.EPOCHS,
        )
        found[name] = heads_scratch.embedded(head, side.vectors.to(device)).cpu().numpy()
    return found


@lru_cache(maxsize=1)
def load(upgrade):
    """Old, new and (or None) independent vectors, and the mAP of the raw ones."""
    setting, seed, _, data, _, _ = upgrade
    old, new = SETTINGS[setting].load(data, seed)
    with np.load(shared_file(upgrade), allow_pickle=False) as found:
        raw = {key: float(found[key]) for key in ("raw_old", "raw_new")}
        if not SETTINGS[setting].trained:
            return old, new, None, raw
        return with_vectors(old, found["old"]), new, with_vectors(new, found["independent"]), raw


def with_vectors(of, vectors):
    """Other vectors of the same items."""
    return nb.Vectors(of.ids, vectors, of.labels, columns=of.columns)


def one_line(job):
    """The job, and its line, or how it failed: one that fails shall not stop the others."""
    torch.set_num_threads(1)
    try:
        return job, {key: getattr(job, key) for key in KEY} | measure(job)
    except Exception:
        return job, traceback.format_exc()


def measure(job):
    """Fits on the training items, and evaluates on the others."""
    old, new, independent, raw = load(job.upgrade)
    (old_fit, old_searched), (new_fit, new_searched) = parts(old), parts(new)
    start = time.perf_counter()
    mapping, how = FITS[job.kind](job, old_fit, new_fit)
    compatible = with_vectors(new_searched, mapping(new_searched.vectors).cpu())
    seconds = time.perf_counter() - start
    result = nb.evaluate(
        old_searched,
        compatible,
        independent=None if independent is None else parts(independent)[1],
        device=job.device,
    ).summary()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name() if job.device.startswith("cuda") else "cpu",
        "seconds": round(seconds, 2),
        **{key: result[key] for key in ("old_old", "new_old", "new_new", "independent")},
        **raw,
        "differences": result["differences"],
        "verdict": result["verdict"],
        "lost": result["flips"][0]["negative"],
        **how,
    }


def closed_form(job, old, new):
    """What maps new vectors into the old space, and what else is to be told of it."""
    affine = CLOSED_FORMS[job.way](new.vectors.to(job.device), old.vectors.to(job.device))
    return lambda vectors: affine(vectors.to(job.device)), {}


def head(job, old, new):
    """Likewise: a `CompatibleHead` with its defaults."""
    told = {} if job.epochs is None else {"epochs": job.epochs}
    fitted = nb.CompatibleHead(job.way, seed=job.seed, device=job.device, **told)
    fitted.fit(new, old, **{SETTINGS[job.setting].supervision: old.labels})
    progress = fitted.progress_
    how = {"start": progress.start, "best_epoch": progress.best, "notes": list(fitted.notes_)}
    return fitted.transform, how


def from_scratch(job, old, new):
    """Likewise: a head as the old one, trained on all classes by the method."""
    classes, known = heads_scratch.numbered(old.labels, job.seed)
    classes = classes.to(job.device)
    trained = heads_scratch.train(
        new.vectors.to(job.device),
        classes,
        method=job.way,
        space=heads_scratch.old_space(old.vectors.to(job.device), classes, known),
        seed=job.seed,
        epochs=job.epochs or heads_scratch.EPOCHS,
    )
    return lambda vectors: heads_scratch.embedded(trained, vectors.to(job.device)), {}


FITS = dict(zip(KINDS, (closed_form, head, from_scratch), strict=True))


if __name__ == "__main__":
    main()
