"""All methods on the built-in glyphs, over seeds: appends one JSON line per method and seed.

    python benchmarks/glyphs.py --seeds 5 --processes 2

Every seed draws other glyphs, splits classes anew, and trains its own old model, which starts from
other weights than the new ones. `render.py` makes RESULTS.md of the lines.
"""

import argparse
import json
import multiprocessing
import tempfile
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "glyphs.jsonl"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="*", default=None, help="all by default")
    parser.add_argument("--set", nargs="*", default=[], help="changes such as data.crowding=0.8")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()

    tasks = [(seed, options.methods, options.set, options.device) for seed in range(options.seeds)]
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.processes) as pool, options.output.open("a") as file:
        for lines in pool.imap_unordered(one_seed, tasks):
            for line in lines:
                file.write(json.dumps(line) + "\n")
                file.flush()
                print(
                    f"seed {line['seed']}  {line['method']:20s}"
                    f"  old/old {100 * line['old_old']:5.2f}  new/old {100 * line['new_old']:5.2f}"
                    f"  new/new {100 * line['new_new']:5.2f}",
                    flush=True,
                )


def one_seed(task):
    """Trains the old model and every method against it; returns one line for each."""
    import torch

    from nobackfill import METHODS
    from nobackfill.demo import demo_recipe
    from nobackfill.upgrade import choose_device, train_run

    seed, methods, changes, device = task
    torch.set_num_threads(1)
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in ["old", *(methods or METHODS)]:
            recipe = demo_recipe(name, folder / "old", seed=seed, changes=changes)
            for _ in train_run(recipe, folder / name, device=choose_device(device)):
                pass
            if name != "old":
                result = json.loads((folder / name / "evaluation.json").read_text())
                keep = ("old_old", "new_old", "new_new")
                lines.append(
                    {
                        "date": datetime.now(UTC).isoformat(timespec="seconds"),
                        "seed": seed,
                        "method": name,
                        "changes": changes,
                        **{key: result[key] for key in keep},
                    }
                )
    return lines


if __name__ == "__main__":
    main()
