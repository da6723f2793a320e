"""Every kind of file comes out as the picture it shows; a broken one is named."""

import io
import threading
import warnings

import numpy as np
import pytest
from PIL import Image

from nobackfill.data.decode import image_size, open_image
from nobackfill.errors import DataError


def ramp(width=32, height=24, dtype=np.uint8, top=255):
    """Grey that rises from 0 in one corner to `top` in the other."""
    steps = np.arange(width * height) * top // (width * height - 1)
    return steps.reshape(height, width).astype(dtype)


def photo(width=64, height=48):
    """Something smooth in colour, that JPEG keeps well."""
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([x, y, 255 - x], axis=-1).astype(np.uint8))


def pixels(path, **options):
    image = open_image(path, **options)
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)


def save(image, path, **options):
    image.save(path, **options)
    return path


def test_colour_is_kept(tmp_path):
    shown = pixels(save(photo(), tmp_path / "a.png"))
    np.testing.assert_array_equal(shown, np.asarray(photo()))


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "tif", "webp"])
def test_grey_is_repeated(tmp_path, suffix):
    options = {"lossless": True} if suffix == "webp" else {}
    image = Image.fromarray(ramp())
    shown = pixels(save(image, tmp_path / f"a.{suffix}", **options))
    assert (shown[..., 0] == shown[..., 1]).all()
    assert (shown[..., 0] == shown[..., 2]).all()
    assert np.abs(shown[..., 0] - ramp()).max() <= (3 if suffix == "jpg" else 0)


def test_ink_of_one_bit(tmp_path):
    shown = pixels(save(Image.fromarray(ramp() > 100), tmp_path / "a.png"))
    np.testing.assert_array_equal(shown[..., 1], np.where(ramp() > 100, 255, 0))


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_scaled_not_clipped(tmp_path, suffix):
    grey = ramp(dtype=np.uint16, top=65535)
    shown = pixels(save(Image.fromarray(grey), tmp_path / f"a.{suffix}"))
    assert shown.min() == 0
    assert shown.max() == 255
    assert np.abs(shown[..., 0] - grey / 257).max() <= 0.5


def test_sixteen_bits_that_repeat_eight_are_the_same_picture(tmp_path):
    grey = ramp().astype(np.uint16) * 257
    shown = pixels(save(Image.fromarray(grey), tmp_path / "a.png"))
    np.testing.assert_array_equal(shown[..., 2], ramp())


def test_whole_numbers_of_32_bits_are_taken_for_16_where_they_fit(tmp_path):
    grey = ramp(dtype=np.int32, top=65535)
    shown = pixels(save(Image.fromarray(grey), tmp_path / "a.tif"))
    assert np.abs(shown[..., 0] - grey / 257).max() <= 0.5


@pytest.mark.parametrize("grey", [ramp(dtype=np.float32), ramp(dtype=np.int32, top=70_000)])
def test_pixels_of_unknown_range_are_refused(tmp_path, grey):
    save(Image.fromarray(grey), tmp_path / "a.tif")
    with pytest.raises(DataError, match=r"a\.tif.*white is unknown.*Save the image"):
        open_image(tmp_path / "a.tif")


@pytest.mark.parametrize("suffix", ["jpg", "tif"])
def test_inks_are_colours_again(tmp_path, suffix):
    inks = Image.new("CMYK", (16, 16), (0, 255, 255, 0))  # magenta and yellow: red
    shown = pixels(save(inks, tmp_path / f"a.{suffix}"))
    assert np.abs(shown - [255, 0, 0]).max() <= 4


def test_a_palette_is_looked_up(tmp_path):
    image = photo().quantize(200)
    shown = pixels(save(image, tmp_path / "a.png"))
    np.testing.assert_array_equal(shown, np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_is_transparent_lies_on_white(tmp_path, mode):
    image = Image.new(mode, (4, 2), 0)  # black, and not to be seen
    image.putpixel((1, 0), (40, 255) if mode == "LA" else (40, 40, 40, 255))
    image.putpixel((2, 0), (0, 51) if mode == "LA" else (0, 0, 0, 51))
    shown = pixels(save(image, tmp_path / "a.png"))
    np.testing.assert_array_equal(shown[0, :, 0], [255, 40, 204, 255])


@pytest.mark.parametrize("transparency", [1, bytes([255, 0])])
def test_a_transparent_colour_of_a_palette_lies_on_white(tmp_path, transparency):
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 0, 0, 0])
    image.putpixel((1, 0), 1)
    shown = pixels(save(image, tmp_path / "a.png", transparency=transparency))
    np.testing.assert_array_equal(shown[0], [[10, 20, 30], [255, 255, 255]])


