"""Google Landmarks v2: photos of the same landmark among three quarters of a million.

Weyand et al., Google Landmarks Dataset v2, CVPR 2020. Its cleaned training set is by Yokoo et al.,
Two-stage Discriminative Re-ranking for Large-scale Landmark Retrieval, 2020.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from nobackfill.core.suggest import suggest
from nobackfill.data.listing import LAYOUT, Dataset, GroundTruth, Listing, invalid, require_folder
from nobackfill.errors import ConfigError, DataError

PARTS = ("train", "test")
SOLUTION = "retrieval_solution_v2.1.csv"
ID_LENGTH = 16
FETCH = "Fetch the file again."


def read_gldv2(root: Path, *, parts: Sequence[str] = PARTS, clean: bool = True) -> Listing:
    """Reads the lists of Google Landmarks v2, without looking for the images.

    Classes are landmarks. Only training images have one; the relevant items of queries are the
    ground truth "private". Queries are the test images whose solution was private in the challenge,
    and the gallery is the whole index.

    Args:
        root: Folder that contains `train/`, `test/` and `index/`. Each list is in the folder of its
            images or beside it.
        parts: "train" for the training images, "test" for queries and gallery, or both.
        clean: Whether to train on the cleaned set instead of all 4 million images.
    """
    parts = (parts,) if isinstance(parts, str) else tuple(parts)
    for part in parts:
        if part not in PARTS:
            raise ConfigError(f"unknown part `{part}` of gldv2. {suggest(part, PARTS)}")
    train: list[str] = []
    landmarks: NDArray[Any] = np.array([], dtype=np.str_)
    relevant: dict[str, list[str]] = {}
    gallery: list[str] = []
    if "train" in parts:
        train, landmarks = _read_clean(root) if clean else _read_all(root)
    if "test" in parts:
        (ids,) = _read_columns(root, "index", ["index.csv", "index_image_to_landmark.csv"], ["id"])
        gallery = _paths("index", ids.to_pylist())
        relevant = _read_solution(root, gallery)

    sizes = [len(train), len(relevant), len(gallery)]
    role = np.repeat(np.arange(3, dtype=np.int8), sizes)  # small: there are millions of rows
    return Listing(
        root=root,
        files=[*train, *relevant, *gallery],
        classes=np.concatenate([landmarks, np.zeros(sum(sizes[1:]), landmarks.dtype)]),
        columns={
            "split": np.where(role == 0, "train", "validation"),
            "is_query": role == 1,
            "is_gallery": role == 2,
        },
        ground_truth={"private": GroundTruth(relevant)} if "test" in parts else {},
    )


def _read_clean(root: Path) -> tuple[list[str], NDArray[Any]]:
    """Reads images and landmarks from train_clean.csv, which has one line per landmark."""
    names, lists = _read_columns(root, "train", ["train_clean.csv"], ["landmark_id", "images"])
    texts = lists.to_pylist()
    landmarks = np.array(names.to_pylist(), dtype=np.str_)
    paths = _paths("train", chain.from_iterable(map(str.split, texts)))
    return paths, np.repeat(landmarks, [len(text.split()) for text in texts])


def _read_all(root: Path) -> tuple[list[str], NDArray[Any]]:
    """Reads images and landmarks from train.csv, which has one line per image."""
    ids, names = _read_columns(root, "train", ["train.csv"], ["id", "landmark_id"])
    coded = names.combine_chunks().dictionary_encode()
    landmarks = np.array(coded.dictionary.to_pylist(), dtype=np.str_)
    return _paths("train", ids.to_pylist()), landmarks[coded.indices.to_numpy()]


def _read_solution(root: Path, gallery: list[str]) -> dict[str, list[str]]:
    """Reads the relevant images of each private query, all of which are in the gallery."""
    columns = _read_columns(root, "test", [SOLUTION], ["id", "images", "Usage"])
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    private = [(query, images.split()) for query, images, usage in rows if usage == "Private"]
    queries = _paths("test", (query for query, _ in private))
    if len(set(queries)) < len(private) or not private:
        raise invalid(
            root / SOLUTION,
            f'it has {len(private)} lines of {len(set(queries))} queries with the usage "Private"',
            FETCH,
        )
    relevant = [_paths("index", images) for _, images in private]
    if missing := set(chain.from_iterable(relevant)).difference(gallery):
        raise DataError(
            f"The list of the index lacks {len(missing)} relevant images of {SOLUTION}, such as "
            f"{min(missing)}. Fetch both lists again."
        )
    return dict(zip(queries, relevant, strict=True))


def _paths(folder: str, ids: Iterable[str]) -> list[str]:
    """Returns the paths of images: three folders deep, by the first letters of their ids."""
    paths = [f"{folder}/{name[:1]}/{name[1:2]}/{name[2:3]}/{name}.jpg" for name in ids]
    length = len(f"{folder}/a/b/c/.jpg") + ID_LENGTH
    wrong = next((path for path in paths if len(path) != length), None)
    if wrong is not None:
        raise DataError(
            f"Ids in the lists of gldv2 must have {ID_LENGTH} letters, but one of {folder} is "
            f"{Path(wrong).stem[:80]!r}. Check the separators of the list, or fetch it again."
        )
    return paths


def _read_columns(
    root: Path, folder: str, names: list[str], columns: list[str]
) -> list[pa.ChunkedArray]:
    """Reads columns as text from the first of these lists that is in the folder or beside it."""
    require_folder(root / folder, "images of Google Landmarks v2")
    candidates = [path for name in names for path in (root / folder / name, root / name)]
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        raise DataError(f"No {' or '.join(names)} in {root / folder} or in {root}. {LAYOUT}")
    as_text = dict.fromkeys(columns, pa.string())
    convert = pyarrow.csv.ConvertOptions(include_columns=columns, column_types=as_text)
    try:
        table = pyarrow.csv.read_csv(path, convert_options=convert)
    except (pa.ArrowInvalid, KeyError) as error:
        raise invalid(
            path,
            f"it must have the columns {', '.join(columns)}, separated by commas ({error})",
            FETCH,
        ) from None
    return list(table.itercolumns())


GLDV2 = Dataset(
    description="Google Landmarks v2, trained on its cleaned part (Weyand et al., CVPR 2020)",
    layout=(
        "train/train_clean.csv (every list may also lie beside the folders)\n"
        "train/0/1/2/0123456789abcdef.jpg …\n"
        "index/index.csv (or index_image_to_landmark.csv)\n"
        "index/0/1/2/0123456789abcdef.jpg …\n"
        "test/retrieval_solution_v2.1.csv\n"
        "test/0/1/2/0123456789abcdef.jpg …"
    ),
    read=read_gldv2,
    counts={
        "images": 2_342_977,
        "train_images": 1_580_470,
        "train_classes": 81_313,
        "queries": 750,
        "gallery": 761_757,
    },
    protocol="gldv2",
)
