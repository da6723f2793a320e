"""Exports heads to ONNX and to modules of sentence-transformers."""

import importlib
import json
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from nobackfill.core.atomic_files import replacing, write_text
from nobackfill.errors import ConfigError, DataError
from nobackfill.head.storage import Arrays

if TYPE_CHECKING:
    from nobackfill.head.head import CompatibleHead

OPSET, IR_VERSION = 17, 8  # of early 2022: most runtimes read these
TOLERANCE = 1e-5

Layer = tuple[NDArray[Any], NDArray[Any], str]  # weight, bias and activation


def to_onnx(head: "CompatibleHead", path: Path | str) -> None:
    """Writes an ONNX file with the input `new` and the output `compatible`, of any number of rows.

    A head that weighs the old vector of a query has the second input `old`.
    The file is run before it is saved; it is not saved if it differs from `transform`.
    """
    check_single(head)
    onnx, runtime = optional_packages()
    arrays = head.arrays()
    model = onnx_model(onnx, arrays, head.old_weight)
    onnx.helper.set_model_props(model, {"nobackfill.space": head.space_.to_json()})
    with replacing(path) as unfinished:
        unfinished.write_bytes(model.SerializeToString())
        check_onnx(runtime, unfinished, head)


def onnx_files(head: "CompatibleHead", path: Path) -> "dict[Path, CompatibleHead]":
    """Returns the head to export to each path: one per modality, such as `head.text.onnx`."""
    if len(head.modalities_) < 2:
        return {path: head}
    return {
        path.with_name(f"{path.stem}.{name}{path.suffix}"): head.for_modality(name)
        for name in head.modalities_
    }


def check_single(head: "CompatibleHead") -> None:
    """Raises ConfigError for a head with several modalities: other formats have one map."""
    if len(head.modalities_) > 1:
        raise ConfigError(
            f"This head has maps for {', '.join(head.modalities_)}. Export each on its own: "
            f"`head.for_modality({head.modalities_[0]!r})`."
        )


def optional_packages() -> tuple[ModuleType, ModuleType]:
    """Returns the packages onnx and onnxruntime; raises if one is not installed."""
    packages = []
    for name in ("onnx", "onnxruntime"):
        try:
            packages.append(importlib.import_module(name))
        except ImportError:
            raise ConfigError(
                f"An ONNX file requires {name}, which is not installed. "
                f"`pip install 'nobackfill[onnx]'`, or use the head's folder: "
                f"`nobackfill.head.apply` needs numpy alone."
            ) from None
    return packages[0], packages[1]


