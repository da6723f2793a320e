"""Tests that `make test` leaves to `make test-all`: grids, second engines, repeated kills.

Each line is a pattern of test names, and what `make test` keeps of it.
"""

import re

ENGINES = "faiss|lancedb|milvus|qdrant|usearch"

SLOW = {
    # training
    r"training/test_distributed\.py::(?!.*\[images\])": "two processes train images",
    r"training/test_uncovered_items\.py::test_\S*process": "test_distributed, images",
    r"training/test_run\.py::test_a_resumed_run_equals\S*\[1-": "the later kill",
    r"training/test_run\.py::test_a_resumed\S*\[3-(?!ndpp|odpp|janus|advbct|rm\]|sspl\])": (
        "six methods, whose states differ"
    ),
    r"training/test_pairs\.py::test_a_resumed_run_equals\S*\[(?!janus)": "janus, which keeps most",
    r"training/test_sequence\.py::test_a_stopped_sequence\S*\[1\]": "the later kill",
    r"training/test_aptm\.py::test_all_three_losses": "they are compared with loops",
    r"training/test_aptm\.py::test_two_processes": "one process",
    r"training/test_aptm\.py::test_every_method\S*\[(?!ndpp\]|janus\])": "two methods",
    r"training/test_running_means\.py::test_a_resumed_run\S*\[1\]": "the later kill",
    r"training/test_checkpoint\.py::test_a_disk_that_is_really_full": "test_full_disk, flat",
    r"perturbation/test_ndpp\.py::test_how_far_thirty_epochs_push": "one push against loops",
    r"perturbation/test_near_pairs\.py::test_fifty_steps\S*\[sgd": "Adam, the default",
    r"test_examples\.py::test_a_method_in_the_loop\S*\[(?!pytorch)": "tests/integrations",
    r"test_examples\.py::test_an_adapter_is": "integrations/test_peft.py",
    # kernels, which are interpreted on a CPU
    r"kernels/test_paths\.py::test_ranks_by_the_kernel\S*\[900\]": "shorter rows",
    r"kernels/test_paths\.py::test_rows_of_too_many_items": "the choice itself is tested",
    r"kernels/test_kernels\.py::test_ranks_are_those\S*(2500|40000|1025)": "smaller shapes",
    r"kernels/test_kernels\.py::test_more_items_than\S*\[(31|33|64|65)\]": "32",
    r"kernels/test_kernels\.py::test_neighbouring_numbers\S*\[(9000|2048)\]": "1",
    r"ops/test_nearest\.py::test_nearest_at_odd_sizes\S*2501": "shorter rows",
    # galleries: every engine is tested whole in test_congruence.py and in a file of its own
    rf"gallery/test_(cleanup|backfill|mixed|shadow_and_pull|guard)\.py\S*[\[-]({ENGINES})": (
        "files and PostgreSQL"
    ),
    r"gallery/test_backfill\.py::test_kills_at_random_moments\S*\[pgvector\]": "files",
    r"gallery/stores/test_killed\.py": "test_backfill.py kills, too",
    r"gallery/test_killed_changes\.py\S*\[(milvus|qdrant)": "LanceDB",
    r"gallery/stores/test_full_disk\.py::test_a_disk_that_is_full_from_the_start": "a later fault",
    r"gallery/stores/test_milvus\.py::test_(nothing_is_left|pages_are|a_file_that|ids_with)": (
        "the congruence of all engines"
    ),
    r"cli/gallery/test_going_live\.py\S*\[lancedb": "files",
    r"gallery/stores/test_(sidecar|lancedb|pgvector_faults)\.py::test_two_writers": "congruence",
    r"gallery/stores/test_sidecar\.py::test_(a_full_disk|a_kill|a_search_sees)": (
        "test_full_disk, flat, and kills of backfills"
    ),
    r"gallery/stores/test_pgvector_faults\.py::test_(connections|a_restart)": "a lock that is held",
    r"gallery/stores/test_pgvector_index\.py::test_a_process_that_is_killed": "an interrupt",
    r"gallery/stores/test_faiss\.py::test_every_kind\S*(PQ|IVF)": "flat and graph indexes",
    r"gallery/test_indexing\.py::test_lancedb_killed": "kills of backfills",
    # heads: whatever the form of the vectors, labels and groups of them are read in one place
    r"test_forms_of_arguments\.py::test_an_upgrade_is_assessed\S*\[(?!numpy)\w+-groups": (
        "each form with labels, and groups of arrays"
    ),
    r"head/assess/test_assess\.py::test_what_cannot_be_an_upgrade\S*\[[12]-": "one seed",
    r"head/assess/test_assess\.py::test_vectors_of_other_items\S*\[shifted and": (
        "shifted, and rotated when mixed up"
    ),
    # training with other libraries
    r"sentence_transformers/test_minilm\.py": "tiny models",
    r"sentence_transformers/test_training\.py::test_(two_runs|a_resumed)": "runs of our own loop",
    r"sentence_transformers/test_training\.py::test_other\S*\[(?!cached)": "test_loss.py",
    r"sentence_transformers/test_loss\.py::test_nothing_is_embedded\S*\[(?!cached\]|ranking\])": (
        "a cached loss and another"
    ),
    r"integrations/test_transformers\.py::test_a_resumed_run\S*\[(?!6-True)": (
        "the later kill, with means; without them an adapter"
    ),
    # commands and pages
    r"bench/test_bench_quality_command\.py::test_a_real_upgrade": "a suite that trains nothing",
    r"report/test_charts\.py::test_names_of_equal_points\S*\[12\]": "fewer names",
    r"cli/test_report\.py::test_another_process_writes": "the same bytes in one process",
    r"cli/test_exit_codes\.py::test_ctrl_c_in_the_midst": "Ctrl-C before the work starts",
}
PATTERNS = [re.compile(pattern) for pattern in SLOW]


def is_slow(name: str) -> bool:
    """Whether a test, named as pytest names it, is left to `make test-all`."""
    return any(pattern.search(name) for pattern in PATTERNS)
