"""Han characters drawn by free fonts: thousands of classes that differ by one stroke.

The 27,484 unified ideographs of most fonts are the classes; up to 16 typefaces of 11 families draw
each of them.
"""

from collections.abc import Sequence
from pathlib import Path

from nobackfill.data.collection import Collection
from nobackfill.data.font_drawing import Face, find_fonts
from nobackfill.data.fonts import collect, font_folders, kept_drawings

HAN = ("4E00-9FA5", "3400-4DB5")
HAN_FACES = (
    Face("NotoSansCJK-Regular.ttc", 0, "noto-sans", package="fonts-noto-cjk"),
    Face("NotoSansCJK-Black.ttc", 2, "noto-sans", package="fonts-noto-cjk-extra"),
    Face("NotoSerifCJK-Regular.ttc", 0, "noto-serif", package="fonts-noto-cjk"),
    Face("NotoSerifCJK-Black.ttc", 2, "noto-serif", package="fonts-noto-cjk-extra"),
    Face("HanaMinA.ttf", 0, "hanazono", package="fonts-hanazono"),
    Face("TW-Kai-98_1.ttf", 0, "cns-kai", package="fonts-cns11643-kai"),
    Face("TW-Sung-98_1.ttf", 0, "cns-sung", package="fonts-cns11643-sung"),
    Face("DroidSansFallbackFull.ttf", 0, "droid", package="fonts-droid-fallback"),
    Face("wqy-microhei.ttc", 0, "droid", package="fonts-wqy-microhei"),
    Face("BabelStoneHan.ttf", 0, "arphic-ming", package="fonts-babelstone-han"),
    Face("uming.ttc", 0, "arphic-ming", package="fonts-arphic-uming"),
    Face("ukai.ttc", 0, "arphic-kai", package="fonts-arphic-ukai"),
    Face("wqy-zenhei.ttc", 0, "zenhei", True, package="fonts-wqy-zenhei"),
    Face("ipamjm.ttf", 0, "ipamj", True, package="fonts-ipamj-mincho"),
    Face("LXGWWenKai-Regular.ttf", 0, "wenkai", True, package="fonts-lxgw-wenkai"),
    Face("LXGWWenKai-Bold.ttf", 0, "wenkai", True, package="fonts-lxgw-wenkai"),
)


def han(
    *,
    path: str = "",
    folder: str = "",
    counts: Sequence[int] = (1199, 3997),
    images_per_class: int = 0,
    validation_classes: int = 1500,
    test_classes: int = 1500,
    searched: str = "test",
    distortion: float | int = 1.0,
    side: int = 40,
    seed: int = 0,
) -> Collection:
    """Draws 27,484 Han characters by up to 16 typefaces of free fonts.

    `nobackfill datasets check han` lists the fonts and their Debian packages.

    Args:
        path: File that keeps the drawings; by default in the user's cache.
        folder: Folder of the font files; by default those of the system.
        counts: Number of training characters that each step of the upgrade knows.
        images_per_class: Largest number of drawings of a training character; 0 for all.
        validation_classes: Number of characters on which options may be chosen.
        test_classes: Number of characters that tables report.
        searched: Characters in queries and gallery: "test" or "validation".
        distortion: Strength of the distortions, of training drawings anew in each epoch, of
            searched ones once; 0 for none.
        side: Height and width of an image in pixels, a multiple of 8.
        seed: Random seed of the training characters. Validation and test characters are the same
            for all seeds.
    """
    drawings = kept_drawings(path or f"han-{side}.npz", folder, HAN_FACES, HAN, side=side)
    return collect(
        drawings,
        counts=counts,
        images_per_class=images_per_class,
        parts={"test": test_classes, "validation": validation_classes},
        searched=searched,
        distortion=distortion,
        seed=seed,
    )


def installed_fonts(folder: str = "") -> dict[Face, Path | None]:
    """Returns the file of each typeface; None for those that are not installed."""
    paths = find_fonts([face.file for face in HAN_FACES], font_folders(folder))
    return {face: paths.get(face.file) for face in HAN_FACES}
