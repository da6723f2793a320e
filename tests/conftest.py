"""Settings of the whole test run."""

import torch

# Tests work on tiny tensors: one thread is as fast, and does not stall on a busy machine.
torch.set_num_threads(1)
