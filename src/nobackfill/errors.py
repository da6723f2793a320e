"""The exceptions of this library. Each message states what is wrong and what to do."""


class NobackfillError(Exception):
    """Base class of all errors of this library."""


class ConfigError(NobackfillError):
    """Settings are invalid or contradict each other. Raised before any work starts."""


class UnknownName(ConfigError, KeyError):
    """A table has no entry of a name, such as `METHODS`."""

    __str__ = Exception.__str__  # that of KeyError adds quotation marks


class DataError(NobackfillError):
    """Files, images, labels or vectors are missing or invalid."""


class NotFitted(DataError, ValueError, AttributeError):
    """A head was used before `fit`; a ValueError and an AttributeError, as in scikit-learn."""


class OldSpaceError(NobackfillError):
    """A method requires something of the old model that was not passed."""


class SpaceMismatch(NobackfillError):
    """Vectors of different spaces were compared or mixed."""


class TrainingDiverged(NobackfillError):
    """The loss became NaN or infinite."""


class RunsFailed(NobackfillError):
    """Some runs of a benchmark failed."""


class GalleryError(NobackfillError):
    """A vector database cannot perform an operation, or refuses it to protect its vectors."""
