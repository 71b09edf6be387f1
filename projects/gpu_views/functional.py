# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Image operations on batches, with separate parameters for each image.

The arithmetic is that of ``mmmoca.datasets``, and therefore PIL's. Values are
rounded after each step wherever the CPU stores uint8. No shape depends on the
values of a tensor, and the host reads none of them. So nothing waits for the
device, and ``torch.compile`` makes one graph of all operations.

Images are float32, (N, C, H, W), from 0 to 255; colours are BGR.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)  # as ColorJitter orders them


def draw_boxes(
    sizes: Tensor,
    uniform: Tensor,
    area_range: tuple[float, float],
    ratio_range: tuple[float, float],
) -> Tensor:
    """Draw boxes of random resized crops, in torchvision's distribution.

    Area and aspect ratio are drawn several times. The first box that fits into
    the image is used. If none fits, the largest central box that the range of
    ratios allows is used.

    Args:
        sizes (Tensor): Height and width of each image, (N, 2), any number
            type.
        uniform (Tensor): Numbers from [0, 1), (N, 2A + 2): A draws of the
            area, A of the ratio, and two for the place.
        area_range (tuple[float, float]): Area of the box divided by that of
            the image.
        ratio_range (tuple[float, float]): Width of the box divided by its
            height.

    Returns:
        Tensor: Top, left, height and width, (N, 4), whole numbers in float32.
    """
    height, width = sizes.float().split(1, dim=1)  # (N, 1) each
    attempts = uniform.shape[1] // 2 - 1
    areas, ratios, place = uniform.split((attempts, attempts, 2), dim=1)
    areas = stretch(areas, *area_range) * height * width
    ratios = stretch(ratios, *map(math.log, ratio_range)).exp()
    widths = (areas * ratios).sqrt().round()
    heights = (areas / ratios).sqrt().round()
    fits = (widths <= width) & (heights <= height)
    fits &= (widths > 0) & (heights > 0)
    # The fallback box comes last. It always fits.
    low, high = ratio_range
    heights = torch.cat((heights, height.minimum((width / low).round())), 1)
    widths = torch.cat((widths, width.minimum((height * high).round())), 1)
    fits = F.pad(fits.int(), (0, 1), value=1)
    chosen = fits.argmax(dim=1, keepdim=True)  # the first that fits
    box = torch.cat((heights.gather(1, chosen), widths.gather(1, chosen)), 1)
    room = torch.cat((height, width), dim=1) - box
    # Rounding may turn a number just below room + 1 into room + 1.
    drawn = (place * (room + 1)).floor().minimum(room)
    corner = torch.where(chosen < attempts, drawn, (room / 2).floor())
    return torch.cat((corner, box), dim=1)


def stretch(uniform: Tensor, low: float, high: float) -> Tensor:
    """Map numbers from [0, 1) to [low, high)."""
    return low + (high - low) * uniform


