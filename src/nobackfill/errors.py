"""Everything this library raises on purpose. Each says what it wanted, what came, what to do.

* NobackfillError
  + ConfigError        the settings do not make sense, seen before any work starts
  + DataError          files, images, labels or vectors cannot be used as they are
  + OldSpaceError      a method needs something of the old model that was not given
  + SpaceMismatch      vectors of different make were put side by side
  + TrainingDiverged   the loss is no longer a number
  + RunsFailed         some runs of a benchmark could not be made
  + GalleryError       a vector database cannot do what is asked, or must not
"""


class NobackfillError(Exception):
    """Base of all our errors: catch this one to catch them all."""


class ConfigError(NobackfillError):
    """The settings do not make sense."""


class DataError(NobackfillError):
    """Files, images, labels or vectors cannot be used as they are."""


class OldSpaceError(NobackfillError):
    """A method needs something of the old model that was not given."""


class SpaceMismatch(NobackfillError):
    """Vectors of different make were put side by side."""


class TrainingDiverged(NobackfillError):
    """The loss is no longer a number."""


class RunsFailed(NobackfillError):
    """Some runs of a benchmark could not be made."""


class GalleryError(NobackfillError):
    """A vector database cannot do what is asked, or must not."""