def test_of_several_frames_the_first_is_taken(tmp_path):
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert (pixels(tmp_path / "a.gif") == [255, 0, 0]).all()


def test_the_camera_held_upright_is_not_turned(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6  # a quarter turn
    save(photo(64, 48), tmp_path / "a.jpg", exif=turned)
    assert open_image(tmp_path / "a.jpg").size == (64, 48)


@pytest.mark.parametrize(
    ("at_least", "size"),
    [(None, (640, 480)), (481, (640, 480)), (241, (640, 480)), (240, (320, 240)), (60, (80, 60))],
)
def test_jpegs_are_decoded_smaller_while_the_short_side_is_long_enough(tmp_path, at_least, size):
    save(photo(640, 480), tmp_path / "a.jpg", quality=95)
    image = open_image(tmp_path / "a.jpg", at_least=at_least)
    assert image.size == size
    whole = np.asarray(photo(640, 480).resize(size, Image.Resampling.BOX)).astype(int)
    assert np.abs(np.asarray(image) - whole).mean() < 3


def test_only_jpegs_come_out_smaller(tmp_path):
    save(photo(640, 480), tmp_path / "a.png")
    assert open_image(tmp_path / "a.png", at_least=60).size == (640, 480)


def test_the_size_is_in_the_head(tmp_path):
    save(photo(64, 48), tmp_path / "a.jpg")
    assert image_size(tmp_path / "a.jpg") == (64, 48)
    (tmp_path / "a.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:-200])
    assert image_size(tmp_path / "a.jpg") == (64, 48)


# Broken files.


def noise():
    """Fills a file evenly, so that every cut goes through the picture."""
    random = np.random.default_rng(0)
    return Image.fromarray(random.integers(0, 256, (64, 64, 3), dtype=np.uint8))


@pytest.mark.parametrize("share", [0, 0.01, 0.3, 0.9, 0.99])
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("at_least", [None, 16])
def test_a_file_cut_short_is_named(tmp_path, suffix, share, at_least):
    path = save(noise(), tmp_path / f"a.{suffix}")
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(DataError, match=rf"a\.{suffix}.*cannot be decoded .+ Fetch or unpack"):
        open_image(path, at_least=at_least)


def test_a_page_of_text_is_no_image(tmp_path):
    (tmp_path / "a.jpg").write_text("<html>404 Not Found</html>")
    with pytest.raises(DataError, match=r"a\.jpg.*cannot be decoded"):
        open_image(tmp_path / "a.jpg")
    with pytest.raises(DataError, match=r"a\.jpg: the size of the image cannot be read"):
        image_size(tmp_path / "a.jpg")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"gone\.jpg: the file does not exist\. Unpack"):
        open_image(tmp_path / "gone.jpg")


def test_a_folder_is_no_image(tmp_path):
    with pytest.raises(DataError, match="cannot be decoded"):
        open_image(tmp_path)


def test_an_image_that_would_fill_the_memory_is_refused(tmp_path):
    Image.new("1", (20_000, 20_000)).save(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"a\.png.*exceeds limit"):
        open_image(tmp_path / "a.png")


# Warnings, which are errors in this test run.


def odd_exif(path):
    """A good JPEG with metadata that ends in the middle."""
    exif = b"Exif\0\0II*\0\x08\0\0\0\xff\0\x0f\x01\x02\0"
    packed = io.BytesIO()
    photo().save(packed, "JPEG")
    data = packed.getvalue()
    path.write_bytes(data[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + data[2:])
    return path


def test_odd_metadata_is_no_reason_to_warn(tmp_path):
    path = odd_exif(tmp_path / "a.jpg")
    with pytest.warns(UserWarning, match="(?i)corrupt exif"), Image.open(path) as image:
        image.load()
    assert open_image(path).size == (64, 48)


def test_a_large_image_is_no_reason_to_warn(tmp_path, monkeypatch):
    path = save(photo(640, 480), tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200_000)
    with pytest.warns(Image.DecompressionBombWarning), Image.open(path):
        pass
    assert open_image(path).size == (640, 480)


def test_warnings_are_as_before_when_many_threads_have_opened_images(tmp_path):
    path, before = odd_exif(tmp_path / "a.jpg"), list(warnings.filters)
    failed = []

    def work():
        try:
            for _ in range(50):
                open_image(path)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert list(warnings.filters) == before
