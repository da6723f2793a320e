"""The conventions of scikit-learn's estimators, without a dependency on scikit-learn."""

import inspect
from typing import Any, TypeVar

from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError

Own = TypeVar("Own", bound="Estimator")


class Estimator:
    """A transformer whose settings are the arguments of its constructor, stored unchanged.

    Attributes that a fit sets end with an underscore.
    """

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Returns the default of each setting by name."""
        arguments = inspect.signature(cls).parameters.values()
        return {argument.name: argument.default for argument in arguments}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the settings by name, as scikit-learn requires."""
        return {name: getattr(self, name) for name in self.defaults()}

    def set_params(self: Own, **params: Any) -> Own:
        """Changes settings; raises ConfigError for an unknown name."""
        names = self.defaults()
        for name, value in params.items():
            if name not in names:
                raise ConfigError(f"unknown parameter `{name}`. {suggest(name, names)}")
            setattr(self, name, value)
        return self

    def settings(self) -> str:
        """Returns the settings that differ from their defaults, as Python."""
        changed = {
            name: value
            for name, value in self.get_params().items()
            if value is not self.defaults()[name] and value != self.defaults()[name]
        }
        return ", ".join(f"{name}={value!r}" for name, value in changed.items())

    def __sklearn_tags__(self) -> Any:
        """Describes the estimator to scikit-learn, which calls this alone."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True, two_d_labels=True, single_output=False),
            transformer_tags=TransformerTags(preserves_dtype=["float32"]),
            input_tags=InputTags(),
        )