def onnx_model(onnx: Any, arrays: Arrays, old_weight: float | None = None) -> Any:
    """Returns the formula of `HeadNetwork`, and of `add_old` if there is a weight, as a graph."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    old_dim, new_dim = arrays["affine.weight"].shape
    extra = len(arrays.get("extra.linear.bias", ()))
    # Make the nodes, and the constants that they read.
    nodes = make_nodes(helper.make_node, arrays, joins_old=old_weight is not None)
    constants = {
        "shortest": 1e-12, "half": 0.5, "one": 1.0, "root_2": sqrt(2), "root_dim": sqrt(new_dim),
    }  # fmt: skip
    if old_weight is not None:
        constants |= {"old.weight": old_weight, "new.weight": 1 - old_weight}
    weights = {name: np.float32(value).reshape(()) for name, value in constants.items()} | {
        name: np.ascontiguousarray(array) for name, array in arrays.items()
    }
    used = {name for entry in nodes for name in entry.input}
    # Join them to a graph from the input `new`, and `old` if there is a weight.
    graph = helper.make_graph(
        nodes,
        "nobackfill_head",
        [
            helper.make_tensor_value_info(name, kind, ["rows", dim])
            for name, dim in {"new": new_dim, "old": old_dim}.items()
            if name == "new" or old_weight is not None
        ],
        [helper.make_tensor_value_info("compatible", kind, ["rows", old_dim + extra])],
        [onnx.numpy_helper.from_array(w, name) for name, w in weights.items() if name in used],
    )
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset, producer_name="nobackfill")
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model)
    return model


def make_nodes(make_node: Callable[..., Any], arrays: Arrays, *, joins_old: bool) -> list[Any]:
    """Returns the operations of a head as nodes of ONNX; see `onnx_model`."""

    def node(operation: str, inputs: str, output: str, **attributes: Any) -> Any:
        return make_node(operation, inputs.split(), [output], **attributes)

    def unit(vectors: str, output: str) -> list[Any]:
        return [
            node("ReduceL2", vectors, f"{output}.length", axes=[1], keepdims=1),
            node("Max", f"{output}.length shortest", f"{output}.divisor"),
            node("Div", f"{vectors} {output}.divisor", output),
        ]

    # The linear map, and the correction if there is one.
    nodes = unit("new", "unit")
    nodes.append(node("Gemm", "unit affine.weight affine.bias", "linear", transB=1))
    if "inner.weight" in arrays:
        nodes += [
            node("Mul", "unit root_dim", "scaled"),
            node("Gemm", "scaled inner.weight inner.bias", "inner", transB=1),
            node("Div", "inner root_2", "inner.divided"),
            node("Erf", "inner.divided", "inner.erf"),
            node("Add", "inner.erf one", "inner.above"),
            node("Mul", "inner half", "inner.half"),
            node("Mul", "inner.half inner.above", "gelu"),
            node("Gemm", "gelu outer.weight outer.bias", "correction", transB=1),
            node("Add", "linear correction", "corrected"),
        ]
    # The result, with extra dimensions or the old vector if the head has them.
    in_old_space = nodes[-1].output[0]
    if "extra.scale" in arrays:
        return [
            *nodes,
            *unit(in_old_space, "in_old_space"),
            node("Gemm", "unit extra.linear.weight extra.linear.bias", "extra.linear", transB=1),
            *unit("extra.linear", "extra.unit"),
            node("Mul", "extra.unit extra.scale", "extra"),
            node("Concat", "in_old_space extra", "compatible", axis=1),
        ]
    if not joins_old:
        return [*nodes, *unit(in_old_space, "compatible")]
    return [
        *nodes,
        *unit(in_old_space, "in_old_space"),
        *unit("old", "old.unit"),
        node("Mul", "old.unit old.weight", "old.part"),
        node("Mul", "in_old_space new.weight", "new.part"),
        node("Add", "old.part new.part", "both"),
        *unit("both", "compatible"),
    ]


def check_onnx(runtime: Any, path: Path, head: "CompatibleHead") -> None:
    """Runs the file on random vectors; raises if it differs from the head."""
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    old_dim, new_dim = head.arrays()["affine.weight"].shape
    dims = {"new": new_dim} | ({} if head.old_weight is None else {"old": old_dim})
    for rows in (1, 64):
        inputs = {
            name: generator.standard_normal((rows, dim)).astype(np.float32)
            for name, dim in dims.items()
        }
        (out,) = session.run(["compatible"], inputs)
        difference = float(np.abs(out - head.transform(inputs["new"], old=inputs.get("old"))).max())
        if not difference <= TOLERANCE:
            raise DataError(
                f"The ONNX file differs from the head by {difference:.1e} on random vectors, more "
                f"than {TOLERANCE:g}. Nothing was written. Try another release of onnxruntime."
            )


def to_sentence_transformers(head: "CompatibleHead", folder: Path | str) -> None:
    r"""Writes modules that follow those of a sentence-transformers model.

    .. code-block:: python

        head = SentenceTransformer("folder", device="cpu")
        compatible = SentenceTransformer(modules=[*new_model, *head])

    Modules form a chain, but a head with a correction is a sum. Because of
    :math:`x = \mathrm{GELU}(x) - \mathrm{GELU}(-x)`, a layer can carry the linear map beside the
    correction: twice, once with each sign.
    The folder must not hold a model yet.
    """
    folder = Path(folder)
    check_single(head)
    if head.old_weight is not None:
        raise ConfigError(
            "Modules of sentence-transformers get one text, not two vectors, so a head with "
            "old_query cannot be exported. Use to_onnx, or `nobackfill.head.apply`."
        )
    if head.space_.dim != head.arrays()["affine.bias"].size:
        raise ConfigError(
            "Modules of sentence-transformers require a head without extra dimensions. Fit it with "
            "extra=0, or export it by `to_onnx`."
        )
    if (folder / "modules.json").exists():
        raise DataError(f"{folder} holds a model of sentence-transformers. Choose another place.")
    names = ["Normalize"]
    write_text(folder / "0_Normalize" / "config.json", "{}\n")
    for weight, bias, activation in layers(head.arrays()):
        place = folder / f"{len(names)}_Dense"
        config = {
            "in_features": weight.shape[1],
            "out_features": weight.shape[0],
            "bias": True,
            "activation_function": activation,
        }
        write_text(place / "config.json", json.dumps(config, indent=2) + "\n")
        with replacing(place / "model.safetensors") as unfinished:
            save_file({"linear.weight": weight, "linear.bias": bias}, unfinished)
        names.append("Dense")
    write_text(folder / f"{len(names)}_Normalize" / "config.json", "{}\n")
    names.append("Normalize")
    modules = [
        {
            "idx": place,
            "name": str(place),
            "path": f"{place}_{name}",
            "type": f"sentence_transformers.models.{name}",  # in all of their releases
        }
        for place, name in enumerate(names)
    ]
    write_text(folder / "modules.json", json.dumps(modules, indent=2) + "\n")


def layers(arrays: Arrays) -> list[Layer]:
    """Returns the head between its two normalisations as a chain of layers and activations."""
    identity, gelu = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.GELU"
    weight, bias = arrays["affine.weight"], arrays["affine.bias"]
    if "inner.weight" not in arrays:
        return [(weight, bias, identity)]
    scale = np.float32(sqrt(weight.shape[1]))
    both = np.concatenate([scale * arrays["inner.weight"], weight, -weight])
    both_bias = np.concatenate([arrays["inner.bias"], bias, -bias])
    eye = np.eye(len(weight), dtype=np.float32)
    last = np.concatenate([arrays["outer.weight"], eye, -eye], axis=1)
    return [(both, both_bias, gelu), (last, arrays["outer.bias"], identity)]