def resize_boxes(
    canvases: Tensor,
    boxes: Tensor,
    size: tuple[int, int],
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Cut a box out of each image and resize it with PIL's antialiasing.

    Bilinear interpolation is a weighted mean of rows, then of columns: two
    batched matrix products, whose weights are 0 outside the box.

    Args:
        canvases (Tensor): Images with any padding around them, (N, H, W, C),
            uint8.
        boxes (Tensor): Top, left, height and width of each box, (N, 4).
        size (tuple[int, int]): Height and width to resize to, in pixels.
        dtype (torch.dtype): Type of the products' operands. float16 holds the
            canvases exactly, but rounds weights and sums. This changes a
            pixel by at most about 0.25 grey levels before its final rounding.

    Returns:
        Tensor: Whole numbers in float32, (N, C, *size).
    """
    n, height, width, channels = canvases.shape
    top, left, box_height, box_width = boxes.float().view(n, 4, 1, 1).unbind(1)
    rows = _resize_weights(top, box_height, size[0], height).to(dtype)
    columns = _resize_weights(left, box_width, size[1], width).to(dtype)
    x = canvases.to(dtype).flatten(2)  # (N, H, WC)
    x = torch.bmm(rows, x).view(n, size[0], width, channels)
    x = x.permute(0, 3, 1, 2).flatten(1, 2)  # (N, C * H', W)
    x = torch.bmm(x, columns.mT).view(n, channels, *size)
    return x.float().round_()


def _resize_weights(
    start: Tensor, length: Tensor, size: int, extent: int
) -> Tensor:
    """Return weights, (N, size, extent), for start and length, (N, 1, 1)."""
    scale = length / size
    steps = torch.arange(max(size, extent), device=start.device) + 0.5
    centres = steps[:size, None] * scale  # (N, size, 1), in the box
    places = steps[:extent] - start  # (N, 1, extent)
    weights = 1 - (places - centres).abs() / scale.clamp(min=1)
    inside = (places > 0) & (places < length)
    weights = weights.clamp(min=0) * inside
    return weights / weights.sum(dim=2, keepdim=True)


def _per_image(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)


def luminance(images: Tensor) -> Tensor:
    """Return the grey version of images, in one channel.

    Args:
        images (Tensor): (N, 3, H, W).

    Returns:
        Tensor: Whole numbers, (N, 1, H, W).

    Raises:
        ValueError: If the images do not have three channels.
    """
    if images.shape[1] != 3:
        raise ValueError(
            'ColorJitter and RandomGrayscale need images of three channels '
            f'but got {images.shape[1]}: load them with '
            "color_type='color', or take both out of model."
            'data_preprocessor.views'
        )
    blue, green, red = images.split(1, dim=1)
    return (0.114 * blue + 0.587 * green + 0.299 * red).round()


def jitter(
    images: Tensor, order: Tensor, factors: Tensor, hue: Tensor | None = None
) -> Tensor:
    """Change brightness, contrast, saturation and hue in any order.

    Brightness blends the image with black, contrast with its mean grey level,
    and saturation with its grey version. The three share one formula; the
    image to blend with depends on which of them is due.

    Args:
        images (Tensor): (N, 3, H, W).
        order (Tensor): Permutation of 0 (brightness), 1 (contrast), 2
            (saturation) and 3 (hue) for each image, (N, 4), int64.
        factors (Tensor): Factors of brightness, contrast and saturation,
            (N, 3). 1 changes nothing.
        hue (Tensor, optional): Shift as a fraction of the circle, (N,).

    Returns:
        Tensor: Whole numbers, of the same shape.
    """
    factors = F.pad(factors, (0, 1), value=1.0)  # hue blends nothing
    for due in order.split(1, dim=1):  # (N, 1)
        grey = luminance(images)
        mean = (grey.mean(dim=(1, 2, 3), keepdim=True) + 0.5).floor()
        base = mean * _per_image(due == CONTRAST)
        base = base + grey * _per_image(due == SATURATION)
        factor = _per_image(factors.gather(1, due))
        images = base + factor * (images - base)
        images = images.clamp(0, 255).floor()
        if hue is not None:
            images = shift_hue(images, hue * (due[:, 0] == HUE))
    return images


def shift_hue(images: Tensor, shifts: Tensor) -> Tensor:
    """Rotate the hue in 8-bit steps, as the CPU's transform does.

    Args:
        images (Tensor): (N, 3, H, W), whole numbers.
        shifts (Tensor): Fractions of the circle in [-0.5, 0.5], (N,). 0
            changes nothing.

    Returns:
        Tensor: Whole numbers, of the same shape.
    """
    blue, green, red = images.unbind(dim=1)  # (N, H, W)
    value = images.amax(dim=1)
    chroma = value - images.amin(dim=1)
    divisor = chroma.clamp(min=1)
    hue = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(
            value == green,
            (blue - red) / divisor + 2,
            (red - green) / divisor + 4,
        ),
    )  # sixths of the circle
    hue = hue + 6 / 256 * (shifts * 255).trunc()[:, None, None]
    # Along the circle, each channel falls by chroma for a sixth, is low for a
    # third, rises for a sixth and is high for a third.
    channels = []
    for offset in (1, 3, 5):  # blue, green, red
        place = (hue + offset).remainder(6)
        fall = torch.minimum(place, 4 - place).clamp(0, 1)
        channels.append(value - chroma * fall)
    return torch.stack(channels, dim=1).round()


def gaussian_blur(images: Tensor, sigma: Tensor, max_sigma: float) -> Tensor:
    """Blur as ``PIL.ImageFilter.GaussianBlur`` does.

    It averages over a box of fractional width three times along the rows and
    three times along the columns, and rounds each time: see
    :func:`mmmoca.datasets.functional.gaussian_blur`.

    Args:
        images (Tensor): (N, C, H, W).
        sigma (Tensor): Standard deviations in pixels, (N,).
        max_sigma (float): Upper bound of ``sigma``. It sets the width of the
            filter.

    Returns:
        Tensor: Whole numbers, of the same shape.
    """
    variance = sigma.float().square()[:, None] / 3  # of each box
    radius = (((12 * variance + 1).sqrt() - 1) / 2).floor()
    edge = (2 * radius + 1) * (radius * (radius + 1) - 3 * variance)
    edge = edge / (6 * (variance - (radius + 1) ** 2))
    reach = math.floor((math.sqrt(4 * max_sigma**2 + 1) - 1) / 2) + 1
    places = torch.arange(reach + 1, device=sigma.device)
    weights = (places <= radius) + edge * (places == radius + 1)
    weights = weights / (2 * radius + 1 + 2 * edge)  # (N, reach + 1)
    for _ in range(2):  # along the rows, then along the columns
        for _ in range(3):
            images = _box_filter(images, weights)
        images = images.mT
    return images


def _box_filter(images: Tensor, weights: Tensor) -> Tensor:
    """Filter the last dimension with weights from the middle outwards."""
    reach, width = weights.shape[1] - 1, images.shape[-1]
    padded = F.pad(images, (reach, reach, 0, 0), mode='replicate')
    out = padded.narrow(-1, reach, width) * _per_image(weights[:, 0])
    for k in range(1, reach + 1):
        both = padded.narrow(-1, reach - k, width)
        both = both + padded.narrow(-1, reach + k, width)
        out = out + both * _per_image(weights[:, k])
    return out.round()
