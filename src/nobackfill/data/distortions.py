"""Random distortions of drawn characters, a batch at a time, on the device of the images.

An image has ink (1) on paper (0). Each is turned, scaled, sheared and shifted, blurred, drawn with
thinner or thicker strokes, partly covered, and made noisy.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

TURN = 10.0  # largest rotation, in degrees
SCALE = 0.15  # largest change of width and height, independently
SHEAR = 0.15  # largest shear
SHIFT = 0.1  # largest shift, as a share of half of the image
THRESHOLD = (0.25, 0.6)  # ink that a blurred pixel needs: low thickens strokes, high thins them
SHARPNESS = (1.5, 6.0)  # slope around that threshold
COVERED = 0.5  # share of the images that are partly covered
COVER = (0.15, 0.4)  # sides of the covered rectangle, as shares of the image
NOISE = 0.25  # largest amplitude of the noise

Images = Float[Tensor, "batch 1 side side"]


def distort(images: Images, generator: torch.Generator) -> Images:
    """Distorts each image at random.

    Example:
        >>> distort(torch.ones(2, 1, 16, 16), torch.Generator().manual_seed(0)).shape
        torch.Size([2, 1, 16, 16])
    """
    numbers = torch.rand(len(images), 16, generator=generator).to(images.device, non_blocking=True)
    images = warp(images, affine_maps(numbers[:, :6]))
    images = redraw_strokes(images, numbers[:, 6:9])
    images = cover(images, numbers[:, 9:15])
    return add_noise(images, numbers[:, 15], generator)


def affine_maps(numbers: Float[Tensor, "batch 6"]) -> Float[Tensor, "batch 2 3"]:
    r"""Affine maps from uniform numbers `u` in 0 .. 1, with :math:`v = 2u - 1`.

    .. math::
        A = R(v_1 \cdot \text{TURN}) \begin{pmatrix} 1 & v_2 \cdot \text{SHEAR} \\ 0 & 1 \end{pmatrix}
            \mathrm{diag}(1 + v_3 \cdot \text{SCALE}, 1 + v_4 \cdot \text{SCALE}), \qquad
        t = (v_5, v_6) \cdot \text{SHIFT}
    """
    turn, shear, wide, high, right, down = (2 * numbers - 1).unbind(dim=1)
    angle = turn * math.radians(TURN)
    cos, sin = angle.cos(), angle.sin()
    width, height, shear = 1 + wide * SCALE, 1 + high * SCALE, shear * SHEAR
    return torch.stack(
        [
            torch.stack([cos * width, (cos * shear - sin) * height, right * SHIFT], dim=1),
            torch.stack([sin * width, (sin * shear + cos) * height, down * SHIFT], dim=1),
        ],
        dim=1,
    )


def warp(images: Images, maps: Float[Tensor, "batch 2 3"]) -> Images:
    """Reads each image at the places that its map names; outside is paper."""
    grid = F.affine_grid(maps, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def redraw_strokes(images: Images, numbers: Float[Tensor, "batch 3"]) -> Images:
    r"""Blurs images and draws their strokes thinner or thicker.

    .. math::
        x' = \mathrm{clip}\big(s \, (b - \theta) + \tfrac12\big), \qquad
        b = x + a \, (\mathrm{mean}_{3 \times 3}(x) - x)
    """
    blur, threshold, sharpness = numbers.view(-1, 3, 1, 1, 1).unbind(dim=1)
    threshold = THRESHOLD[0] + (THRESHOLD[1] - THRESHOLD[0]) * threshold
    sharpness = SHARPNESS[0] + (SHARPNESS[1] - SHARPNESS[0]) * sharpness
    mean = F.avg_pool2d(images, 3, stride=1, padding=1)
    blurred = torch.lerp(images, mean, blur)
    return (sharpness * blurred).add_(0.5 - sharpness * threshold).clamp_(0, 1)


def cover(images: Images, numbers: Float[Tensor, "batch 6"]) -> Images:
    """Covers a random rectangle of some images with paper."""
    side = images.shape[-1]
    is_covered = numbers[:, 0] < COVERED
    sizes = COVER[0] + (COVER[1] - COVER[0]) * numbers[:, 1:3]
    first = numbers[:, 3:5] * (1 - sizes)
    place = (torch.arange(side, device=images.device) + 0.5) / side
    inside = (place >= first[..., None]) & (place < (first + sizes)[..., None])  # (batch, 2, side)
    hidden = inside[:, 0, :, None] & inside[:, 1, None, :] & is_covered[:, None, None]
    return images.masked_fill_(hidden[:, None], 0.0)


def add_noise(
    images: Images, numbers: Float[Tensor, " batch"], generator: torch.Generator
) -> Images:
    """Adds uniform noise of a random amplitude to each image."""
    if images.device.type == "cpu":
        noise = torch.rand(images.shape, generator=generator)
    else:  # drawn on the device, by a seed from the generator
        seed = int(torch.randint(2**62, (), generator=generator))
        own = torch.Generator(images.device).manual_seed(seed)
        noise = torch.rand(images.shape, generator=own, device=images.device)
    amplitude = (2 * NOISE * numbers).view(-1, 1, 1, 1)
    return images.addcmul_(noise.sub_(0.5), amplitude)
