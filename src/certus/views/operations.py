"""RandAugment's operations on whole batches: pure functions with the same result as Pillow's on each single image.

Images are uint8 (B, C, H, W) with C = 1 (Pillow's mode L) or 3 (RGB). The magnitude (B,) differs from image to image.
Geometric operations take the nearest pixel: this is Pillow's default, which FixMatch's reference programs use. Pixels
from outside the image have the value `fill` (Pillow's default: black).
"""

from __future__ import annotations

import torch
from torch import Tensor

Fill = Tensor | int  # (1, C, 1, 1), or one number for all channels


def per_image(magnitude: Tensor) -> Tensor:
    return magnitude[:, None, None, None]  # (B, 1, 1, 1)


def identity(images: Tensor, _: Tensor | None = None) -> Tensor:
    """x"""
    return images


def invert(images: Tensor, _: Tensor | None = None) -> Tensor:
    """255 − x"""
    return 255 - images


def autocontrast(images: Tensor, _: Tensor | None = None) -> Tensor:
    """⌊255 (x − min)/(max − min)⌋ in each channel of each image; a constant channel stays as it is."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)  # (B, C, 1, 1)
    span = (high - low).clamp(min=1).double()
    # These are Pillow's steps in double precision, with a true division (`255 / tensor` is not one). Their rounding
    # decides whether the brightest pixel becomes 255 or 254.
    scale = torch.full_like(span, 255) / span
    stretched = (images * scale - low * scale).clamp_(0, 255).to(torch.uint8)
    return torch.where(high > low, stretched, images)


def equalize(images: Tensor, _: Tensor | None = None) -> Tensor:
    """min(⌊(#{pixels < x} + ⌊s/2⌋)/s⌋, 255) with s = ⌊#{pixels < max}/255⌋ per channel; unchanged where s = 0."""
    rows = images.flatten(2).flatten(0, 1).long()  # (B·C, H·W)
    offset = 256 * torch.arange(len(rows), device=rows.device)[:, None]
    count = (rows + offset).flatten().bincount(minlength=256 * len(rows)).view(len(rows), 256)
    below = count.cumsum(1) - count  # (B·C, 256)
    step = below.gather(1, rows.amax(1, keepdim=True)) // 255  # (B·C, 1)
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    table = torch.where(step > 0, table, torch.arange(256, device=rows.device))
    return table.to(torch.uint8).gather(1, rows).view(images.shape)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the ⌊bits⌋ highest bits of x, 1 … 8; with 8 the image stays as it is."""
    mask = 256 - 2 ** (8 - bits.long())
    return images & per_image(mask).to(torch.uint8)


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """255 − x where x ≥ threshold; with 256 the image stays as it is."""
    return torch.where(images < per_image(threshold), images, 255 - images)


def blend(degenerate: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """⌊d + factor (x − d)⌋ within 0 … 255, for a float d: factor 1 gives the image, 0 the degenerate image d."""
    return (images - degenerate).mul_(per_image(factor)).add_(degenerate).clamp_(0, 255).to(torch.uint8)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with black."""
    return blend(torch.zeros((), device=images.device), images, factor)


def color(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the image in grey; an image of one channel stays as it is."""
    return images if images.shape[1] == 1 else blend(grey(images), images, factor)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the image's mean grey, rounded."""
    pixels = images.shape[2] * images.shape[3]
    total = grey(images).long().sum((2, 3), keepdim=True)  # (B, 1, 1, 1)
    return blend(((2 * total + pixels) // (2 * pixels)).float(), images, factor)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean of each pixel's 3×3 neighbourhood, itself counted five times; the border stays as it is."""
    x = images.float()
    rows = x[:, :, :-2] + x[:, :, 1:-1] + x[:, :, 2:]
    around = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]  # (B, C, H−2, W−2)
    smooth = x.clone()
    smooth[..., 1:-1, 1:-1] = ((around + 4 * x[..., 1:-1, 1:-1]) / 13 + 0.5).floor()
    return blend(smooth, x, factor)


def grey(images: Tensor) -> Tensor:
    """0.299 R + 0.587 G + 0.114 B, rounded, as float (B, 1, H, W)."""
    if images.shape[1] == 1:
        return images.float()
    if images.shape[1] != 3:
        raise ValueError(f"Images must have 1 or 3 channels, not {images.shape[1]}.")
    red, green, blue = images.float().split(1, dim=1)
    # 16-bit fixed point, as in Pillow; every sum is a whole number below 2²⁴, and therefore exact in single precision
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) / 65536).floor()


def affine(images: Tensor, matrix: Tensor, fill: Fill = 0) -> Tensor:
    """y(i, j) = x(⌊A (i + ½, j + ½) + t⌋) for column i and row j, with each image's own matrix [A t] (B, 2, 3)."""
    h, w = images.shape[2:]
    linear, shift = matrix[:, :, :2], matrix[:, :, 2]
    step, start = fixed_point(linear), fixed_point(shift + linear.sum(2) / 2)  # (B, 2, 2), (B, 2)
    column = torch.arange(w, device=images.device, dtype=step.dtype)
    row = torch.arange(h, device=images.device, dtype=step.dtype)[:, None]
    source = start[..., None, None] + step[..., 0, None, None] * column + step[..., 1, None, None] * row  # (B, 2, H, W)
    x, y = ((source >> 16) + 1).unbind(1)  # in the framed image
    pixel = y.clamp(0, h + 1) * (w + 2) + x.clamp(0, w + 1)
    pixel = pixel.long().flatten(1)[:, None].expand(-1, images.shape[1], -1)  # (B, C, H·W)
    return framed(images, fill).flatten(2).gather(2, pixel).view(images.shape)


def fixed_point(value: Tensor) -> Tensor:
    """In units of 2⁻¹⁶, rounded: Pillow computes positions in these integers, so both read the same pixels."""
    return (value * 65536 + 0.5).floor().int()


def framed(images: Tensor, fill: Fill) -> Tensor:
    """The images within a frame of one pixel, which stands for everything outside (B, C, H + 2, W + 2)."""
    b, c, h, w = images.shape
    canvas = images.new_empty(b, c, h + 2, w + 2).copy_(torch.as_tensor(fill))
    canvas[:, :, 1:-1, 1:-1] = images
    return canvas


def identity_matrices(count: int, device: torch.device) -> Tensor:
    """The matrices [A t] that move no pixel (B, 2, 3)."""
    return torch.eye(2, 3, dtype=torch.double, device=device).repeat(count, 1, 1)


def shear_x(images: Tensor, slope: Tensor, fill: Fill = 0) -> Tensor:
    """x(i + slope·j, j)"""
    matrix = identity_matrices(len(images), images.device)
    matrix[:, 0, 1] = slope
    return affine(images, matrix, fill)


def shear_y(images: Tensor, slope: Tensor, fill: Fill = 0) -> Tensor:
    """x(i, j + slope·i)"""
    matrix = identity_matrices(len(images), images.device)
    matrix[:, 1, 0] = slope
    return affine(images, matrix, fill)


def translate_x(images: Tensor, fraction: Tensor, fill: Fill = 0) -> Tensor:
    """x(i + fraction·W, j), by whole pixels, rounded towards 0."""
    matrix = identity_matrices(len(images), images.device)
    matrix[:, 0, 2] = (fraction.double() * images.shape[3]).trunc()
    return affine(images, matrix, fill)


def translate_y(images: Tensor, fraction: Tensor, fill: Fill = 0) -> Tensor:
    """x(i, j + fraction·H), by whole pixels, rounded towards 0."""
    matrix = identity_matrices(len(images), images.device)
    matrix[:, 1, 2] = (fraction.double() * images.shape[2]).trunc()
    return affine(images, matrix, fill)


def rotate(images: Tensor, degrees: Tensor, fill: Fill = 0) -> Tensor:
    """Rotate counter-clockwise about the centre: t = centre − A centre."""
    angle = degrees.double().deg2rad()
    cos, sin = angle.cos(), angle.sin()
    turn = torch.stack([torch.stack([cos, -sin], dim=1), torch.stack([sin, cos], dim=1)], dim=1)  # (B, 2, 2)
    centre = turn.new_tensor([[images.shape[3] / 2], [images.shape[2] / 2]])  # (2, 1)
    return affine(images, torch.cat([turn, centre - turn @ centre], dim=2), fill)


GEOMETRIC = (rotate, shear_x, shear_y, translate_x, translate_y)  # the operations that take a fill


def cutout(images: Tensor, row: Tensor, column: Tensor, side: int, fill: Fill = 0) -> Tensor:
    """Fill a square of this side around each image's (row, column), clipped at the border; for any dtype."""
    down = torch.arange(images.shape[2], device=images.device) - row[:, None] + side // 2  # (B, H)
    right = torch.arange(images.shape[3], device=images.device) - column[:, None] + side // 2  # (B, W)
    inside = ((down >= 0) & (down < side))[:, None, :, None] & ((right >= 0) & (right < side))[:, None, None, :]
    colour = torch.as_tensor(fill, dtype=images.dtype, device=images.device)
    return images * ~inside + colour * inside  # `where` is slow on uint8
