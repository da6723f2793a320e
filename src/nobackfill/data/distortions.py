"""Random distortions of drawn characters, a batch at a time, on the device of the images.

An image has ink (1) on paper (0). Each is turned, scaled, sheared and shifted, blurred, drawn with
thinner or thicker strokes, partly covered, and made noisy.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

# Largest changes at strength 1.
TURN = 10.0  # rotation, in degrees
SCALE = 0.15  # width and height, independently
SHEAR = 0.15
SHIFT = 0.1  # share of half of the image
NOISE = 0.25  # amplitude of the noise
COVER = 0.3  # side of the covered rectangle, as a share of the image
# The same at every strength.
THRESHOLD = (0.25, 0.6)  # ink that a blurred pixel needs: low thickens strokes, high thins them
SHARPNESS = (1.5, 6.0)  # slope around that threshold
COVERED = 0.5  # share of the images that are partly covered

Images = Float[Tensor, "batch 1 side side"]


def distort(images: Images, generator: torch.Generator, strength: float = 1.0) -> Images:
    """Distorts each image at random.

    Args:
        images: Images, which may be changed.
        generator: Generator on the CPU.
        strength: Factor of the largest changes.

    Example:
        >>> distort(torch.ones(2, 1, 16, 16), torch.Generator().manual_seed(0)).shape
        torch.Size([2, 1, 16, 16])
    """
    numbers = torch.rand(len(images), 16, generator=generator).to(images.device, non_blocking=True)
    images = warp(images, affine_maps(numbers[:, :6], strength))
    images = redraw_strokes(images, numbers[:, 6:9])
    images = cover(images, numbers[:, 9:14], strength)
    return add_noise(images, 2 * NOISE * strength * numbers[:, 15], generator)


def affine_maps(numbers: Float[Tensor, "batch 6"], strength: float) -> Float[Tensor, "batch 2 3"]:
    r"""Affine maps from uniform numbers `u` in 0 .. 1, with :math:`v = s (2u - 1)`.

    .. math::
        A = R(v_1 T) \begin{pmatrix} 1 & v_2 H \\ 0 & 1 \end{pmatrix}
            \mathrm{diag}(e^{v_3 C}, e^{v_4 C}), \qquad t = (v_5, v_6) S

    with the strength `s`, `T` = `TURN`, `H` = `SHEAR`, `C` = `SCALE` and `S` = `SHIFT`.
    """
    turn, shear, wide, high, right, down = (strength * (2 * numbers - 1)).unbind(dim=1)
    angle = turn * math.radians(TURN)
    cos, sin = angle.cos(), angle.sin()
    width, height, shear = (wide * SCALE).exp(), (high * SCALE).exp(), shear * SHEAR
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


def cover(images: Images, numbers: Float[Tensor, "batch 5"], strength: float) -> Images:
    """Covers a random rectangle of some images with paper."""
    side = images.shape[-1]
    is_covered = numbers[:, 0] < COVERED
    sizes = (COVER * strength * (0.5 + 0.5 * numbers[:, 1:3])).clamp(max=0.75)
    first = numbers[:, 3:5] * (1 - sizes)
    place = (torch.arange(side, device=images.device) + 0.5) / side
    inside = (place >= first[..., None]) & (place < (first + sizes)[..., None])  # (batch, 2, side)
    hidden = inside[:, 0, :, None] & inside[:, 1, None, :] & is_covered[:, None, None]
    return images.masked_fill_(hidden[:, None], 0.0)


def add_noise(images: Images, width: Float[Tensor, " batch"], generator: torch.Generator) -> Images:
    """Adds uniform noise, of its own width for each image."""
    if images.device.type == "cpu":
        noise = torch.rand(images.shape, generator=generator)
    else:  # drawn on the device, by a seed from the generator
        seed = int(torch.randint(2**62, (), generator=generator))
        own = torch.Generator(images.device).manual_seed(seed)
        noise = torch.rand(images.shape, generator=own, device=images.device)
    return images.addcmul_(noise.sub_(0.5), width.view(-1, 1, 1, 1))
