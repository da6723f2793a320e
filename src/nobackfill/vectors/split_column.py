"""The column `split` of a file of vectors: which items models are trained on."""

import numpy as np
from jaxtyping import Bool

from nobackfill.errors import DataError
from nobackfill.vectors.columns import as_text
from nobackfill.vectors.paths import SEARCHED, TRAIN
from nobackfill.vectors.vectors import Vectors


def is_training(file: Vectors) -> Bool[np.ndarray, " item"] | None:
    """Marks the training items of a file; None if it has no column `split`.

    All other items are searched. Case does not matter, and usual names of both parts are
    understood; any other value is an error.

    Example:
        >>> import torch
        >>> is_training(Vectors(["a", "b"], torch.eye(2), columns={"split": ["Train", "test"]}))
        array([ True, False])
    """
    if "split" not in file.columns:
        return None
    values, number = np.unique(as_text(file.columns["split"]), return_inverse=True)
    plain = [str(value).strip().lower() for value in values]
    if unknown := [value for value in plain if value not in TRAIN | SEARCHED]:
        raise DataError(
            f"The column `split` has the value {unknown[0]!r}, which is not known to mean training "
            f"or evaluation. Write `train` for the items that models are trained on and "
            f"`validation` for those that are searched, or rename the column."
        )
    marks: Bool[np.ndarray, " item"] = np.isin(plain, list(TRAIN))[number]
    return marks
